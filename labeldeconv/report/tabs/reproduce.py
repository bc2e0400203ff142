"""The settings of a report and the commands that reproduce it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from typing import Any

from labeldeconv.data.catalog import DATASETS
from labeldeconv.gnns.base import GNNS
from labeldeconv.report.blocks import Block, Cell, Command, PageTable, Section
from labeldeconv.report.source import ReportSource
from labeldeconv.runs.asked import Parts, resolve
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.settings.reading import load_config

MOST_RUNS = 12
NAMED = ("data", "method", "seed", "encoder.name", "gnn.name")  # settings with an option of their own


def settings_section(source: ReportSource) -> Section | None:
    """Commands to copy, settings that differ from the defaults, and all of them; None without a run directory."""
    if not source.runs:
        return None
    blocks: list[Block] = []
    if source.compared:
        note = "Finished stages come from the cache; the numbers are the same on the same kind of machine."
        blocks.append(Command("Reproduce the comparison", compare_command(source), note))
    runs = [entry.runs[0] for entry in source.entries if entry.runs]
    lines = "\n".join(fit_command(run.settings) for run in runs[:MOST_RUNS])
    title = "Reproduce a single run" if source.compared else "Reproduce the run"
    blocks.append(Command(title, lines, _note(runs)))
    reference = source.reference.runs[0] if source.reference.runs else runs[0]
    changed = differences(reference.settings)
    if changed:
        rows = [[Cell(name), Cell(_value(value)), Cell(_value(default))] for name, value, default in changed]
        what = f"{reference.method}, {reference.gnn}"
        blocks.append(
            PageTable(
                f"Settings that differ from the defaults ({what})",
                ["setting", "value", "default"],
                rows,
                [False, False, False],
            )
        )
    blocks.append(Command(f"All settings ({reference.name}/config.toml)", reference.config_text(), folded=True))
    return Section("settings", "Settings", blocks)


def _note(runs: Sequence[RunDirectory]) -> str:
    told = ["One line per entry, its first seed."] if len(runs) > 1 else []
    told += [f"The first {MOST_RUNS} of {len(runs)}."] if len(runs) > MOST_RUNS else []
    foreign = sorted({run.gnn for run in runs if run.gnn not in GNNS})
    if foreign:
        told.append(f"Where {', '.join(foreign)} suggests settings of its own, they are not known here.")
    return " ".join(told)


def fit_command(settings: dict[str, Any]) -> str:
    """A `labeldeconv fit` with the given settings, resolved, that resolves to the same ones."""
    words = ["labeldeconv", "fit", str(settings["data"]), "--method", settings["method"]]
    words += ["--encoder", settings["encoder"]["name"], "--gnn", settings["gnn"]["name"]]
    words += ["--seed", str(settings["seed"]), *_sets(settings, NAMED)]
    return shlex.join(words)


def compare_command(source: ReportSource) -> str:
    """The `compare` or `sweep` that a comparison came from."""
    settings = next(entry.runs[0].settings for entry in source.entries if entry.runs)
    varied = {name: list(dict.fromkeys(_value(e.varied[name]) for e in source.entries)) for name in source.varied}
    words = ["labeldeconv", "sweep" if varied else "compare", str(settings["data"])]
    for name, values in varied.items():
        words += ["--vary", f"{name}={','.join(values)}"]
    words += ["--methods", ",".join(dict.fromkeys(e.method for e in source.entries))]
    gnns = list(dict.fromkeys(e.gnn.partition(" (")[0] for e in source.entries))  # 'auto (sage)' was asked as 'auto'
    words += ["--gnns", ",".join(gnns), "--seeds", str(source.seeds)]
    if "encoder.name" not in varied:
        words += ["--encoder", settings["encoder"]["name"]]
    return shlex.join([*words, *_sets(settings, (*NAMED, *varied))])


def differences(settings: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """(name, value, default) of the settings that are not what this data set and this GNN would get by default."""
    value, default = _flat(settings), _defaults(settings["data"], settings["gnn"]["name"])
    return [(name, value[name], default.get(name)) for name in value if value[name] != default.get(name)]


def _defaults(data: str, gnn: str) -> dict[str, Any]:
    """Dotted names to what `fit` takes for a data set and a GNN where nothing else is said.

    A data set or a GNN that is not known here suggests nothing: no module that a run names is imported.
    """
    known = re.split("[#:@]", data)[0] in DATASETS
    stand_in = None if gnn in GNNS else object()
    config = resolve(load_config(None, {"data": data if known else ".", "gnn.name": gnn}), Parts(gnn=stand_in))
    return {**_flat(config.model_dump()), "data": data}


def _sets(settings: dict[str, Any], left: tuple[str, ...]) -> list[str]:
    """--set options for what differs from the defaults."""
    out = []
    for name, value, _ in differences(settings):
        if name not in left:
            out += ["--set", f"{name}={_value(value)}"]
    return out


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted names to values."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            out |= _flat(value, f"{prefix}{name}.")
        else:
            out[f"{prefix}{name}"] = value
    return out


def _value(value: Any) -> str:
    """A value as `--set` reads it: TOML, a bare string, or none."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, default=str)
