"""Tables of new nodes and edges, read as the run's own tables were: the same columns, the same way to join texts.

A run on tables keeps their settings in graph/graph.json; for other graphs the columns are id, text, source and target,
or what graph.toml would guess. Labels and splits are not looked at.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from labeldeconv.data.findings import Findings
from labeldeconv.data.tables.arrays import id_sql, number_sql, read_numbers, read_texts, text_sql
from labeldeconv.data.tables.checks import check_numbers
from labeldeconv.data.tables.graph_toml import TablesConfig, edge_columns, node_columns
from labeldeconv.data.tables.rows import Table
from labeldeconv.data.tables.scan import TableFile, open_file
from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.prediction.numbering import NewNodes, Numbers, Places, numbered

ENDINGS = (".parquet", ".csv", ".tsv", ".jsonl")


def read_new_nodes(
    nodes: Path,
    edges: Path | None,
    known: Numbers,
    *,
    reads_features: bool = False,
    edge_dim: int = 0,
    features: Path | None = None,
) -> NewNodes:
    """Read the tables of new nodes and, unless None, of their edges; everything wrong is one error.

    Args:
        known: the nodes of the run's graph.
        reads_features: the run learned on given features: `features`, a .npy file (m, d), or the run's feature columns.
        edge_dim: width of the edge features that the GNN reads; 0 for none.
    """
    graph = known.graph
    config = _settings(graph)
    findings = Findings()
    with tempfile.TemporaryDirectory(prefix="labeldeconv-") as scratch, duckdb.connect() as con:
        node_file, edge_file = (
            None if path is None else _opened(con, path, config, Path(scratch), findings) for path in (nodes, edges)
        )
        by_columns = reads_features and features is None
        of_nodes = (
            None if node_file is None else _load_nodes(node_file, config, graph, reads_features, by_columns, findings)
        )
        of_edges = None if edge_file is None else _load_edges(edge_file, config, edge_dim, findings)
        if findings.errors or of_nodes is None or (edges is not None and of_edges is None):
            findings.stop("new nodes")
        ids = _cells(of_nodes, "id")
        pairs = [] if of_edges is None else list(zip(*(_cells(of_edges, s) for s in ("source", "target")), strict=True))
        names, numbers = numbered(known, ids, pairs, _places(of_nodes, of_edges))
        given = _read_features(features, of_nodes) if features is not None else None
        return NewNodes(
            names,
            None if reads_features else list(read_texts(of_nodes, "text")),
            numbers,
            _columns(of_nodes) if by_columns else given,
            None if of_edges is None else _columns(of_edges),
        )


def _settings(graph: AttributedGraph) -> TablesConfig:
    """The settings of the run's tables; those of a graph that was made of none guess."""
    if graph.columns is not None:
        return TablesConfig.model_validate(graph.columns)
    text = list(json.loads(graph.texts[0])) if graph.attributes == "record" and graph.num_nodes else None
    return TablesConfig(attributes=graph.attributes, text=text)


def _opened(con: Any, path: Path, config: TablesConfig, scratch: Path, findings: Findings) -> TableFile | None:
    if path.suffix not in ENDINGS:
        findings.error(f"{path}: a file that ends in {', '.join(ENDINGS)} expected")
    elif not path.is_file():
        findings.error(f"{path}: no such file")
    elif not path.stat().st_size:
        findings.error(f"{path.name}: the file is empty")
    else:
        return open_file(con, path, "\t" if path.suffix == ".tsv" else config.delimiter, scratch, findings)
    return None


def _load_nodes(
    file: TableFile,
    config: TablesConfig,
    graph: AttributedGraph,
    reads_features: bool,
    by_columns: bool,
    findings: Findings,
) -> Table | None:
    """Ids and texts, or ids and features, of the file in duckdb."""
    asked: dict[str, Any] = {"label": [], "split": None, "features": config.features if by_columns else None}
    if reads_features:  # which take the place of texts
        asked |= {"text": [], "join": " "}
    if by_columns and (not config.features or config.features_file):
        findings.error(
            f"{file.file}: the run learned on features of a file; give those of the new nodes as a .npy file"
        )
        return None
    columns = node_columns(config.model_copy(update=asked), file.file, file.columns, findings)
    if columns is None:
        return None
    sql = {"id": id_sql(file, columns.id)}
    if by_columns:
        sql |= {f"feature_{i}": number_sql(column) for i, column in enumerate(columns.features)}
    elif not reads_features:
        sql["text"] = text_sql(file, columns.text, config.join, graph.attributes == "record")
    table = file.load("nodes", sql, findings)
    if table is not None and not table.rows:
        findings.error(f"{table.file}: no rows")
    if table is not None and by_columns:
        check_numbers(table, {column: f"feature_{i}" for i, column in enumerate(columns.features)}, findings)
    return table


def _load_edges(file: TableFile, config: TablesConfig, edge_dim: int, findings: Findings) -> Table | None:
    """Ends and features of the edges of the file in duckdb."""
    if edge_dim == 0:
        config = config.model_copy(update={"edge_features": []})
    columns = edge_columns(config, file.file, file.columns, findings)
    if columns is None:
        return None
    if len(columns.features) != edge_dim:
        findings.error(f"{file.file}: {edge_dim} edge features expected, as in the run; its tables name none")
        return None
    names = {column: f"feature_{i}" for i, column in enumerate(columns.features)}
    sql = {"source": id_sql(file, columns.source), "target": id_sql(file, columns.target)}
    sql |= {name: number_sql(column) for column, name in names.items()}
    table = file.load("edges", sql, findings)
    if table is not None:
        check_numbers(table, names, findings)
    return table


def _places(nodes: Table, edges: Table | None) -> Places:
    if edges is None:
        return Places(nodes=nodes.file, node=nodes.place)
    return Places(nodes.file, edges.file, nodes.place, edges.place)


def _cells(table: Table, column: str) -> list[Any]:
    return [value for (value,) in table.con.execute(f"SELECT {column} FROM {table.name}").fetchall()]


def _columns(table: Table) -> np.ndarray | None:
    """The feature columns (rows, d) of a table; None without any."""
    described: Mapping[str, Any] = table.fetch(f"SELECT * FROM {table.name} LIMIT 0")
    return read_numbers(table, [name for name in described if name.startswith("feature_")])


def _read_features(path: Path, nodes: Table) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    if array.ndim != 2 or len(array) != nodes.rows or not np.isfinite(array).all():
        raise DataError(f"{path}: finite numbers of shape ({nodes.rows}, d) expected, got {array.dtype} {array.shape}")
    return array.astype(np.float32)
