"""Graphs that are already in Python: rows, NetworkX graphs, Hugging Face data sets and PyG data sets with texts.

All but PyG go through the tables of data/tables, so that ids, labels, splits and texts are checked and told alike:

    graph = from_networkx(G, text="abstract", label="venue").graph

Several attribute columns of a node become one record, a JSON object that travels where a text would.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from labeldeconv.data.findings import Loaded
from labeldeconv.data.tables.folder import load_tables
from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.texts import Texts

NODE = "node"  # the column that holds a NetworkX node


def from_rows(
    nodes: Iterable[Mapping[str, Any]], edges: Iterable[Mapping[str, Any]], *, seed: int = 0, **columns: Any
) -> Loaded:
    """Nodes and edges as dictionaries; `columns` are the settings of graph.toml, such as text=["title", "abstract"].

    Example:
        from_rows([{"id": 1, "text": "a", "label": "x"}, ...], [{"source": 1, "target": 2}, ...])
    """
    columns = {"name": "rows", **columns}
    with tempfile.TemporaryDirectory(prefix="labeldeconv-") as folder:
        _write_rows(Path(folder) / "nodes.jsonl", nodes)
        _write_rows(Path(folder) / "edges.jsonl", edges)
        return _load(Path(folder), seed, columns)


def from_networkx(graph: Any, *, seed: int = 0, name: str | None = None, **columns: Any) -> Loaded:
    """A NetworkX graph whose node attributes hold text, label and perhaps split; ids are the nodes as text.

    A multigraph's parallel edges count once; an undirected edge is given once, and `Adjacency` makes it work both ways.
    """
    nodes = ({**data, NODE: str(node)} for node, data in graph.nodes(data=True))
    edges = ({**data, "source": str(a), "target": str(b)} for a, b, data in graph.edges(data=True))
    given = {"id": NODE, "name": name or str(graph.name or "networkx"), **columns}
    return from_rows(nodes, edges, seed=seed, **given)


def from_datasets(nodes: Any, edges: Any, *, seed: int = 0, name: str = "datasets", **columns: Any) -> Loaded:
    """Two Hugging Face `datasets.Dataset`, nodes and edges, streamed through Parquet."""
    with tempfile.TemporaryDirectory(prefix="labeldeconv-") as folder:
        for kind, table in (("nodes", nodes), ("edges", edges)):
            if not hasattr(table, "to_parquet"):
                raise DataError(f"from_datasets: {kind}: a datasets.Dataset expected, got {type(table).__name__}")
            table.to_parquet(str(Path(folder) / f"{kind}.parquet"))
        return _load(Path(folder), seed, {"name": name, **columns})


def from_tag_dataset(dataset: Any, class_names: list[str] | None = None, seed: int = 0) -> AttributedGraph:
    """A PyG data set with texts beside its one graph, such as `TAGDataset`: `dataset[0]`, `.text` and `.split_idx`.

    Without split_idx the masks of the graph count, and without those a seeded stratified split is made.
    """
    data, texts = dataset[0], getattr(dataset, "text", None)
    texts = getattr(data, "text", None) if texts is None else texts
    if texts is None:
        raise DataError(f"{type(dataset).__name__}: no texts; an attribute `text` with one string per node expected")
    graph = AttributedGraph.from_pyg(data, texts, class_names, str(getattr(dataset, "name", "graph")), seed)
    parts: Mapping[str, Any] | None = getattr(dataset, "split_idx", None)
    if parts is None:
        return graph
    ids = [np.asarray(parts[part]) for part in ("train", "valid" if "valid" in parts else "val", "test")]
    return graph.with_split(Split.from_ids(graph.num_nodes, *ids))


def record_texts(columns: Mapping[str, Sequence[Any]]) -> Texts:
    """Columns of n values each (texts, numbers, categories, image paths; None where missing) as n records.

    Example:
        texts = record_texts({"title": ["a", "b"], "price": [1.5, None], "photo": ["a.png", "b.png"]})
        graph = AttributedGraph(texts, edges, labels, split, names, attributes="record")
    """
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) != 1:
        raise DataError(f"records: columns of equal length expected, got {lengths or 'none'}")
    cells = {name: [None if value is None else str(value) for value in values] for name, values in columns.items()}
    rows = (dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True))
    return Texts.from_strings(json.dumps(row, ensure_ascii=False) for row in rows)


def _write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    """NumPy numbers and arrays as JSON can hold them; everything else as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _load(folder: Path, seed: int, columns: Mapping[str, Any]) -> Loaded:
    settings = {name: value for name, value in columns.items() if value is not None}
    (folder / "graph.toml").write_text(tomli_w.dumps(settings), encoding="utf-8")
    return load_tables(folder, seed)
