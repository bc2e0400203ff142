"""Label Deconvolution: gamma, rounds, nodes, and its ablation."""

import json

import numpy as np

from labeldeconv import fit
from labeldeconv.labels.gamma import Candidate

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5}


def chosen(monkeypatch, *gamma):
    monkeypatch.setattr(
        "labeldeconv.labels.gamma.choose_gamma", lambda *_: [Candidate(np.array(gamma), 1.0, 0.0, 0.0, 0.0)]
    )


def manifest(tmp_path, stage):
    return json.loads((tmp_path / "cache" / stage / "stage.json").read_text())


def test_gamma_auto_keeps_the_chosen_gamma(graph, tmp_path, monkeypatch):
    chosen(monkeypatch, 0.2, 0.3, 0.5)
    result = fit(graph, method="ld", labels__gamma="auto", train__gamma_lr=0.1, out=tmp_path / "r", **QUICK)
    np.testing.assert_allclose(result.gamma, [0.2, 0.3, 0.5], atol=1e-6)
    values = manifest(tmp_path, result.stages["gamma"])["values"]
    assert values["candidates"] == [{"gamma": [0.2, 0.3, 0.5], "score": 1.0, "error": 0.0, "lead": 0.0, "doubt": 0.0}]


def test_gamma_auto_is_wo_ld_where_nothing_is_surely_better(graph, tmp_path, monkeypatch):
    chosen(monkeypatch, 1.0, 0.0, 0.0)
    auto = fit(graph, method="ld", labels__gamma="auto", out=tmp_path / "a", **QUICK)
    plain = fit(graph, method="wo-ld", out=tmp_path / "b", **QUICK)
    np.testing.assert_array_equal(auto.features, plain.features)
    assert auto.gamma is None
    assert auto.alpha == plain.alpha == 0.0
    assert {"gamma", "hops", "hops of Y"} <= set(auto.seconds)  # both are paid for


def test_ld_on_train_nodes_alone_never_trains_on_others(tmp_path):
    settings = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5, "cache": tmp_path / "cache"}
    every = fit("planted:80", method="ld", out=tmp_path / "a", **settings)
    few = fit("planted:80", method="ld", labels__nodes="train", out=tmp_path / "b", **settings)
    assert every.encoder_nodes_by_stage["train"] == 80
    assert few.encoder_nodes_by_stage["train"] == 48
    # With alpha = 0 only the train nodes' true labels are left: FNE behind psi (fixed point keeps one-hot rows exact).
    plain = fit("planted:80", method="wo-ld", labels__nodes="train", out=tmp_path / "c", **settings)
    fne = fit("planted:80", method="fne", train__head="psi", out=tmp_path / "d", **settings)
    np.testing.assert_array_equal(plain.features, fne.features)


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


def test_algorithm_1_by_hand(graph, tmp_path):
    """The stages of a run, called one by one as the paper's lines are written, give the run's very bytes."""
    import torch

    from labeldeconv import Cache, session
    from labeldeconv.encoders.pretrained import Pretrained, Weights
    from labeldeconv.encoders.tokens import tokens
    from labeldeconv.gnns.architecture import Architecture
    from labeldeconv.graph.task import Task
    from labeldeconv.labels.hops import hops
    from labeldeconv.labels.pseudo import pseudo
    from labeldeconv.labels.targets import InverseTargets
    from labeldeconv.runs.fit import resolve
    from labeldeconv.settings.reading import load_config
    from labeldeconv.training.encoder import PsiHead, train
    from labeldeconv.training.features import features
    from labeldeconv.training.gnn import gnn

    result = fit(graph, method="ld", train__precision="float32", out=tmp_path / "r", **QUICK)
    s = resolve(load_config(None, result.settings | {"data": graph.name}))
    with session(Cache(tmp_path / "other")):
        encoder, architecture = Weights(Pretrained(s.encoder)), Architecture.of(s.gnn)
        read = tokens(graph.texts, encoder.pretrained.tokenizer, s.encoder.max_tokens)
        X_PNE = features(read, encoder, "float32")
        first = gnn(X_PNE, graph, architecture, s.gnn, s.seed)
        Y = pseudo(first, graph, s.labels.temperature)
        K = hops(Y, graph, s.labels.adjacency, architecture.hops, s.labels.store)
        targets = InverseTargets(K, s.labels.alpha, Task.of(graph))
        trained = train(read, encoder, PsiHead(architecture, 10), targets, np.arange(80), s.train, s.seed)
        X_LD = features(read, encoder.with_trained(trained), "float32")
        last = gnn(X_LD, graph, architecture, s.gnn, s.seed)
    np.testing.assert_array_equal(X_LD.values, result.features)
    np.testing.assert_array_equal(last.logits, result.logits)
    assert trained.gamma == result.gamma
    assert torch.isfinite(torch.from_numpy(np.array(last.logits))).all()
