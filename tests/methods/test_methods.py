"""Methods beyond LD: what they train on, and what they never see."""

import json

import numpy as np
import pytest

from labeldeconv import AttributedGraph, fit, planted, stages
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.labels.choice import Candidate
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.split import Split
from labeldeconv.task import Task

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5}


@pytest.fixture
def graph() -> AttributedGraph:
    return planted(80, seed=0, num_features=6).graph


def relabelled(graph, role):
    """The same graph with the labels of one part shifted by one class."""
    labels = graph.labels.copy()
    ids = graph.split.ids(role)
    labels[ids] = (labels[ids] + 1) % graph.num_classes
    return AttributedGraph(graph.texts, graph.edges, labels, graph.split, graph.class_names, graph.features)


def test_given_takes_the_features_as_they_are(graph, tmp_path):
    result = fit(graph, method="given", out=tmp_path / "r", **QUICK)
    np.testing.assert_array_equal(result.features, graph.features)
    assert result.encoder_nodes == 0


def test_given_without_features(small_graph, tmp_path):
    with pytest.raises(DataError, match="has no features of its own"):
        fit(small_graph, method="given", out=tmp_path / "r", **QUICK)


def test_giant_never_uses_labels(graph, tmp_path):
    settings = {"giant__coarsest": 2, "giant__cluster_size": 10, "giant__step": 1, **QUICK}
    a = fit(graph, method="giant", out=tmp_path / "a", cache=tmp_path / "c1", **settings)
    b = fit(relabelled(graph, "train"), method="giant", out=tmp_path / "b", cache=tmp_path / "c2", **settings)
    np.testing.assert_array_equal(a.features, b.features)
    assert [label for label in a.seconds if label.startswith("train")] == ["train 4", "train 8"]


@pytest.mark.parametrize("first", ["gnn", "encoder"])
def test_glem_takes_the_best_round(graph, tmp_path, first):
    result = fit(graph, method="glem", out=tmp_path / "r", glem__rounds=2, glem__first=first, **QUICK)
    cache = tmp_path / "cache" / "gnn"
    scores = [json.loads(p.read_text())["info"]["val"] for p in cache.glob("*/stage.json")]
    assert len(scores) == 3
    assert result.val in scores
    assert {"train 1", "train 2", "gnn 1", "gnn 2", "predict 1"} <= set(result.seconds)


@pytest.mark.parametrize("method", ["fne", "wo-ld", "ld", "glem", "giant"])
def test_features_do_not_depend_on_evaluation_labels(graph, tmp_path, method):
    """Labels of test nodes change nothing; those of validation nodes only choose the best epoch of GNNs."""
    quick = {**QUICK, "gnn__epochs": 3}
    a = fit(graph, method=method, out=tmp_path / "a", cache=tmp_path / "c1", **quick)
    b = fit(relabelled(graph, "test"), method=method, out=tmp_path / "b", cache=tmp_path / "c2", **quick)
    np.testing.assert_array_equal(a.features, b.features)
    np.testing.assert_array_equal(a.logits, b.logits)


@pytest.mark.parametrize("method", ["joint-gas", "joint-sage"])
def test_joint_training_trains_the_encoder_and_reports_sizes(graph, tmp_path, method):
    if method == "joint-gas":
        pytest.importorskip("pymetis", reason="needs the extra metis")
    quick = {**QUICK, "joint__epochs": 2, "joint__batch_nodes": 16}
    result = fit(graph, method=method, out=tmp_path / "a", **quick)
    pne = fit(graph, method="pne", out=tmp_path / "p", **quick)
    assert not np.array_equal(result.features, pne.features)
    manifests = [json.loads(p.read_text()) for p in (tmp_path / "cache" / "train").glob("*/stage.json")]
    assert 1 <= manifests[0]["info"]["batch"] <= manifests[0]["info"]["subgraph"] <= 80
    again = fit(graph, method=method, out=tmp_path / "b", cache=tmp_path / "c2", **quick)
    np.testing.assert_array_equal(result.logits, again.logits)


def test_joint_training_at_rate_zero_keeps_the_features(graph, tmp_path):
    quick = {**QUICK, "joint__epochs": 2, "joint__batch_nodes": 16}
    joint = fit(graph, method="joint-sage", train__lr=0.0, out=tmp_path / "j", **quick)
    pne = fit(graph, method="pne", out=tmp_path / "p", **quick)
    np.testing.assert_array_equal(joint.features, pne.features)
    assert joint.encoder_nodes_by_stage["train"] == 0


def test_joint_features_can_have_a_gnn_of_their_own(graph, tmp_path):
    quick = {**QUICK, "joint__epochs": 1, "joint__batch_nodes": 16}
    joint = fit(graph, method="joint-sage", out=tmp_path / "j", **quick)
    fresh = fit(graph, method="joint-sage", joint__gnn="fresh", out=tmp_path / "f", **quick)
    assert "train" in fresh.cached
    np.testing.assert_array_equal(joint.features, fresh.features)
    assert not (tmp_path / "j" / "epochs.jsonl").read_text()
    assert (tmp_path / "f" / "epochs.jsonl").read_text()


def test_joint_training_names_gnns_it_cannot_run(graph, tmp_path):
    with pytest.raises(ConfigError, match="SAGN cannot be run layer by layer"):
        fit(graph, method="joint-sage", gnn="sagn", out=tmp_path / "r", **QUICK)


def test_glem_without_evaluation_nodes_to_label(graph, tmp_path):
    """With all pseudo ratios 0 the E-step is fine-tuning on gold alone."""
    result = fit(graph, method="glem", out=tmp_path / "g", glem__encoder_ratio=0.0, glem__gnn_ratio=0.0, **QUICK)
    fne = fit(graph, method="fne", out=tmp_path / "f", **QUICK)
    np.testing.assert_array_equal(result.features, fne.features)
    assert Split(graph.split.roles).train.size == 48


