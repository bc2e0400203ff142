"""Own tables: a folder with nodes and edges as Parquet, CSV or JSON lines becomes an AttributedGraph.

    labeldeconv fit FOLDER

FOLDER holds `nodes.parquet|csv|jsonl`, `edges.parquet|csv|jsonl` and, if the columns are not called id, text, label,
split, source and target, a `graph.toml` (graph_toml.py). Every file is streamed once into duckdb, which spills to disk
above 2 GB; ids are joined there, and only node numbers, labels and one text buffer come out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from labeldeconv.data.findings import Findings, Loaded, shown
from labeldeconv.data.origin import Files
from labeldeconv.data.tables.arrays import (
    EDGE_ROWS,
    id_sql,
    index_ids,
    number_sql,
    read_edges,
    read_features_file,
    read_ids,
    read_numbers,
    read_texts,
    text_sql,
    unknown_sql,
)
from labeldeconv.data.tables.checks import (
    check_edges,
    check_ids,
    check_labels,
    check_numbers,
    check_split,
    check_texts,
)
from labeldeconv.data.tables.graph_toml import (
    GRAPH_TOML,
    EdgeColumns,
    NodeColumns,
    TablesConfig,
    edge_columns,
    node_columns,
    read_config,
    settled,
)
from labeldeconv.data.tables.label_cells import LabelColumns
from labeldeconv.data.tables.rows import RowPlaces, Table
from labeldeconv.data.tables.scan import FORMATS, TableFile, find_file, open_file
from labeldeconv.data.tables.split_column import given_split, made_split
from labeldeconv.errors import DataError, NotEnoughMemory
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.stages.memory_limit import check_room, spill_limit

FEATURES_FILE = "features.npy"  # taken without being asked for
TABLE_FILES = [f"{kind}.{suffix}" for kind in ("nodes", "edges") for suffix in FORMATS]


def is_tables(folder: str | Path) -> bool:
    """Whether a folder holds a node or an edge table."""
    return any((Path(folder) / name).is_file() for name in TABLE_FILES)


@dataclass(frozen=True)
class Tables:
    """The tables of a folder as the source of a graph called `name`."""

    files: Files
    name: str
    seed: int
    version: int = 3  # labels that are numbers, not all whole, are targets of a regression

    def load(self) -> Loaded:
        """Read and check the tables."""
        return load_tables(self.files.folder, self.seed)


def tables_source(folder: Path, seed: int = 0) -> Tables:
    """The source of a folder of tables; its files are those that `load_tables` reads."""
    config = read_config(folder, Findings()) or TablesConfig()  # a wrong graph.toml is told when it is loaded
    features = [FEATURES_FILE] if config.features is None else [config.features_file] if config.features_file else []
    return Tables(Files.named(folder, [*TABLE_FILES, GRAPH_TOML, *features]), _name(config, folder), seed)


def load_tables(folder: str | Path, seed: int = 0, places: Mapping[str, RowPlaces] | None = None) -> Loaded:
    """Read and check the tables of a folder; `seed` makes the split where there is none.

    `places` of 'nodes' and 'edges' say what rows are called that were made of another file.

    Raises a `DataError` with everything that is wrong. Edges are kept as given: `Adjacency` drops self-loops and
    duplicates, which are among the warnings.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder")
    findings = Findings()
    with tempfile.TemporaryDirectory(prefix="labeldeconv-") as scratch:
        settings = {"memory_limit": spill_limit(), "temp_directory": scratch, "preserve_insertion_order": True}
        try:
            with duckdb.connect(config=settings) as con:
                tables = _read(con, folder, Path(scratch), places or {}, findings)
                graph = _convert(tables, folder, seed, findings)
        except duckdb.OutOfMemoryException as error:
            raise NotEnoughMemory(
                f"{folder}: reading tables needs more than the {settings['memory_limit']} that duckdb has here; "
                f"{str(error).splitlines()[0]}. Raise max_memory, or write the tables as Parquet"
            ) from error
    return Loaded(graph, findings.warnings)


@dataclass(frozen=True)
class _Tables:
    """Both tables in duckdb, and which column means what."""

    config: TablesConfig
    nodes: Table
    edges: Table
    node_columns: NodeColumns
    edge_columns: EdgeColumns
    labels: LabelColumns


def _read(con: Any, folder: Path, scratch: Path, places: Mapping[str, RowPlaces], findings: Findings) -> _Tables:
    """Read both files; stops if a file, a column or graph.toml is wrong, since little else could be said."""
    config = read_config(folder, findings)
    delimiter = config.delimiter if config else ","
    paths = {kind: find_file(folder, kind, findings) for kind in ("nodes", "edges")}
    node_file, edge_file = (
        path and open_file(con, path, delimiter, scratch, findings, places.get(kind)) for kind, path in paths.items()
    )
    of_nodes = config and node_file and node_columns(config, node_file.file, node_file.columns, findings)
    of_edges = config and edge_file and edge_columns(config, edge_file.file, edge_file.columns, findings)
    if not (config and node_file and edge_file and of_nodes and of_edges):
        findings.stop(str(folder))
    labels = LabelColumns.of(node_file, of_nodes.label, config.label_separator, config.task)
    nodes = _load_nodes(node_file, of_nodes, config, labels, findings)
    edges = _load_edges(edge_file, of_edges, findings)
    if nodes is not None and not nodes.rows:
        findings.error(f"{nodes.file}: no rows")
    if not (nodes and edges and nodes.rows):
        findings.stop(str(folder))
    return _Tables(config, nodes, edges, of_nodes, of_edges, labels)


