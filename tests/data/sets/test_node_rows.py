"""Rows made of another file: read as tables are, and told by the file's own name and places."""

import gzip

import pytest

from labeldeconv.data.sets.node_rows import ID, csv_rows, head_of, header_of, load_rows, only_file, stem, with_toml
from labeldeconv.errors import DataError

NODES = [(f"line {i}", {ID: str(i), "text": f"t{i}", "label": "ab"[i % 2]}) for i in range(1, 7)]
EDGES = [("line 1", "1", "2"), ("line 2", "2", "3")]


def load(tmp_path, nodes=NODES, edges=EDGES, toml=None, **columns):
    path = tmp_path / "x.graph"
    path.touch()
    if toml:
        (tmp_path / "graph.toml").write_text(toml)
    return load_rows(path, with_toml(tmp_path, [path]), nodes, edges, 0, **columns)


def test_a_graph_of_rows(tmp_path):
    loaded = load(tmp_path)
    assert loaded.warnings[0] == "x.graph: read as text = text, label = label, split = made"
    assert (loaded.graph.name, loaded.graph.edges.tolist()) == ("x", [[0, 1], [1, 2]])
    assert loaded.graph.ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert load(tmp_path, edges=[]).graph.num_edges == 0


def test_graph_toml_beside_the_file_names_the_columns(tmp_path):
    nodes = [(place, {**row, "venue": "xy"[int(row[ID]) > 3]}) for place, row in NODES]
    loaded = load(tmp_path, nodes, toml='name = "papers"\nlabel = "venue"')
    assert (loaded.graph.name, loaded.graph.class_names) == ("papers", ["x", "y"])
    with pytest.raises(DataError, match=r"x.graph: no column 'venu'.*did you mean 'venue'"):
        load(tmp_path, nodes, toml='label = "venu"')
    with pytest.raises(DataError, match=r"graph.toml: lable: unknown setting; did you mean 'label'"):
        load(tmp_path, nodes, toml='lable = "venue"')
    with pytest.raises(DataError, match=r"graph.toml: not valid TOML"):
        load(tmp_path, nodes, toml="label =")


def test_numbers_are_predicted_where_some_are_not_whole_or_graph_toml_says_so(tmp_path):
    numbers = [(place, {**row, "label": int(row[ID]) % 2 + 0.5}) for place, row in NODES]
    loaded = load(tmp_path, numbers)
    assert (loaded.graph.task, loaded.graph.class_names) == ("regression", ["label"])
    assert loaded.graph.labels.tolist() == [[1.5], [0.5]] * 3
    assert any("x.graph, column 'label': taken for numbers to be predicted" in told for told in loaded.warnings)
    assert load(tmp_path, numbers, toml='task = "classification"').graph.task == "multiclass"
    whole = [(place, {**row, "label": int(row[ID])}) for place, row in NODES]
    assert load(tmp_path, whole, toml='task = "regression"').graph.task == "regression"


def test_messages_name_the_file_and_the_place(tmp_path):
    twice = [*NODES, ("line 9", {**NODES[0][1]})]
    with pytest.raises(DataError, match=r"(?s)x.graph: 1 wrong.*'1' 2 times \(line 1, line 9\)") as told:
        load(tmp_path, twice)
    assert "labeldeconv-" not in str(told.value)  # no name of a scratch folder
    with pytest.raises(
        DataError, match=r"x.graph, column 'target': 1 of 2 edges name a node unknown to x.graph: line 2"
    ):
        load(tmp_path, edges=[EDGES[0], ("line 2", "2", "77")])
    with pytest.raises(DataError, match=r"x.graph: no column 'label'; name the label column in graph.toml"):
        load(tmp_path, [(place, {ID: row[ID], "text": "t"}) for place, row in NODES])
    with pytest.raises(DataError, match=r"x.graph, line 1: a text that is no UTF-8"):
        load(tmp_path, [("line 1", {ID: "1", "text": "\ud800"})])
    with pytest.raises(DataError, match=r"x.graph: no nodes in it"):
        load(tmp_path, [])


def test_csv_rows(tmp_path):
    path = tmp_path / "a.csv"
    long = "x" * 200_000  # beyond Python's own limit of a cell
    path.write_text(f'\ufeffa,b\n1,"two\nlines"\n2,{long}\n')
    assert list(csv_rows(path)) == [(3, {"a": "1", "b": "two\nlines"}), (4, {"a": "2", "b": long})]
    assert header_of(path) == ["a", "b"]
    packed = tmp_path / "b.csv.gz"
    packed.write_bytes(gzip.compress(b"a,b\r\n1,2\r\n", mtime=0))
    assert list(csv_rows(packed)) == [(2, {"a": "1", "b": "2"})]
    assert (header_of(packed), stem(packed)) == (["a", "b"], "b")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1\n", r"a.csv, line 2: 2 cells expected, as in the header, got 1"),
        (b"a,a\n1,2\n", r"a.csv, line 1: more than one column is called 'a'"),
        (b'a,b\n1,"2', r"a.csv, line 2: not CSV: unexpected end of data"),
        (b"a,b\n1,\xff\n", r"a.csv, after line \d: not UTF-8"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0)[:-9], r"a.csv: the gz file is truncated or broken"),
    ],
)
def test_csv_that_is_broken(tmp_path, content, message):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(csv_rows(tmp_path / "a.csv"))


def test_the_only_file_of_a_folder(tmp_path):
    (tmp_path / "a.csv").write_text("x")
    assert only_file(tmp_path, [".csv"], lambda path: True) == tmp_path / "a.csv"
    assert only_file(tmp_path / "a.csv", [".json"], lambda path: True) is None
    (tmp_path / "b.csv.gz").write_text("x")
    assert only_file(tmp_path, [".csv"], lambda path: True) is None
    assert only_file(tmp_path, [".csv"], lambda path: path.name == "a.csv") == tmp_path / "a.csv"
    assert head_of(tmp_path / "b.csv.gz") == ""  # no gz: nothing is known of it
