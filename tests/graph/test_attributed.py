"""AttributedGraph: files, keys, what training may see, PyG, and everything wrong said at once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from labeldeconv.errors import ConfigError, DataError
from labeldeconv.graph.attributed import PARTS, AttributedGraph, edges_among
from labeldeconv.graph.split import Split
from labeldeconv.graph.texts import Texts


@pytest.mark.parametrize("ids", [None, np.array([7, 8, 9, 10, 11, 12]), Texts.from_strings(list("uvwxyz"))])
def test_save_and_load(small_graph, tmp_path, ids):
    graph = replace(small_graph, ids=ids, features=np.ones((6, 2), np.float32))
    loaded = AttributedGraph.load(graph.save(tmp_path / "g"))
    assert list(loaded.texts) == list(graph.texts)
    assert isinstance(loaded.edges, np.memmap) or isinstance(loaded.edges.base, np.memmap)
    assert loaded.edges.dtype == np.int32
    for part in ("edges", "labels", "features"):
        np.testing.assert_array_equal(getattr(loaded, part), getattr(graph, part))
    assert loaded.node_id(1) == graph.node_id(1) == ("1" if ids is None else str(ids[1]))
    for part in ("texts", "split"):
        assert loaded.key_of(part) == graph.key_of(part)
    assert loaded.content_key == graph.content_key
    assert sorted(p.suffix for p in (tmp_path / "g").iterdir() if p.suffix not in (".npy", ".bin")) == [".json"]


def test_keys_follow_content(small_graph):
    for part in PARTS:
        small_graph.key_of(part)  # keys that were asked for before must not be taken over where they changed
    small_graph.key_of("train_labels")
    other = small_graph.with_split(Split(np.zeros(6, np.int8)))
    for part in ("texts", "edges", "labels"):
        assert other.key_of(part) == small_graph.key_of(part)
    for part in ("split", "train_labels"):
        assert other.key_of(part) != small_graph.key_of(part)
    assert other.content_key != small_graph.content_key


@pytest.mark.parametrize(
    "changes",
    [
        {"texts": Texts.from_strings(["x"] * 6)},
        {"edges": np.array([[0], [1]])},
        {"labels": np.array([0, 1, 2, 0, 1, 1])},
        {"class_names": ["a", "b", "other"]},
        {"features": np.zeros((6, 2))},
        {"edge_features": np.zeros((4, 1))},
        {"ids": np.arange(6) + 1},
        {"attributes": "sequence"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_content_key_sees_every_part_but_the_name(small_graph, changes):
    """Also where the keys of the graph that was replaced had been asked for before."""
    assert small_graph.content_key == replace(small_graph).content_key
    assert replace(small_graph, **changes).content_key != small_graph.content_key
    assert replace(small_graph, name="other").content_key == small_graph.content_key


def test_home_is_the_folder_that_holds_its_content(small_graph, tmp_path):
    """A run directory shares the files that a graph was loaded from: a changed graph must not name them."""
    loaded = AttributedGraph.load(small_graph.save(tmp_path / "g"))
    assert loaded.home == loaded.with_split(Split(np.zeros(6, np.int8))).home == tmp_path / "g"
    assert replace(loaded, labels=np.zeros(6, int)).home is None
    assert loaded.training_view().home is None
    assert small_graph.home is None


def test_labels_that_training_may_see(small_graph):
    """Train nodes 0, 1, 2 with labels 0, 1, 2; validation nodes 3, 4 with 0, 1; test node 5."""
    assert small_graph.train_labels.tolist() == [0, 1, 2, -1, -1, -1]
    assert small_graph.known_labels.tolist() == [0, 1, 2, 0, 1, -1]
    many = replace(small_graph, labels=np.tile(np.array([1, 0, 1], np.int8), (6, 1)))
    assert many.known_labels.tolist() == [[1, 0, 1]] * 5 + [[-1, -1, -1]]
    assert many.train_labels.dtype == np.int8


def test_nodes_without_a_role_show_no_label(small_graph):
    roles = small_graph.split.roles.copy()
    roles[3] = -1
    assert small_graph.with_split(Split(roles)).known_labels[3] == -1


def test_edges_among_some_nodes():
    edges = np.array([[0, 1, 2, 3], [1, 2, 3, 4]])
    inside, kept = edges_among(edges, np.array([3, 1, 2]), 5)
    assert inside.tolist() == [[1, 2], [2, 0]]  # 1-2 and 2-3, where 3, 1, 2 are now 0, 1, 2
    assert kept.tolist() == [False, True, True, False]


def test_training_view_holds_only_train_nodes(small_graph):
    graph = replace(
        small_graph,
        split=Split(np.array([2, 0, 0, 1, 0, 0], np.int8)),
        features=np.arange(6.0)[:, None],
        edge_features=np.arange(4.0)[:, None],
    )
    view = graph.training_view()
    assert list(view.texts) == ["green pear", "blau büßt", "gold 日本", "alone"]
    assert view.edges.tolist() == [[0], [1]]
    assert view.edge_features.tolist() == [[1.0]]
    assert view.features.ravel().tolist() == [1, 2, 4, 5]
    assert view.labels.tolist() == [1, 2, 1, 2]
    assert (view.split.roles == 0).all()
    assert [view.node_id(i) for i in range(4)] == ["1", "2", "4", "5"]


def test_resplit(small_graph):
    assert small_graph.resplit(None, 0) is small_graph
    new = small_graph.resplit([0.5, 0.2], 3)
    np.testing.assert_array_equal(new.split.roles, Split.stratified(small_graph.labels, 3, (0.5, 0.2)).roles)
    with pytest.raises(ConfigError, match=r"below 1 in sum expected, got 1\.1"):
        small_graph.resplit([0.6, 0.5], 0)


def test_all_errors_at_once(small_graph):
    with pytest.raises(DataError) as error:
        AttributedGraph(
            small_graph.texts, np.array([[0, 9], [1, 2]]), np.zeros(5), Split(np.zeros(4, np.int8)), ["a", "b"]
        )
    assert [p.split(":")[0] for p in error.value.problems] == ["edges", "labels", "split"]


def test_train_node_without_label(small_graph):
    labels = small_graph.labels.copy()
    labels[0] = -1
    with pytest.raises(DataError, match="1 train nodes have no label"):
        AttributedGraph(small_graph.texts, small_graph.edges, labels, small_graph.split, ["a", "b", "c"])


def test_load_something_else(tmp_path):
    with pytest.raises(DataError, match=r"no graph\.json"):
        AttributedGraph.load(tmp_path)


def test_pyg_round_trip(small_graph):
    data = small_graph.to_pyg(x=np.zeros((6, 4)))
    assert data.x.shape == (6, 4)
    assert int(data.train_mask.sum()) == 3
    back = AttributedGraph.from_pyg(data, small_graph.texts, small_graph.class_names)
    for part in ("edges", "labels"):
        np.testing.assert_array_equal(getattr(back, part), getattr(small_graph, part))
    np.testing.assert_array_equal(back.split.roles, small_graph.split.roles)


def test_from_pyg_multilabel_with_missing_entries():
    y = torch.tensor([[1.0, float("nan")], [0, 1], [1, 1]])
    data = Data(edge_index=torch.tensor([[0], [1]]), y=y, num_nodes=3)
    graph = AttributedGraph.from_pyg(data, ["a", "b", "c"])
    assert graph.task == "multilabel"
    assert graph.labels.tolist() == [[1, -1], [0, 1], [1, 1]]


def test_from_pyg_without_texts():
    with pytest.raises(DataError, match="no texts"):
        AttributedGraph.from_pyg(Data(edge_index=torch.zeros(2, 0), y=torch.zeros(1)))
