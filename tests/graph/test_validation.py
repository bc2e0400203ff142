"""The one validation: whatever is wrong with a saved graph is told with file and node."""

import json

import numpy as np
import pytest

from labeldeconv.data.opening import open_data
from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.texts import Texts
from labeldeconv.graph.validation import absent_from_train, check_graph, infinite_cells, some_nodes

TEXTS = ["red", "grün", "", "日本", "gold", "alone"]


def graph(**changes) -> AttributedGraph:
    held = {
        "texts": Texts.from_strings(TEXTS),
        "edges": np.array([[0, 1, 2, 3], [1, 2, 3, 4]]),
        "labels": np.array([0, 1, 2, 0, 1, 2]),
        "split": Split(np.array([0, 0, 0, 1, 1, 2], np.int8)),
        "class_names": ["a", "b", "c"],
        "features": np.ones((6, 2), np.float64),
        "edge_features": np.ones((4, 1), np.float32),
        "ids": Texts.from_strings("uvwxyz"),
        "name": "small",
    }
    return AttributedGraph(**{**held, **changes})


def saved(folder, **arrays):
    """A sound saved graph with some files replaced."""
    graph().save(folder)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=True)
    return folder


def problems(folder) -> str:
    with pytest.raises(DataError) as caught:
        open_data(str(folder))
    assert str(folder) in str(caught.value)
    return str(caught.value)


def filled(value, row=4, column=1):
    array = np.ones((6, 2), np.float64)
    array[row, column] = value
    return array


MULTI = np.array([[0, 1, 3], [1, 0, 0], [0, 1, 4], [0, 0, 1], [1, 1, 0], [0, 0, 0]])


@pytest.mark.parametrize(
    ("array", "content", "told"),
    [
        ("features", filled(np.nan), "features.npy: finite numbers within float32 expected; 1 nodes"),
        ("features", filled(-np.inf), "node 4 ('y'), column 1: -inf"),
        ("features", filled(1e300), "node 4 ('y'), column 1: 1e+300"),
        ("features", np.array([[object()]] * 6), "features.npy: not a readable .npy file: an array of Python objects"),
        ("features", np.array([["x"]] * 6), "features.npy: numbers of shape (6, d) expected, got <U1 (6, 1)"),
        ("features", np.ones((5, 2)), "features.npy: 6 rows expected, got 5"),
        ("edge_features", np.full((4, 1), np.inf), "4 edges have others: edge 0, column 0: inf"),
        ("split", np.array([-1, 1, 1, 1, 1, 2], np.int8), "train nodes (role 0) expected, got none; 0 train, 4 val"),
        ("split", np.array([0, 0, 0, 1, 7, 2], np.int8), "(none of them) expected, got 7: 1 nodes: node 4 ('y')"),
        ("split", np.zeros(6), "split.npy: whole numbers expected, got float64"),
        ("edges", np.ones((2, 4)), "edges.npy: whole numbers of shape (2, e) expected, got float64 (2, 4)"),
        ("edges", np.array([[0, 1, 2, 6], [1, 2, 3, 4]]), "0..5 expected, got 0..6: 1 edges: edge 3 (6 to 4)"),
        ("labels", np.ones(6), "numbers (6, 3), a column for each of the 3 names, or whole numbers for cla"),
        ("labels", np.full((6, 3), np.inf), "finite numbers within float32, or NaN for missing, expected; 6 nodes"),
        ("labels", np.array(["a"] * 6), "labels.npy: whole numbers expected, got <U1 (6,)"),
        ("labels", np.array([0, 1, 2, 0, 5, 2]), "got values 0..5 for 3 classes: node 4 ('y')"),
        ("labels", MULTI, "0, 1, or -1 for missing expected, got values 0..4 for 3 classes: node 0 ('u'), node 2"),
        ("labels", np.full((6, 3), -1), "labels.npy: labels of train nodes expected, but all 3 have none"),
        ("text_offsets", np.array([0, 3, 8, 8, 7, 18, 23]), "rising numbers expected, but 7 follows 8, at node 3"),
        ("text_offsets", np.array([0, 3, 8, 8, 14, 18, 99]), "the bytes are truncated"),
        ("text_offsets", np.array([0, 3, 6, 8, 14, 18, 23]), "UTF-8 expected, but that of node 1 is not"),
        ("text_offsets", np.zeros(7), "offsets: whole numbers (n + 1,) expected"),
        ("id_offsets", np.array([0, 1, 2, 3, 4, 5]), "id_offsets.npy: offsets from 0 to the number of bytes"),
    ],
)  # fmt: skip
def test_every_broken_array_is_told(tmp_path, array, content, told):
    assert told in problems(saved(tmp_path / "g", **{array: content}))


