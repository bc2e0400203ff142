"""The inductive setting: nothing of an evaluation node reaches training."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from labeldeconv import AttributedGraph, Texts, fit, planted
from labeldeconv.errors import ConfigError
from labeldeconv.graph.split import ROLES

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 3, "setting": "inductive"}


@pytest.fixture
def graph():
    return planted(80, seed=0, num_features=6).graph


def spoiled(graph: AttributedGraph) -> AttributedGraph:
    """Other texts, edges and test labels wherever an evaluation node is involved."""
    rng = np.random.default_rng(0)
    evaluation = graph.split.roles > 0
    texts = ["spoiled" if e else t for t, e in zip(graph.texts, evaluation, strict=True)]
    touches = evaluation[graph.edges].any(0)
    edges = graph.edges.copy()
    edges[0, touches] = rng.choice(np.flatnonzero(evaluation), touches.sum())
    labels = graph.labels.copy()
    labels[graph.split.test] = 0
    return AttributedGraph(Texts.from_strings(texts), edges, labels, graph.split, graph.class_names, graph.features)


def test_view_holds_only_train_nodes(graph):
    view = graph.training_view()
    train = graph.split.train
    assert list(view.texts) == graph.texts.take(train)
    np.testing.assert_array_equal(view.labels, graph.labels[train])
    inside = np.isin(graph.edges, train).all(0)
    np.testing.assert_array_equal(train[view.edges], graph.edges[:, inside])
    assert [len(view.split.ids(r)) for r in ROLES] == [len(train), 0, 0]


@pytest.mark.parametrize("adapt", ["none", "giant"])
@pytest.mark.parametrize("method", ["fne", "wo-ld", "ld", "glem", "giant", "joint-gas", "joint-sage"])
def test_encoder_is_the_same_whatever_the_evaluation_nodes_are(graph, method, adapt, tmp_path):
    if method == "joint-gas":
        pytest.importorskip("pymetis", reason="needs the extra metis")
    results = [
        fit(g, method=method, encoder__adapt=adapt, out=tmp_path / f"o{i}", cache=tmp_path / f"c{i}", **QUICK)
        for i, g in enumerate((graph, spoiled(graph)))
    ]
    a, b = ((r.run / "encoder" / "model.safetensors").read_bytes() for r in results)
    assert a == b
    train = graph.split.train
    a, b = (r.features[train].astype(np.float32) for r in results)
    np.testing.assert_allclose(a, b, atol=1e-3)  # float16, and other texts pad the batches otherwise
    assert results[0].features.shape[0] == 80


@pytest.mark.parametrize("gnn", ["gcn", "sagn"])
def test_gnn_is_the_same_whatever_the_evaluation_nodes_are(graph, gnn, tmp_path):
    """With one epoch nothing is selected, so the weights depend on training alone.

    Other texts make other batches, in which bfloat16 rounds a train node's features otherwise.
    """
    quick = {**QUICK, "gnn__epochs": 1, "train__precision": "float32"}
    results = [
        fit(g, method="pne", gnn=gnn, out=tmp_path / f"o{i}", cache=tmp_path / f"c{i}", **quick)
        for i, g in enumerate((graph, spoiled(graph)))
    ]
    a, b = ((r.run / "gnn.safetensors").read_bytes() for r in results)
    assert a == b
    assert not np.array_equal(results[0].logits, results[1].logits)  # the evaluation graphs do differ


def test_jointly_trained_gnn_is_the_one_evaluated(graph, tmp_path):
    result = fit(graph, method="joint-sage", out=tmp_path / "r", **QUICK)
    again = fit(spoiled(graph), method="joint-sage", out=tmp_path / "s", cache=tmp_path / "c", **QUICK)
    trained, used = (load_file(result.run / name) for name in ("psi.safetensors", "gnn.safetensors"))
    for name, weights in used.items():
        np.testing.assert_array_equal(weights, trained[name])
    assert (result.run / "gnn.safetensors").read_bytes() == (again.run / "gnn.safetensors").read_bytes()
    ids = graph.split.val
    assert result.val == pytest.approx((result.logits.argmax(1) == graph.labels)[ids].mean())
    assert not np.array_equal(result.logits, again.logits)


def test_one_round_is_enough_without_pseudo_labels(graph, tmp_path):
    once, twice = (fit(graph, method="ld", labels__rounds=r, out=tmp_path / f"{r}", **QUICK) for r in (1, 2))
    assert list(once.seconds) == list(twice.seconds)


def test_glem_is_fne(graph, tmp_path):
    a, b = (fit(graph, method=m, out=tmp_path / m, **QUICK) for m in ("glem", "fne"))
    np.testing.assert_array_equal(a.logits, b.logits)


def test_ld_still_deconvolves(graph, tmp_path):
    ld, wo = (fit(graph, method=m, out=tmp_path / m, **QUICK) for m in ("ld", "wo-ld"))
    assert len(ld.gamma) == 3
    assert not np.array_equal(ld.features, wo.features)


def test_what_needs_others_says_so(graph, tmp_path):
    with pytest.raises(ConfigError, match="psi_init 'fresh' expected"):
        fit(graph, method="ld", train__psi_init="gnn", out=tmp_path / "r", **QUICK)


def test_alpha_and_all_stages_are_recorded(graph, tmp_path):
    plain = fit(graph, method="wo-ld", out=tmp_path / "wo", **QUICK)
    assert plain.alpha == 0.0
    assert plain.gamma is None
    joint = fit(graph, method="joint-sage", encoder__adapt="giant", out=tmp_path / "j", **QUICK)
    assert {"tokens", "tokens 2", "tree", "train 32", "train", "features", "gnn"} <= set(joint.seconds)
    assert joint.encoder_nodes == sum(joint.encoder_nodes_by_stage.values())