def _load_nodes(
    file: TableFile, columns: NodeColumns, config: TablesConfig, labels: LabelColumns, findings: Findings
) -> Table | None:
    sql = {
        "id": id_sql(file, columns.id),
        "text": text_sql(file, columns.text, config.join, config.attributes == "record"),
    }
    sql |= labels.sql(file, config.label_separator)
    if columns.split is not None:
        sql["split"] = f"nullif(lower(trim({file.cell(columns.split)})), '')"
    sql |= {f"feature_{i}": number_sql(column) for i, column in enumerate(columns.features)}
    return file.load("nodes", sql, findings)


def _load_edges(file: TableFile, columns: EdgeColumns, findings: Findings) -> Table | None:
    sql = {"source": id_sql(file, columns.source), "target": id_sql(file, columns.target)}
    sql |= {f"feature_{i}": number_sql(column) for i, column in enumerate(columns.features)}
    return file.load("edges", sql, findings)


def _convert(tables: _Tables, folder: Path, seed: int, findings: Findings) -> AttributedGraph:
    """Check everything, stop on errors, and only then fetch the texts."""
    nodes, columns = tables.nodes, tables.node_columns
    check_room("reading tables", _array_bytes(tables), "read part of the graph, or convert it on another machine")
    integer = index_ids(nodes)
    check_ids(nodes, columns.id, findings)
    check_texts(nodes, columns.text, findings)
    labels, class_names = tables.labels.read(nodes, findings)
    split = _split(tables, labels, class_names, seed, findings)
    features = _features(tables, folder, findings)
    edges = _edges(tables, integer, findings)
    edge_features = _numbers(tables.edges, tables.edge_columns.features, findings)
    if findings.errors:
        findings.stop(str(folder))
    nodes.con.execute("DROP TABLE edges")  # make room for the texts
    return AttributedGraph(
        texts=read_texts(nodes, "text"),
        edges=edges,
        labels=labels,
        split=split,
        class_names=class_names,
        features=features,
        edge_features=edge_features,
        ids=read_ids(nodes, integer),
        attributes=tables.config.attributes,
        name=_name(tables.config, folder),
        columns=settled(tables.config, tables.node_columns, tables.edge_columns),
    )


def _array_bytes(tables: _Tables) -> float:
    """Memory of the graph's arrays while they are fetched, beside duckdb's: texts, edges, labels and features."""
    nodes, edges = tables.nodes, tables.edges
    (texts,) = nodes.con.execute(f"SELECT coalesce(sum(strlen(text)), 0) FROM {nodes.name}").fetchone()
    joined = 32 * min(edges.rows, EDGE_ROWS)  # rows of a join, twice
    ends = (8 + 4 * len(tables.edge_columns.features)) * edges.rows
    each = 64 + 4 * len(tables.node_columns.features)  # offsets, ids, labels and split of a node, and copies of them
    return 1.25 * float(texts) + joined + ends + each * nodes.rows


def _name(config: TablesConfig, folder: Path) -> str:
    """The name of graph.toml, or of the folder as it was given: not of what a link leads to."""
    return config.name or folder.absolute().name or "graph"


def _split(tables: _Tables, labels: np.ndarray, class_names: list[str], seed: int, findings: Findings) -> Split:
    nodes, column = tables.nodes, tables.node_columns.split
    usable = check_labels(labels, class_names, f"{nodes.file}, column {shown(tables.labels.names)}", findings)
    if column is None:
        split, where = made_split(nodes, labels, seed, findings), f"{nodes.file}, the split made"
    else:
        split = given_split(nodes, column, tables.config.split_values, labels, findings)
        where = f"{nodes.file}, column '{column}'"
    if usable:
        check_split(split, labels, class_names, where, findings)
    return split


def _features(tables: _Tables, folder: Path, findings: Findings) -> np.ndarray | None:
    """Given features (n, d): the named columns, the named file, or features.npy if it is there."""
    config, nodes = tables.config, tables.nodes
    if config.features is not None and config.features_file is None:
        return _numbers(nodes, tables.node_columns.features, findings)
    if config.features is None and not (folder / FEATURES_FILE).is_file():
        return None
    if config.features is None:
        findings.warn(f"{FEATURES_FILE}: taken for the given features, since it is there")
    return read_features_file(folder / (config.features_file or FEATURES_FILE), nodes, findings)


def _numbers(table: Table, columns: list[str], findings: Findings) -> np.ndarray | None:
    names = {column: f"feature_{i}" for i, column in enumerate(columns)}
    check_numbers(table, names, findings)
    return read_numbers(table, list(names.values()))


def _edges(tables: _Tables, integer: bool, findings: Findings) -> np.ndarray:
    """Edges (2, e), with missing and unknown ends told."""
    table, columns = tables.edges, tables.edge_columns
    edges = read_edges(table, integer)
    for ends, side, column in zip(edges, ("source", "target"), (columns.source, columns.target), strict=True):
        if (ends >= 0).all():
            continue
        where = f"{table.file}, column '{column}'"
        count, first = table.find(f"{side} IS NULL")
        if count:
            findings.error(f"{where}: {count} ids are missing: {first}")
        count, first = table.find(unknown_sql(table, side, integer), side)
        if count:
            findings.error(
                f"{where}: {count} of {table.rows} edges name a node unknown to {tables.nodes.file}: {first}"
            )
    check_edges(edges, tables.nodes, table, findings)
    return edges
