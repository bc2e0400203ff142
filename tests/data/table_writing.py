"""Small node and edge tables on disk, in each format, for the tests of tables."""

import csv
import json

import duckdb
import pytest

from labeldeconv.data.tables import load_tables
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


def problems(folder) -> list[str]:
    with pytest.raises(DataError) as caught:
        load_tables(folder)
    return caught.value.problems
