"""What all commands share: option types, settings from options, tables and JSON on the terminal."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from labeldeconv import __version__
from labeldeconv.progress import PlainConsole, printable, show
from labeldeconv.registry import trusting

if TYPE_CHECKING:  # settings load when a command reads them: they are pydantic's, half the time of --help
    from labeldeconv.runs.compare import Comparison
    from labeldeconv.settings.models import Config

# As wide as the terminal, or as COLUMNS says; a file or a pipe has room for every column.
console = PlainConsole(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120)

Data = Annotated[str, typer.Argument(help="A folder of tables, a saved graph, or a name from `labeldeconv list`.")]
Hops = Annotated[str | None, typer.Option(help="N of the inverse labels, or auto.")]
Alpha = Annotated[str | None, typer.Option(help="Share of the inverse labels in the target, or auto.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="Settings as TOML.")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="One setting, KEY=VALUE, such as train.epochs=2.")]
Encoder = Annotated[str | None, typer.Option(help="An encoder of `labeldeconv list`, a hub id or a folder.")]
Out = Annotated[Path | None, typer.Option(help="Run directory; default under runs/.")]
MaxNodes = Annotated[int | None, typer.Option(min=4, help="Take a connected part of at most this many nodes.")]
LogTo = Annotated[str | None, typer.Option("--log", help="Metrics also go to tensorboard, wandb or mlflow (extras).")]


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"labeldeconv {__version__}")
        raise typer.Exit


def _quiet(asked: bool) -> None:
    if asked:
        show(-1)


def _verbose(asked: bool) -> None:
    if asked:
        show(1)


def _trust(context: typer.Context, asked: bool) -> None:
    context.with_resource(trusting(asked))


Trust = Annotated[
    bool, typer.Option("--trust", callback=_trust, help="Import the modules that the run names; they run code.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", callback=_quiet, help="Only warnings on stderr, no progress.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", callback=_verbose, help="Also say where stages work.")]
Version = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")]


def settings_of(config: Path | None, sets: list[str] | None, **given: Any) -> Config:
    """Settings of a command: the file, then --set, then the options with a name of their own."""
    from labeldeconv.settings.reading import load_config, parse_set

    overrides = dict(parse_set(s) for s in sets or [])
    overrides |= {name.replace("__", "."): value for name, value in given.items() if value is not None}
    return load_config(config, overrides)


def part_of(data: str, max_nodes: int | None) -> str:
    """The name of the data, or of a connected part of it."""
    return data if max_nodes is None else f"{data}#{max_nodes}"


def print_race(race: Mapping[str, Any], metric: str) -> None:
    """How a GNN was chosen by a metric: the candidates, and the reason."""
    from labeldeconv.graph.metrics import score_text

    rows = [
        (
            c["name"],
            c["dropped"] or "chosen",
            "" if c["score"] is None else score_text(metric, c["score"]),
            str(c["epochs"] or ""),
            str(c["seeds"] or ""),
            f"{c['seconds']:.1f}",
        )
        for c in race["candidates"]
    ]
    heads = ["GNN", "outcome", "val", "epochs", "seeds", "seconds"]
    print_table("GNNs by validation score", heads, rows, left=2, folds=["outcome"])
    console.print(f"GNN: {race['reason']}", soft_wrap=True, highlight=False, markup=False)


def print_json(value: Any) -> None:
    """One JSON object on stdout."""
    text = json.dumps(_without_nan(value), ensure_ascii=False, default=str, allow_nan=False)
    # JSON escapes the first control characters; the others, and halves of characters, stay what they are as \uXXXX.
    sys.stdout.write(re.sub("[\x7f-\x9f\u2028\u2029\ud800-\udfff]", lambda c: f"\\u{ord(c[0]):04x}", text) + "\n")


def _without_nan(value: Any) -> Any:
    """A value in which every number that JSON has no word for, NaN or infinite, is None."""
    if isinstance(value, dict):
        return {str(key) if not isinstance(key, str) else key: _without_nan(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(held) for held in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_tree(title: str, values: dict[str, Any]) -> None:
    """Names and values in two columns; nested ones on one line."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in values.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v:,}" if isinstance(v, int | float) else f"{k} {v}" for k, v in value.items())
        elif isinstance(value, int) and not isinstance(value, bool):
            value = f"{value:,}"
        table.add_row(name.replace("_", " "), str(value))
    console.print(table)
    console.print()


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    left: int = 1,
    folds: Sequence[str] = ("text",),
) -> None:
    """A table; the first `left` columns are names, None is an empty cell, floats are cut to four digits.

    Only the columns in `folds` take several lines where the terminal is narrow.
    """
    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < left else "right", no_wrap=column not in folds)
    for row in rows:
        table.add_row(*map(_cell, row))
    console.print(table)


def _cell(value: Any) -> Text:
    return Text("" if value is None else f"{value:.4g}" if isinstance(value, float) else printable(str(value)))


def comparison_table(result: Comparison) -> Group:
    """What `compare` shows, without the GNN where there is only one: 80 columns are soon full.

    Where they are, scores take two lines; no cell is cut. The title may be wider than the table.
    """
    gnns = {row.gnn for row in result.rows}
    several = len(gnns) > 1
    caption = "p: paired test against ld" if result.has_p else None
    shown = [i for i, column in enumerate(result.columns()) if column != "GNN" or several]
    table = Table(caption=caption, caption_justify="left", box=None)
    table.padding, table.header_style = (0, 1, 0, 0), "bold underline"
    for i in shown:
        column = result.columns()[i].rpartition(".")[2].partition(" vs ")[0]
        side: Literal["left", "right"] = "left" if column in ("method", "GNN") else "right"
        table.add_column(column, justify=side, no_wrap=column not in ("val", "test"))
    for row in result.rows:
        cells = result.cells(row)
        table.add_row(*(cells[i] for i in shown))
    title = printable(result.title if several else ", ".join([result.title, *gnns]))
    return Group(Text(title, style="italic"), table)
