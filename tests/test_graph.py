import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from labeldeconv.errors import DataError
from labeldeconv.graph import AttributedGraph
from labeldeconv.split import Split
from labeldeconv.texts import Texts


class TestTexts:
    STRINGS = ["", "plain", "büßt 日本", "a" * 1000]

    def test_round_trip(self):
        texts = Texts.from_strings(self.STRINGS)
        assert list(texts) == self.STRINGS
        assert texts[-1] == self.STRINGS[-1]
        assert texts[1:3] == self.STRINGS[1:3]
        assert texts.take(np.array([2, 0])) == [self.STRINGS[2], ""]
        assert list(texts.lengths()) == [0, 5, 13, 1000]

    def test_out_of_range(self):
        with pytest.raises(IndexError, match="text 4 of 4"):
            Texts.from_strings(self.STRINGS)[4]


class TestSplit:
    def test_stratified_gives_every_class_a_place_everywhere(self):
        labels = np.repeat([0, 1, 2, -1], [3, 50, 200, 10])
        split = Split.stratified(labels, seed=0)
        for part in (split.train, split.val, split.test):
            assert set(labels[part]) == {0, 1, 2}
        assert len(split.train) == pytest.approx(0.6 * 253, abs=2)
        assert (split.roles[labels < 0] == -1).all()
        assert np.array_equal(split.roles, Split.stratified(labels, seed=0).roles)
        assert not np.array_equal(split.roles, Split.stratified(labels, seed=1).roles)

    def test_node_in_two_parts(self):
        with pytest.raises(DataError, match="1 nodes of 'val'"):
            Split.from_ids(3, np.array([0]), np.array([0]), np.array([2]))


class TestAttributedGraph:
    @pytest.mark.parametrize("ids", [None, np.array([7, 8, 9, 10, 11, 12]), Texts.from_strings(list("uvwxyz"))])
    def test_save_and_load(self, small_graph, tmp_path, ids):
        graph = AttributedGraph(
            **{**vars(small_graph), "ids": ids, "features": np.ones((6, 2), np.float32), "_fingerprints": {}}
        )
        loaded = AttributedGraph.load(graph.save(tmp_path / "g"))
        assert list(loaded.texts) == list(graph.texts)
        assert isinstance(loaded.edges, np.memmap) or isinstance(loaded.edges.base, np.memmap)
        assert loaded.edges.dtype == np.int32
        for part in ("edges", "labels", "features"):
            np.testing.assert_array_equal(getattr(loaded, part), getattr(graph, part))
        assert loaded.node_id(1) == graph.node_id(1) == ("1" if ids is None else str(ids[1]))
        assert loaded.fingerprint("texts", "split") == graph.fingerprint("texts", "split")
        assert sorted(p.suffix for p in (tmp_path / "g").iterdir() if p.suffix not in (".npy", ".bin")) == [".json"]

    def test_fingerprint_follows_content(self, small_graph):
        other = small_graph.with_split(Split(np.zeros(6, np.int8)))
        assert other.fingerprint("texts") == small_graph.fingerprint("texts")
        assert other.fingerprint("split") != small_graph.fingerprint("split")

    def test_all_errors_at_once(self, small_graph):
        with pytest.raises(DataError) as error:
            AttributedGraph(
                small_graph.texts, np.array([[0, 9], [1, 2]]), np.zeros(5), Split(np.zeros(4, np.int8)), ["a", "b"]
            )
        assert [p.split(":")[0] for p in error.value.problems] == ["edges", "labels", "split"]

    def test_train_node_without_label(self, small_graph):
        labels = small_graph.labels.copy()
        labels[0] = -1
        with pytest.raises(DataError, match="1 train nodes have no label"):
            AttributedGraph(small_graph.texts, small_graph.edges, labels, small_graph.split, ["a", "b", "c"])

    def test_load_something_else(self, tmp_path):
        with pytest.raises(DataError, match=r"no graph\.json"):
            AttributedGraph.load(tmp_path)

    def test_pyg_round_trip(self, small_graph):
        data = small_graph.to_pyg(x=np.zeros((6, 4)))
        assert data.x.shape == (6, 4)
        assert int(data.train_mask.sum()) == 3
        back = AttributedGraph.from_pyg(data, small_graph.texts, small_graph.class_names)
        for part in ("edges", "labels"):
            np.testing.assert_array_equal(getattr(back, part), getattr(small_graph, part))
        np.testing.assert_array_equal(back.split.roles, small_graph.split.roles)

    def test_from_pyg_multilabel_with_missing_entries(self):
        y = torch.tensor([[1.0, float("nan")], [0, 1], [1, 1]])
        data = Data(edge_index=torch.tensor([[0], [1]]), y=y, num_nodes=3)
        graph = AttributedGraph.from_pyg(data, ["a", "b", "c"])
        assert graph.task == "multilabel"
        assert graph.labels.tolist() == [[1, -1], [0, 1], [1, 1]]

    def test_from_pyg_without_texts(self):
        with pytest.raises(DataError, match="no texts"):
            AttributedGraph.from_pyg(Data(edge_index=torch.zeros(2, 0), y=torch.zeros(1)))
