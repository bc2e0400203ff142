"""What a report is made from: the run directory of one fit, or a comparison with the run directories of its cells."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.metrics import LOW_TITLES
from labeldeconv.graph.task import Task
from labeldeconv.methods.base import METHODS, Method
from labeldeconv.report.blocks import number
from labeldeconv.runs.compare import REFERENCE
from labeldeconv.runs.directory import COMPARISON, RESULT, ComparisonDirectory, RunDirectory, is_run


@dataclass(frozen=True)
class Entry:
    """A method with a GNN and one choice of the varied settings, over its seeds; scores are fractions."""

    method: str
    gnn: str
    varied: dict[str, Any]
    val: tuple[float, float]
    test: tuple[float, float]
    tests: list[float]
    seconds: float
    peak_mib: float | None
    passes: float
    stages: dict[str, float]
    p_value: float | None = None
    runs: list[RunDirectory] = field(default_factory=list)

    @property
    def group(self) -> str:
        """What it shares with the methods it is compared to: the GNN and the varied settings."""
        return ", ".join([self.gnn, *(f"{short(k)} {v}" for k, v in self.varied.items())])

    @property
    def label(self) -> str:
        """Its name in a chart."""
        return f"{self.method}, {self.group}"

    @property
    def color(self) -> int:
        """Its method's place in the palette; methods that are not known here share the last one."""
        known = METHODS.get(self.method)
        return known.color if known else Method.color


@dataclass(frozen=True)
class ReportSource:
    """Everything a report shows, opened from `folder`; `graph` is None where no run directory is left."""

    folder: Path
    data: str
    metric: str
    compared: bool
    entries: list[Entry]
    graph: AttributedGraph | None

    @cached_property
    def task(self) -> Task:
        """The task of the graph."""
        assert self.graph is not None
        first = next((run for entry in self.entries for run in entry.runs), None)
        return Task.of(self.graph) if first is None else first.task

    @property
    def higher_is_better(self) -> bool:
        """Direction of the scores."""
        return self.metric not in LOW_TITLES

    def rank(self, score: float) -> float:
        """A number that is higher the better a score is; one that is not a number is the worst."""
        return -math.inf if math.isnan(score) else score if self.higher_is_better else -score

    @cached_property
    def groups(self) -> dict[str, list[Entry]]:
        """Entries by GNN and varied settings, in their order."""
        found: dict[str, list[Entry]] = {}
        for entry in self.entries:
            found.setdefault(entry.group, []).append(entry)
        return found

    @cached_property
    def varied(self) -> list[str]:
        """Dotted names of the varied settings."""
        return list(self.entries[0].varied)

    @property
    def runs(self) -> list[RunDirectory]:
        """All run directories that are left."""
        return [run for entry in self.entries for run in entry.runs]

    @property
    def seeds(self) -> int:
        """The largest number of seeds of an entry."""
        return max(len(entry.tests) for entry in self.entries)

    def name(self, entry: Entry) -> str:
        """The shortest name of an entry that is its own: the GNN only where there are several."""
        return entry.method if len(self.groups) == 1 else entry.label

    @cached_property
    def reference(self) -> Entry:
        """The entry the headline and the explorer speak of: LD where it is best on validation nodes, or the first."""
        found = [e for e in self.entries if e.method == REFERENCE]
        if not found:
            return self.entries[0]
        return max(found, key=lambda e: self.rank(e.val[0]))


def open_source(path: str | Path) -> ReportSource:
    """Open a run directory (`result.json`) or a comparison (`compare.json`); one that is not complete is refused."""
    folder = Path(path)
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; a run directory of `labeldeconv fit` or `compare` expected")
    if not is_run(folder):
        raise DataError(f"{folder}: neither {RESULT} nor {COMPARISON}; a finished run directory expected")
    if (folder / COMPARISON).is_file():
        return _comparison(ComparisonDirectory.open(folder))
    return _single(RunDirectory.open(folder))


def short(name: str) -> str:
    """The last part of a dotted setting, but 'encoder' for 'encoder.name'."""
    first, _, last = name.rpartition(".")
    return first if last == "name" else last


def _comparison(opened: ComparisonDirectory) -> ReportSource:
    entries = [_entry(row, opened.runs_of(row)) for row in opened.table["rows"]]
    graph = next((run.graph for entry in entries for run in entry.runs), None)
    return ReportSource(opened.path, opened.table["data"], opened.table["metric"], True, entries, graph)


def _entry(row: Mapping[str, Any], runs: list[RunDirectory]) -> Entry:
    """The entry of a row of a comparison's table."""
    return Entry(
        method=row["method"],
        gnn=row["gnn"],
        varied=row["varied"],
        val=(row["val"]["mean"], row["val"]["std"]),
        test=(row["test"]["mean"], row["test"]["std"]),
        tests=row["tests"],
        seconds=row["seconds"],
        peak_mib=row["peak_mib"],
        passes=row["encoder_passes"],
        stages=row["stages"],
        p_value=row["p_value"],
        runs=runs,
    )


def _single(run: RunDirectory) -> ReportSource:
    result, graph = run.result, run.graph
    entry = Entry(
        method=run.method,
        gnn=run.gnn,
        varied={},
        val=(number(result["val"]), 0.0),
        test=(number(result["test"]), 0.0),
        tests=[number(result["test"])],
        seconds=sum(result["seconds"].values()),
        peak_mib=max((peak for peak in result["peak_mib"].values() if peak is not None), default=None),
        passes=result["encoder_nodes"] / graph.num_nodes if graph.num_nodes else math.nan,
        stages=result["seconds"],
        runs=[run],
    )
    return ReportSource(run.path, graph.name, result["metric"], False, [entry], graph)
