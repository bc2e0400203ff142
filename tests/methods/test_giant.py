"""X_GIANT: neighbourhoods, never labels; down to single nodes; and encoders adapted by it."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from labeldeconv import fit
from labeldeconv.methods.base import Run
from labeldeconv.methods.giant import neighbourhood_nodes, trained_levels
from labeldeconv.settings.models import GiantConfig
from labeldeconv.settings.reading import load_config
from tests.methods.test_base import relabelled

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5}
GIANT = {"giant__coarsest": 2, "giant__cluster_size": 10, "giant__step": 1}


def test_giant_never_uses_labels(graph, tmp_path):
    settings = {"giant__coarsest": 2, "giant__cluster_size": 10, "giant__step": 1, **QUICK}
    a = fit(graph, method="giant", out=tmp_path / "a", cache=tmp_path / "c1", **settings)
    b = fit(relabelled(graph, "train"), method="giant", out=tmp_path / "b", cache=tmp_path / "c2", **settings)
    np.testing.assert_array_equal(a.features, b.features)
    assert [label for label in a.seconds if label.startswith("train")] == ["train 4", "train 8", "train nodes"]


def head(tmp_path, result, label):
    return load_file(tmp_path / "cache" / result.stages[label] / "head.safetensors")


def test_the_finest_level_is_the_nodes_themselves(graph, tmp_path):
    """A row of the head for each of 80 nodes, which starts as that of its cluster; none on a larger graph than set."""
    result = fit(graph, method="giant", out=tmp_path / "r", giant__negatives=16, **GIANT, **QUICK)
    coarse, fine = head(tmp_path, result, "train 8"), head(tmp_path, result, "train nodes")
    assert coarse["weight"].shape == (8, 32)
    assert fine["weight"].shape == (80, 32)
    coarsest = head(tmp_path, result, "train 4")["weight"]
    assert np.ptp(coarsest, axis=0).max() > 0.1  # four different rows, of which two of the next level start each
    assert np.abs(coarse["weight"] - coarsest.repeat(2, axis=0)).max() < 0.01
    clusters = np.load(tmp_path / "cache" / result.stages["tree"] / "levels.npy")[-1]
    moved = np.abs(fine["weight"] - coarse["weight"][clusters]).max()
    assert 0 < moved < 0.01  # a few steps of at most 1e-3 each
    none = fit(graph, method="giant", out=tmp_path / "n", giant__single_nodes=79, **GIANT, **QUICK)
    assert "train nodes" not in none.stages
    assert none.stages["train 8"] == result.stages["train 8"]  # 8 outputs are no more than 16: nothing is drawn


@pytest.mark.parametrize(("nodes", "levels"), [
    (1000, [4, 6]),  # clusters of 8 make a tree of 6 levels, of which that of 32 clusters and the nodes are trained on
    (169_343, [4, 7, 10, 13, 14]),  # ogbn-arxiv
    (2_449_029, [4, 7, 10, 13]),  # ogbn-products: 2^14 clusters are the last
])  # fmt: skip
def test_levels_as_published_where_the_graph_is_small_enough(nodes, levels):
    assert trained_levels(nodes, GiantConfig()) == levels


def test_every_level_is_counted(graph, tmp_path):
    result = fit(graph, method="giant", out=tmp_path / "r", giant__epochs=2, **GIANT, **QUICK)
    config = load_config(None, {"giant.epochs": 2, "giant.coarsest": 2, "giant.cluster_size": 10, "giant.step": 1})
    trained = [count for label, count in result.encoder_nodes_by_stage.items() if label.startswith("train")]
    degree = np.bincount(graph.edges.ravel(), minlength=80)
    assert trained == [2 * int((degree > 0).sum())] * 3
    assert neighbourhood_nodes(graph, config) == 3 * 2 * 80


def test_an_adapted_encoder_is_that_of_giant(graph, tmp_path):
    """Two routes: adapt and go on, or run GIANT, take the encoder out of its run directory and start from there."""
    giant = fit(graph, method="giant", out=tmp_path / "giant", **GIANT, **QUICK)
    pne = fit(graph, method="pne", encoder__adapt="giant", out=tmp_path / "pne", **GIANT, **QUICK)
    np.testing.assert_array_equal(pne.features, giant.features)
    trainings = {"train 4", "train 8", "train nodes"}
    assert set(pne.cached) == {"tokens", "tree", *trainings, "encode", "gnn"}  # X_GIANT and its GNN, recalled
    for method in ("ld", "glem", "joint-sage"):
        adapted = fit(graph, method=method, encoder__adapt="giant", out=tmp_path / f"{method}-a", **GIANT, **QUICK)
        quick = {**QUICK, "encoder": str(giant.run / "encoder")}
        folder = fit(graph, method=method, out=tmp_path / f"{method}-b", cache=tmp_path / "other", **quick)
        np.testing.assert_array_equal(adapted.features, folder.features)
        np.testing.assert_array_equal(adapted.logits, folder.logits)
        assert trainings <= set(adapted.seconds)


def test_methods_that_cannot_be_adapted_are_left_alone(graph, tmp_path):
    for method in ("given", "giant"):
        plain = fit(graph, method=method, out=tmp_path / f"{method}-a", **GIANT, **QUICK)
        adapted = fit(graph, method=method, encoder__adapt="giant", out=tmp_path / f"{method}-b", **GIANT, **QUICK)
        assert list(adapted.seconds) == list(plain.seconds)
        np.testing.assert_array_equal(adapted.logits, plain.logits)


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize(("most", "nodes"), [(2, [0, 4]), (3, [0, 1, 2, 3, 4])])
def test_nodes_of_moderate_degree_are_trained_on(small_graph, tmp_path, monkeypatch, self_loops, most, nodes):
    """A path of five nodes and a lone one, which has only itself: ends have one neighbour, the others two."""
    given, real = [], Run.train

    def train(self, targets, nodes, **words):
        given.append((nodes.tolist(), targets.outputs, targets.negatives))
        return real(self, targets, nodes, **words)

    monkeypatch.setattr(Run, "train", train)
    words = {"giant__coarsest": 1, "giant__negatives": 2, "labels__adjacency__self_loops": self_loops}
    fit(small_graph, method="giant", giant__max_degree=most + self_loops, out=tmp_path / "r", **words, **QUICK)
    # two clusters are no more than two draws; of six nodes two are drawn
    assert given == [(nodes, 2, None), (nodes, 6, 2)]
