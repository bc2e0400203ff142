"""Labels of a node table: three forms of several labels are one, and NaN is no label."""

import duckdb
import pytest

from labeldeconv.data.tables.folder import load_tables
from tests.data.table_writing import FORMATS, NODES, changed, problems, write


@pytest.mark.parametrize("kind", FORMATS)
def test_multilabel_forms_are_equal(tmp_path, kind):
    tags = [["x", "y"], ["y"], ["x"], None, ["y", "x"], ["x"]]
    base = [{k: v for k, v in row.items() if k != "label"} for row in NODES]
    expected = [[1, 1], [0, 1], [1, 0], [-1, -1], [1, 1], [1, 0]]
    columns = [
        {**row, "x": x if x >= 0 else None, "y": y if y >= 0 else None}
        for row, (x, y) in zip(base, expected, strict=True)
    ]
    joined = [{**row, "tags": t and "; ".join(t)} for row, t in zip(base, tags, strict=True)]
    write(tmp_path / "columns", columns, kind=kind, toml='label = ["x", "y"]')
    write(tmp_path / "joined", joined, kind=kind, toml='label = "tags"\nlabel_separator = ";"')
    folders = [tmp_path / "columns", tmp_path / "joined"]
    if kind != "csv":
        lists = [{**row, "tags": t} for row, t in zip(base, tags, strict=True)]
        folders.append(write(tmp_path / "lists", lists, kind=kind, toml='label = "tags"'))
    for folder in folders:
        graph = load_tables(folder).graph
        assert graph.task == "multilabel"
        assert graph.class_names == ["x", "y"]
        assert graph.labels.tolist() == expected
        assert graph.split.roles.tolist() == [0, 0, 1, -1, 2, 2]


def test_labels_of_floats_are_whole_numbers(tmp_path):
    write(tmp_path, kind="parquet")
    rows = f"SELECT id, text, if(label = 'a', 10, 9)::DOUBLE AS label, split FROM '{tmp_path}/nodes.parquet'"
    duckdb.sql(f"COPY ({rows}) TO '{tmp_path}/floats.parquet'")
    (tmp_path / "floats.parquet").replace(tmp_path / "nodes.parquet")
    graph = load_tables(tmp_path).graph
    assert graph.class_names == ["9", "10"]
    assert graph.labels.tolist() == [1, 0, 1, 0, 1, 0]


def test_nan_labels(tmp_path):
    told = problems(write(tmp_path / "text", changed(NODES, 2, label="NaN")))
    assert "nodes.csv, column 'label': 1 labels are NaN: line 4; leave the cell of an unlabelled node empty" in told
    lines = write(
        tmp_path / "json",
        changed([{**r, "label": i % 2} for i, r in enumerate(NODES)], 2, label=float("nan")),
        kind="jsonl",
    )
    assert "nodes.jsonl, column 'label': 1 labels are NaN: line 3" in problems(lines)[0]
    nodes = changed(changed([{**row, "x": row["id"] % 2} for row in NODES], 1, x="nan"), 3, x=2)
    told = problems(write(tmp_path / "binary", nodes, toml='label = ["x"]'))
    assert "nodes.csv, column 'x': 2 cells are not 0, 1 or empty: line 3, line 5" in told