def chosen(monkeypatch, *gamma):
    monkeypatch.setattr(stages.labels, "choose_gamma", lambda *_: [Candidate(np.array(gamma), 1.0, 0.0, 0.0, 0.0)])


def test_gamma_auto_keeps_the_chosen_gamma(graph, tmp_path, monkeypatch):
    chosen(monkeypatch, 0.2, 0.3, 0.5)
    result = fit(graph, method="ld", labels__gamma="auto", train__gamma_lr=0.1, out=tmp_path / "r", **QUICK)
    np.testing.assert_allclose(result.gamma, [0.2, 0.3, 0.5], atol=1e-6)
    info = json.loads(next((tmp_path / "cache" / "choice").glob("*/stage.json")).read_text())["info"]
    assert info["candidates"] == [{"gamma": [0.2, 0.3, 0.5], "score": 1.0, "error": 0.0, "lead": 0.0, "doubt": 0.0}]
    assert "choice" in result.seconds


def test_gamma_auto_is_wo_ld_where_nothing_is_surely_better(graph, tmp_path, monkeypatch):
    chosen(monkeypatch, 1.0, 0.0, 0.0)
    auto = fit(graph, method="ld", labels__gamma="auto", out=tmp_path / "a", **QUICK)
    plain = fit(graph, method="wo-ld", out=tmp_path / "b", **QUICK)
    np.testing.assert_array_equal(auto.features, plain.features)
    assert auto.gamma is None
    assert "choice" in auto.seconds


def test_ld_on_train_nodes_alone_never_trains_on_others(tmp_path):
    settings = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5, "cache": tmp_path / "cache"}
    every = fit("planted:80", method="ld", out=tmp_path / "a", **settings)
    few = fit("planted:80", method="ld", labels__nodes="train", out=tmp_path / "b", **settings)
    assert every.encoder_nodes_by_stage["train"] == 80
    assert few.encoder_nodes_by_stage["train"] == 48
    # With alpha = 0 only the train nodes' true labels are left: FNE, up to the fixed point of one-hot labels, exact.
    plain = fit("planted:80", method="wo-ld", labels__nodes="train", out=tmp_path / "c", **settings)
    fne = fit("planted:80", method="fne", out=tmp_path / "d", **settings)
    np.testing.assert_array_equal(plain.features, fne.features)


def test_head_of_rare_clusters_starts_at_their_frequency():
    rare = np.zeros((400, 1, 50), np.float32)
    rare[np.arange(400), 0, np.arange(400) % 5] = 1.0  # 5 clusters with a fifth of the nodes, 45 empty ones
    head = stages.training._linear_head(8, InverseLabels(rare, alpha=0.0, task=Task("multilabel", 50)), np.arange(400))
    start = head.bias.sigmoid().detach().numpy()
    np.testing.assert_allclose(start[:5], 0.2, atol=0.01)
    assert (start[5:] < 0.01).all()


GIANT = {"giant__coarsest": 2, "giant__cluster_size": 10, "giant__step": 1}


def test_an_adapted_encoder_is_that_of_giant(graph, tmp_path):
    """Two routes: adapt and go on, or run GIANT, take the encoder out of its run directory and start from there."""
    giant = fit(graph, method="giant", out=tmp_path / "giant", **GIANT, **QUICK)
    pne = fit(graph, method="pne", encoder__adapt="giant", out=tmp_path / "pne", **GIANT, **QUICK)
    np.testing.assert_array_equal(pne.features, giant.features)
    assert "features" in pne.seconds or "encode" in pne.cached  # X_GIANT, recalled
    for method in ("ld", "glem", "joint-sage"):
        adapted = fit(graph, method=method, encoder__adapt="giant", out=tmp_path / f"{method}-a", **GIANT, **QUICK)
        quick = {**QUICK, "encoder": str(giant.run / "encoder")}
        folder = fit(graph, method=method, out=tmp_path / f"{method}-b", cache=tmp_path / "other", **quick)
        np.testing.assert_array_equal(adapted.features, folder.features)
        np.testing.assert_array_equal(adapted.logits, folder.logits)
        assert {"train 4", "train 8"} <= set(adapted.seconds)


def test_methods_that_cannot_be_adapted_are_left_alone(graph, tmp_path):
    for method in ("given", "giant"):
        plain = fit(graph, method=method, out=tmp_path / f"{method}-a", **GIANT, **QUICK)
        adapted = fit(graph, method=method, encoder__adapt="giant", out=tmp_path / f"{method}-b", **GIANT, **QUICK)
        assert list(adapted.seconds) == list(plain.seconds)
        np.testing.assert_array_equal(adapted.logits, plain.logits)


def test_a_second_round_learns_from_the_gnn_of_the_first(graph, tmp_path):
    once = fit(graph, method="ld", out=tmp_path / "a", **QUICK)
    twice = fit(graph, method="ld", labels__rounds=2, out=tmp_path / "b", **QUICK)
    Y = np.load(twice.run / "pseudo_labels.npy")
    expected = np.exp(once.logits) / np.exp(once.logits).sum(1, keepdims=True)
    others = graph.split.roles != 0
    np.testing.assert_allclose(Y[others], expected[others], atol=1e-6)
    assert {"train 1", "train", "first gnn 1", "first gnn", "hops 1", "hops"} <= set(twice.seconds)
    assert twice.encoder_nodes - once.encoder_nodes == once.encoder_nodes_by_stage["train"] + graph.num_nodes
    assert not np.array_equal(once.features, twice.features)
