"""Labels of a node table: three forms of several labels are one, and NaN is no label."""

import duckdb
import numpy as np
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
    assert told[0].startswith("nodes.csv, column 'x': 2 cells are not 0, 1 or empty: line 3, line 5; task = ")


def test_blanks_none_and_two_spellings_are_told(tmp_path):
    labels = [" a", "a", "b\t", "b", "None", "null"]
    rows = [{**row, "label": label} for row, label in zip(NODES, labels, strict=True)]
    more = {"id": 99, "text": "more", "label": "a", "split": "test"}
    loaded = load_tables(write(tmp_path, [*rows, more]))
    assert loaded.graph.class_names == ["a", "b"]
    assert loaded.graph.labels.tolist() == [0, 0, 1, 1, -1, -1, 0]
    assert any("2 labels have blanks around them, which are left out: line 2, line 4" in w for w in loaded.warnings)
    assert any("2 labels say 'None', 'null', 'NULL' or '<NA>', which counts as no label" in w for w in loaded.warnings)


@pytest.mark.parametrize(
    ("labels", "names", "told"),
    [
        (["1", "1.0", "2", "2", "1", "2.00"], ["1", "2"], "count as one class: '1.0' (1) as '1' (2), '2.00' (1)"),
        (["1", "01", "2", "2", "1", "2"], ["01", "1", "2"], "count as several: '01' (1) and '1' (2)"),
        (["A", "a", "b", "b", "A", "b"], ["A", "a", "b"], "count as several: 'A' (2) and 'a' (1)"),
    ],
)
def test_classes_that_look_alike(tmp_path, labels, names, told):
    rows = [{**row, "label": label, "split": ""} for row, label in zip(NODES, labels, strict=True)]
    loaded = load_tables(write(tmp_path, [{k: v for k, v in row.items() if k != "split"} for row in rows]))
    assert sorted(loaded.graph.class_names) == names
    assert any(told in w for w in loaded.warnings), loaded.warnings


def test_several_labels_are_tidied_too(tmp_path):
    cells = [" a ; b", "a;None", "b", "null", "a", "b"]
    nodes = [{**row, "label": cell} for row, cell in zip(NODES, cells, strict=True)]
    loaded = load_tables(write(tmp_path, nodes, toml='label_separator = ";"'))
    assert loaded.graph.class_names == ["a", "b"]
    assert loaded.graph.labels.tolist() == [[1, 1], [1, 0], [0, 1], [-1, -1], [1, 0], [0, 1]]


def numbers(*cells):
    """The node rows with these labels."""
    return [{**row, "label": cell} for row, cell in zip(NODES, cells, strict=True)]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_column_of_numbers_that_are_not_all_whole_is_a_regression(tmp_path, kind):
    loaded = load_tables(write(tmp_path, numbers(1.5, -2, None, 4, 0.25, 1e-7), kind=kind))
    graph = loaded.graph
    assert (graph.task, graph.class_names) == ("regression", ["label"])
    np.testing.assert_array_equal(graph.labels[:, 0], [1.5, -2, np.nan, 4, 0.25, 1e-7])
    assert graph.split.roles.tolist() == [0, 0, -1, 1, 2, 2]
    assert any("taken for numbers to be predicted, since 3 of them are not whole" in w for w in loaded.warnings)
    classes = load_tables(write(tmp_path / "c", numbers(1.5, -2, None, 4, 0.25, 1.5), toml='task = "classification"'))
    assert (classes.graph.task, classes.graph.class_names) == ("multiclass", ["-2", "0.25", "1.5", "4"])


def test_whole_numbers_are_classes_unless_regression_is_said(tmp_path):
    rows = numbers(1, 2, 3, "nan", " 5 ", "NULL")
    assert load_tables(write(tmp_path / "a", numbers(1, 2, 1, 2, 1, 2))).graph.task == "multiclass"
    graph = load_tables(write(tmp_path / "b", rows, toml='task = "regression"')).graph
    assert graph.task == "regression"
    np.testing.assert_array_equal(graph.labels[:, 0], [1, 2, 3, np.nan, 5, np.nan])


@pytest.mark.parametrize("kind", FORMATS)
def test_several_columns_of_numbers(tmp_path, kind):
    rows = [{**row, "x": i / 2, "y": None if i == 2 else -i} for i, row in enumerate(NODES)]
    write(tmp_path, rows, kind=kind, toml='label = ["x", "y"]\ntask = "regression"')
    graph = load_tables(tmp_path).graph
    assert graph.class_names == ["x", "y"]
    np.testing.assert_array_equal(graph.labels, [[i / 2, np.nan if i == 2 else -i] for i in range(6)])


@pytest.mark.parametrize(
    ("cells", "toml", "told"),
    [
        ((1.5, "two", "inf", 2, 3, 4), "", "2 cells are not finite numbers: line 3 ('two'), line 4 ('inf'); a cell"),
        ((1, 1, 1, 1, 1, 1), "", "the same number on every node, nothing to predict: 'label'"),
        (("1;2", 1, 2, 1, 2, 1), 'label_separator = ";"', 'task = "regression": a number per cell expected, got lists'),
    ],
)
def test_cells_that_are_no_numbers_are_told(tmp_path, cells, toml, told):
    found = problems(write(tmp_path, numbers(*cells), toml=f'task = "regression"\n{toml}'))
    assert f"nodes.csv, column 'label': {told}" in found[0]


def test_columns_of_numbers_that_were_taken_for_labels_say_how_to_take_them(tmp_path):
    columns = [{**row, "x": 0.5, "y": 1} for row in NODES]
    found = problems(write(tmp_path, columns, toml='label = ["x", "y"]'))
    assert "column 'x': 6 cells are not 0, 1 or empty" in found[0]
    assert found[0].endswith('task = "regression" takes numbers')