def test_ids_that_repeat(tmp_path):
    folder = saved(tmp_path / "g")
    (folder / "ids.bin").write_bytes(b"uvwuyu")
    assert "expected for every node, but node 3 repeats node 0 ('u'), node 5 repeats" in problems(folder)
    with pytest.raises(DataError, match=r"ids: .* node 1 repeats node 0 \('7'\)"):
        graph(ids=np.array([7, 7, 1, 2, 3, 4])).check()


def test_broken_bytes_and_missing_files(tmp_path):
    folder = saved(tmp_path / "g")
    (folder / "texts.bin").write_bytes((folder / "texts.bin").read_bytes()[:-2])
    assert "the bytes are truncated" in problems(folder)
    (folder / "texts.bin").unlink()
    assert "texts.bin: cannot be read: No such file" in problems(folder)
    (folder / "edges.npy").write_bytes(b"")
    assert "edges.npy: the file is empty" in problems(folder)
    (folder / "edges.npy").unlink()
    assert "edges.npy, labels.npy and split.npy expected" in problems(folder)


@pytest.mark.parametrize(
    ("card", "told"),
    [
        ("", "graph.json: not valid JSON"),
        ("[" * 100_000, "graph.json: not valid JSON"),
        ("[1]", "graph.json: a JSON object expected, got list"),
        ({"class_names": "abc"}, "class_names: a list of texts expected, got abc"),
        ({"class_names": [1, 2, 3]}, "class_names: a list of texts expected"),
        ({"name": 3}, "name: a text expected, got 3"),
        ({"attributes": "pictures"}, "graph.json, attributes: text, sequence, record expected, got 'pictures'"),
        ({"nodes": 7}, "graph.json, nodes: 6 expected, as in the arrays, got 7"),
        ({"format": 9}, "format 1 expected, got 9"),
    ],
)
def test_broken_cards(tmp_path, card, told):
    folder = saved(tmp_path / "g")
    path = folder / "graph.json"
    path.write_text(card if isinstance(card, str) else json.dumps({**json.loads(path.read_text()), **card}))
    assert told in problems(folder)


def test_bytes_that_are_no_json_at_all(tmp_path):
    folder = saved(tmp_path / "g")
    (folder / "graph.json").write_bytes(b"\xff\xfe\x00")
    assert "graph.json: not valid JSON" in problems(folder)


def test_a_sound_graph_opens_with_its_oddities(tmp_path):
    loaded = open_data(str(saved(tmp_path / "g", split=np.array([0, 0, -1, 1, 1, 1], np.int8))))
    assert loaded.warnings == [
        "texts.bin and text_offsets.npy: 1 of 6 texts are empty: node 2 ('w')",
        "split.npy: no 'test' nodes",
        "split.npy: 1 classes of val or test are absent from train: 'c'",
    ]


def test_a_graph_made_in_python_is_checked_by_fit():
    from labeldeconv import fit

    with pytest.raises(DataError, match=r"graph 'small': 1 wrong\n.*features: finite numbers"):
        fit(graph(features=filled(np.nan)), method="given")
    with pytest.raises(DataError, match="at least two classes expected, got 1"):
        check_graph(graph(labels=np.zeros(6, int), class_names=["a"]), "here")


def test_structure_is_refused_at_once():
    with pytest.raises(DataError, match="texts: Texts expected"):
        graph(texts=TEXTS)
    with pytest.raises(DataError, match="ids: whole numbers or texts"):
        graph(ids=np.ones(6))
    assert graph(edges=np.empty((2, 0)), edge_features=None).num_edges == 0  # numpy's empty arrays are of floats


def test_infinite_cells_count_rows_over_blocks(monkeypatch):
    monkeypatch.setattr("labeldeconv.graph.validation.ROWS", 2)
    array = np.zeros((7, 3))
    array[1, 2] = array[4, 0] = array[4, 1] = 1e39
    assert infinite_cells(array) == (2, [(1, 2), (4, 0)])
    assert infinite_cells(np.zeros((3, 1), np.int64)) == (0, [])


def test_names_of_nodes_and_absent_classes():
    some = graph()
    assert some_nodes(some, np.arange(6)) == "node 0 ('u'), node 1 ('v'), node 2 ('w'), node 3 ('x'), node 4 ('y'), ..."
    assert absent_from_train(some.split, some.labels, some.class_names) is None
