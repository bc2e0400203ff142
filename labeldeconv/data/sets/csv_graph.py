"""Graphs of one CSV file with a row per node and its neighbours in a cell, as CS-TAG and the texts of WebKB have them.

    labeldeconv inspect History/History.csv        # or the folder

    category,text,label,node_id,neighbour          History of CS-TAG: "[12, 40]"
    url,raw_text,category,node_id,label,len,neighbor_ids      Cornell of WebKB

Where `category` names each value of `label`, classes are called by it. The .pt beside it is DGL's and not needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labeldeconv.data.catalog import Request, dataset
from labeldeconv.data.findings import Loaded
from labeldeconv.data.origin import Files
from labeldeconv.data.sets.node_rows import ID, Edge, csv_rows, header_of, load_rows, only_file, with_toml
from labeldeconv.errors import DataError

IDS = ("node_id", "id", "node")
NEIGHBOURS = ("neighbour", "neighbor", "neighbours", "neighbors", "neighbor_ids", "neighbour_ids")
LIST = re.compile(r"\s*\[([^\[\]]*)\]\s*")


@dataclass(frozen=True)
class CsvGraph:
    """A CSV file, with a graph.toml perhaps, as the source of a graph."""

    files: Files
    file: str
    seed: int
    version: int = 1

    def load(self) -> Loaded:
        """Read nodes, and edges out of their neighbours."""
        return load_csv_graph(self.files[self.file], self.files, self.seed)


def csv_graph_file(place: Path) -> Path | None:
    """A CSV file with a column of neighbours, or the only one of a folder."""
    return only_file(place, [".csv"], lambda path: _column(header_of(path), NEIGHBOURS) is not None)


@dataset(
    "csv-graph",
    "one CSV file with a column of neighbours, as CS-TAG has",
    recognise=lambda place: csv_graph_file(place) is not None,
)
def csv_graph(request: Request) -> CsvGraph:
    """The graph of the file, or of the only such file of the folder."""
    path = csv_graph_file(request.folder) if request.folder else None
    if path is None:
        expected = f"the path of one CSV file with a column {' or '.join(NEIGHBOURS[:2])}, or its folder, expected"
        raise DataError(f"data '{request.written}': {expected}")
    return CsvGraph(with_toml(path.parent, [path]), path.name, request.seed)


def load_csv_graph(path: Path, files: Files, seed: int = 0) -> Loaded:
    """The graph of the file."""
    header = header_of(path)
    node_id, neighbours = _column(header, IDS), _column(header, NEIGHBOURS)
    if node_id is None or neighbours is None:
        raise DataError(f"{path}, line 1: columns node_id and neighbour expected, got {', '.join(header)}")
    rows = [(f"line {line}", row) for line, row in csv_rows(path)]
    ids = {row[node_id] for _, row in rows}
    nodes = (
        (place, {ID: row[node_id], **{k: v for k, v in row.items() if k not in (node_id, neighbours)}})
        for place, row in rows
    )

    def edges() -> Iterator[Edge]:
        for place, row in rows:
            for end in _ids(row[neighbours], path, place, neighbours):
                if end not in ids:
                    where = f"{path}, {place}, column '{neighbours}'"
                    raise DataError(f"{where}: node '{end[:40]}' has no row; an id of column '{node_id}' expected")
                yield f"{place}, column '{neighbours}'", row[node_id], end

    named = {"label": "category"} if _named_by_category([row for _, row in rows]) else {}
    loaded = load_rows(path, files, nodes, edges(), seed, **named)
    if "year" in header and loaded.graph.columns and loaded.graph.columns.get("split") is None:
        told = "has a column 'year', by which its authors split it; here the split is random: add a column 'split'"
        loaded.warnings.append(f"{path.name}: {told} (train, val, test) to split by year")
    return loaded


def _column(header: list[str], names: tuple[str, ...]) -> str | None:
    by_lower = {name.strip().lower(): name for name in header}
    return next((by_lower[name] for name in names if name in by_lower), None)


def _ids(cell: str, path: Path, place: str, column: str) -> list[str]:
    """The ids of a cell such as "[1, 2]" or "['a', 'b']"; none where it is empty."""
    if not cell.strip():
        return []
    found = LIST.fullmatch(cell)
    if not found:
        told = f"a list such as [1, 2] expected, got '{cell[:40]}'"
        raise DataError(f"{path}, {place}, column '{column}': {told}")
    return [end.strip().strip("'\"") for end in re.split(r"[,\s]+", found[1].strip()) if end.strip()]


def _named_by_category(rows: list[dict[str, Any]]) -> bool:
    """Whether `category` and `label` are the same classes under two names."""
    if not rows or not {"category", "label"} <= rows[0].keys():
        return False
    pairs = {(row["category"], row["label"]) for row in rows}
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs}) and all(a and b for a, b in pairs)
