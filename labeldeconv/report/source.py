"""What a report is made from: the run directory of one fit, or a comparison with the run directories of its cells."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from labeldeconv.comparison import REFERENCE, cell_name
from labeldeconv.errors import DataError
from labeldeconv.graph import AttributedGraph
from labeldeconv.task import Task

# Fixed places in the palette, so that a method has one colour in all reports.
COLORS = ("ld", "wo-ld", "fne", "pne", "glem", "giant", "joint-sage", "joint-gas", "given")


@dataclass(frozen=True)
class Run:
    """One run directory: its result, and its arrays and logs where it has them."""

    path: Path
    result: dict[str, Any]

    @classmethod
    def open(cls, path: Path) -> Run:
        """A finished run; `result.json` is written last."""
        return cls(path, _read_json(path / "result.json"))

    @property
    def settings(self) -> dict[str, Any]:
        """The resolved settings."""
        return self.result["settings"]

    def array(self, name: str) -> np.ndarray | None:
        """An array of the run, memory-mapped; None where the method leaves none."""
        path = self.path / f"{name}.npy"
        return np.load(path, mmap_mode="r") if path.is_file() else None

    def log(self, name: str) -> list[dict[str, Any]]:
        """The lines of `NAME.jsonl`, none where there is no such file."""
        path = self.path / f"{name}.jsonl"
        if not path.is_file():
            return []
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]

    def label_rows(self, name: str, graph: AttributedGraph) -> tuple[np.ndarray, np.ndarray] | None:
        """An array over nodes with the node of each of its rows: all, or the train nodes in the inductive setting."""
        found = self.array(name)
        if found is None:
            return None
        for nodes in (np.arange(graph.num_nodes), graph.split.train):
            if len(nodes) == len(found):
                return found, nodes
        return None


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
    runs: list[Run] = field(default_factory=list)

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
        """Place in the palette; methods of the user's own share the last one."""
        return COLORS.index(self.method) if self.method in COLORS else len(COLORS)


@dataclass(frozen=True)
class Source:
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
        return Task.of(self.graph)

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
    def runs(self) -> list[Run]:
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
        return max(found, key=lambda e: -math.inf if math.isnan(e.val[0]) else e.val[0])


def open_source(path: str | Path) -> Source:
    """Open a run directory (`result.json`) or a comparison (`compare.json`)."""
    folder = Path(path)
    if (folder / "compare.json").is_file():
        return _comparison(folder)
    if (folder / "result.json").is_file():
        return _single(folder)
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; a run directory of `labeldeconv fit` or `compare` expected")
    raise DataError(f"{folder}: neither result.json nor compare.json; a finished run directory expected")


def short(name: str) -> str:
    """The last part of a dotted setting, but 'encoder' for 'encoder.name'."""
    first, _, last = name.rpartition(".")
    return first if last == "name" else last


def _comparison(folder: Path) -> Source:
    table = _read_json(folder / "compare.json")
    if not table["rows"]:
        raise DataError(f"{folder / 'compare.json'}: no rows; a comparison with a finished cell expected")
    entries = []
    for row in table["rows"]:
        paths = [folder / cell_name(row["method"], row["gnn"], row["varied"], s) for s in range(row["seeds"])]
        entries.append(
            Entry(
                row["method"],
                row["gnn"],
                row["varied"],
                (row["val"]["mean"], row["val"]["std"]),
                (row["test"]["mean"], row["test"]["std"]),
                row["tests"],
                row["seconds"],
                row["peak_mib"],
                row["encoder_passes"],
                row["stages"],
                row["p_value"],
                [Run.open(p) for p in paths if (p / "result.json").is_file()],
            )
        )
    graph = next((AttributedGraph.load(r.path / "graph") for e in entries for r in e.runs if _has_graph(r)), None)
    return Source(folder, table["data"], table["metric"], True, entries, graph)


def _single(folder: Path) -> Source:
    run = Run.open(folder)
    result = run.result
    graph = AttributedGraph.load(folder / "graph") if _has_graph(run) else None
    entry = Entry(
        run.settings["method"],
        run.settings["gnn"]["name"],
        {},
        (_number(result["val"]), 0.0),
        (_number(result["test"]), 0.0),
        [_number(result["test"])],
        sum(result["seconds"].values()),
        max((peak for peak in result["peak_mib"].values() if peak is not None), default=None),
        result["encoder_nodes"] / graph.num_nodes if graph and graph.num_nodes else math.nan,
        result["seconds"],
        None,
        [run],
    )
    name = graph.name if graph else run.settings["data"]
    return Source(folder, name, result["metric"], False, [entry], graph)


def _has_graph(run: Run) -> bool:
    return (run.path / "graph" / "graph.json").is_file()


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: not valid JSON: {error}") from None
