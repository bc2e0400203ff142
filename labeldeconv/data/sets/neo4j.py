"""Neo4j's CSV export (the format of neo4j-admin import, also of APOC's bulkImport): nodes and relationships.

    labeldeconv inspect FOLDER             # graph.toml in it can name the columns

    paperId:ID(Paper),text,category,:LABEL           a file of nodes; a type behind a colon is left out of the name
    :START_ID(Paper),:END_ID(Paper),:TYPE            a file of relationships

All nodes and relationships become one graph. Where no property is a label, Neo4j's :LABEL is the class.
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
from labeldeconv.data.sets.node_rows import ID, LABELS, MANY, Edge, Node, csv_rows, header_of, load_rows, with_toml
from labeldeconv.data.tables.graph_toml import GRAPH_TOML
from labeldeconv.errors import DataError

COLUMN = re.compile(r"(?P<name>[^:]*)(?::(?P<kind>[^({]*)(?:\((?P<group>[^)]*)\))?.*)?", re.DOTALL)
ARRAY = ";"  # between the values of a type such as string[]


@dataclass(frozen=True)
class Neo4j:
    """The CSV files of an export, with a graph.toml perhaps, as the source of a graph."""

    files: Files
    seed: int
    version: int = 1

    def load(self) -> Loaded:
        """Read nodes and relationships."""
        return load_neo4j(self.files, self.seed)


@dataclass(frozen=True)
class _Column:
    """One cell of a header: 'paperId:ID(Paper)' is name, kind and group."""

    header: str
    name: str
    kind: str
    group: str

    @classmethod
    def of(cls, header: str) -> _Column:
        found = COLUMN.match(header.strip())
        assert found is not None  # every part is optional
        return cls(header, found["name"], (found["kind"] or "").strip(), found["group"] or "")


def neo4j_files(place: Path) -> list[Path]:
    """The CSV files of a folder whose header has :ID, or :START_ID and :END_ID."""
    found = sorted(place.iterdir())[:MANY] if place.is_dir() else []
    named = [path for path in found if path.is_file() and path.name.removesuffix(".gz").endswith(".csv")]
    return [path for path in named if _kinds(path) & {"ID", "START_ID"}]


@dataset(
    "neo4j",
    "Neo4j's CSV export: files with :ID and :START_ID columns",
    recognise=lambda place: any("ID" in _kinds(path) for path in neo4j_files(place)),
)
def neo4j(request: Request) -> Neo4j:
    """The graph of the folder."""
    files = neo4j_files(request.folder) if request.folder else []
    if request.folder is None or not files:
        raise DataError(f"data '{request.written}': a folder of CSV files with :ID and :START_ID columns expected")
    return Neo4j(with_toml(request.folder, files), request.seed)


def load_neo4j(files: Files, seed: int = 0) -> Loaded:
    """The graph of the files."""
    tables = {
        path: [_Column.of(cell) for cell in header_of(path)] for name, path in files.items() if name != GRAPH_TOML
    }
    groups = {column.group for columns in tables.values() for column in columns if column.kind == "ID"}
    several = len(groups) > 1
    nodes = [node for path, columns in tables.items() if _has(columns, "ID") for node in _nodes(path, columns, several)]
    edges = (
        edge for path, columns in tables.items() if _has(columns, "START_ID") for edge in _edges(path, columns, several)
    )
    properties = {name.lower() for _, row in nodes for name in row}
    if not properties & set(LABELS):
        nodes = [(place, {**row, "label": row[":LABEL"]} if ":LABEL" in row else row) for place, row in nodes]
    kept = [(place, {name: value for name, value in row.items() if name != ":LABEL"}) for place, row in nodes]
    return load_rows(files.folder, files, kept, edges, seed)


def _nodes(path: Path, columns: list[_Column], several: bool) -> Iterator[Node]:
    for line, row in csv_rows(path):
        values: dict[str, Any] = {}
        for column in columns:
            cell = row[column.header]
            if column.kind == "ID":
                values[ID] = _key(cell, column, several, path, line)
            elif column.kind == "LABEL":
                values[":LABEL"] = cell
            elif column.kind != "IGNORE" and column.name:
                values[column.name] = cell.split(ARRAY) if column.kind.endswith("[]") and cell else cell
        yield f"{path.name}, line {line}", values


def _edges(path: Path, columns: list[_Column], several: bool) -> Iterator[Edge]:
    ends = {kind: next((c for c in columns if c.kind == kind), None) for kind in ("START_ID", "END_ID")}
    start, end = ends["START_ID"], ends["END_ID"]
    if start is None or end is None:
        raise DataError(f"{path}, line 1: both :START_ID and :END_ID expected")
    for line, row in csv_rows(path):
        source, target = (_key(row[column.header], column, several, path, line) for column in (start, end))
        yield f"{path.name}, line {line}", source, target


def _key(cell: str, column: _Column, several: bool, path: Path, line: int) -> str:
    """An id, with its group before it where there are several: ids need to be unique in their group only."""
    if not cell.strip():
        raise DataError(f"{path}, line {line}, column '{column.header}': an id expected, got nothing")
    return f"{column.group}:{cell}" if several else cell


def _has(columns: list[_Column], kind: str) -> bool:
    return any(column.kind == kind for column in columns)


def _kinds(path: Path) -> set[str]:
    return {_Column.of(cell).kind for cell in header_of(path)}
