"""`labeldeconv sweep --search`: the trials, the best settings, and the command that takes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from labeldeconv.cli.terminal import console, print_json, print_table
from labeldeconv.errors import ConfigError

if TYPE_CHECKING:
    from labeldeconv.settings.models import Config


def search_and_print(
    config: Config,
    asked: list[str],
    method: str,
    gnn: str,
    trials: int | None,
    minutes: float | None,
    seeds: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Search settings of one method with one GNN, and print what was tried; test scores are not shown."""
    for option, text in (("--methods", method), ("--gnns", gnn)):
        if "," in text or text == "all":
            raise ConfigError(f"{option} {text}: a search has one; one name expected")
    from labeldeconv.runs.search import search_config
    from labeldeconv.settings.space import parse_search

    found = search_config(config, dict(map(parse_search, asked)), method, gnn, trials, minutes, seeds, out)
    if as_json:
        return print_json(found.to_dict())
    names = list(found.best.settings)
    rows = [
        [
            trial.number,
            *map(str, trial.settings.values()),
            trial.state if trial.val is None else f"{trial.val:.4f}",
            trial.seconds,
        ]
        for trial in found.trials
    ]
    print_table(f"{found.metric} on {found.data}", ["trial", *names, "val", "seconds"], rows)
    told = ", ".join(f"{name} = {value}" for name, value in found.best.settings.items())
    console.print(Text(f"best: trial {found.best.number}, {told}"), soft_wrap=True)
    console.print(Text(found.command), soft_wrap=True)
    console.print(f"run directory: {found.run}", soft_wrap=True)
