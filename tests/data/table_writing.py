"""Small node and edge tables on disk, in each format, for the tests of tables."""

import csv
import json

import duckdb
import numpy as np
import pytest

from labeldeconv.data.findings import Loaded
from labeldeconv.data.tables.folder import load_tables
from labeldeconv.errors import DataError

FORMATS = ("parquet", "csv", "jsonl")
PARTS = ("train", "val", "test")
NODES = [{"id": 10 + i, "text": f"text {i}", "label": "ab"[i % 2], "split": PARTS[i // 2 % 3]} for i in range(6)]
EDGES = [{"source": 10 + i, "target": 10 + (i + 1) % 6} for i in range(6)]


def write(folder, nodes=NODES, edges=EDGES, kind="csv", toml=None):
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("nodes", nodes), ("edges", edges)):
        path = folder / f"{name}.{kind}"
        if kind == "csv":
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
        else:
            lines = path.with_suffix(".jsonl")
            lines.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            if kind == "parquet":
                duckdb.sql(f"COPY (FROM read_json('{lines}', format='newline_delimited')) TO '{path}'")
                lines.unlink()
    if toml is not None:
        (folder / "graph.toml").write_text(toml, encoding="utf-8")
    return folder


def changed(rows, row, **cells):
    return [{**r, **cells} if i == row else r for i, r in enumerate(rows)]


def same(a: Loaded, b: Loaded) -> None:
    for x, y in zip(
        (a.graph.labels, a.graph.edges, a.graph.split.roles),
        (b.graph.labels, b.graph.edges, b.graph.split.roles),
        strict=True,
    ):
        np.testing.assert_array_equal(x, y)
    assert list(a.graph.texts) == list(b.graph.texts)
    assert a.graph.class_names == b.graph.class_names
    assert list(a.graph.ids) == list(b.graph.ids)


def place(kind, row):
    """Where a message says that a row, counted from 0, is."""
    return f"row {row + 1}" if kind == "parquet" else f"line {row + (2 if kind == 'csv' else 1)}"


def problems(folder) -> list[str]:
    with pytest.raises(DataError) as caught:
        load_tables(folder)
    return caught.value.problems
