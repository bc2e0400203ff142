"""Label Deconvolution: gamma, rounds, nodes, and its ablation."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from labeldeconv import fit
from labeldeconv.errors import ConfigError
from labeldeconv.labels.gamma import Candidate
from labeldeconv.methods.base import METHODS
from labeldeconv.settings.reading import load_config

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


def test_ld_heads_is_ld_with_hop_targets(graph, tmp_path):
    named = fit(graph, method="ld-heads", out=tmp_path / "a", **QUICK)
    option = fit(graph, method="ld", labels__targets="hops", out=tmp_path / "b", **QUICK)
    mixed = fit(graph, method="ld", out=tmp_path / "c", **QUICK)
    np.testing.assert_array_equal(named.features, option.features)
    np.testing.assert_array_equal(named.logits, option.logits)
    assert not np.array_equal(named.features, mixed.features)
    assert named.gamma is None
    assert named.alpha is None
    assert {"first gnn", "pseudo", "hops"} <= set(option.cached) & set(mixed.cached)  # shared with the mix
    psi = load_file(named.run / "psi.safetensors")  # head 0 alone, as a GNN's weights
    assert {k: v.shape for k, v in psi.items()} == {
        k: v.shape for k, v in load_file(mixed.run / "psi.safetensors").items()
    }


def test_settings_of_hop_heads_change_what_is_learned(graph, tmp_path):
    plain = fit(graph, method="ld-heads", out=tmp_path / "a", **QUICK)
    for name, value in (("labels__own", "all"), ("labels__hop_weights", [1.0, 0.0, 0.0])):
        other = fit(graph, method="ld-heads", out=tmp_path / name, **{name: value}, **QUICK)
        assert not np.array_equal(plain.features, other.features), name
    directed = fit(graph, method="ld-heads", labels__adjacency__undirected=False, out=tmp_path / "d", **QUICK)
    assert "hops back" in directed.seconds
    assert "hops back" not in plain.seconds
    fit(graph, method="ld-heads", train__psi_init="gnn", gnn__init="psi", out=tmp_path / "w", **QUICK)


def test_only_the_own_head_on_all_nodes_is_wo_ld(graph, tmp_path):
    """With all weight on a head 0 that learns pseudo labels, the gradient is WO/LD's, and other outputs stand still."""
    heads = {"labels__own": "all", "labels__hop_weights": [1.0, 0.0, 0.0], "train__clip": 0.0}
    psi = {"train__psi_init": "gnn", "train__psi_norm": "layer", "gnn__options": {"norm": "none"}}  # equal starts
    a = fit(graph, method="ld-heads", out=tmp_path / "a", **heads, **psi, **QUICK)
    b = fit(graph, method="wo-ld", out=tmp_path / "b", train__clip=0.0, **psi, **QUICK)
    np.testing.assert_allclose(a.features, b.features, atol=2e-3)


@pytest.mark.parametrize("method", ["ld", "ld-heads"])
def test_what_hop_heads_cannot_follow_is_refused_before_anything_runs(graph, tmp_path, method):
    from torch_geometric.nn.models import GCN

    hops = {"method": method, "labels__targets": "hops", "out": tmp_path / "r", **QUICK}
    with pytest.raises(ConfigError, match=r"labels\.pseudo_weight: .* labels\.own"):
        fit(graph, labels__pseudo_weight=0.3, **hops)
    with pytest.raises(ConfigError, match=r"labels\.hop_weights: 3 weights, not all 0, expected, .* got \[1\.0\]"):
        fit(graph, labels__hop_weights=[1.0], **hops)
    with pytest.raises(ConfigError, match=r"labels\.hop_weights: 5 weights"):
        fit(graph, labels__hop_weights=[1.0, 1.0, 1.0], labels__adjacency__undirected=False, **hops)
    with pytest.raises(ConfigError, match="give its class instead"):
        fit(graph, gnn=GCN(48, 8, 2, 10), **hops)


def test_algorithm_1_by_hand(graph, tmp_path):
    """The stages of a run, called one by one as the paper's lines are written, give the run's very bytes."""
    from labeldeconv import Cache, session
    from labeldeconv.encoders.pretrained import Pretrained, Weights
    from labeldeconv.encoders.tokens import tokens
    from labeldeconv.gnns.architecture import Architecture
    from labeldeconv.graph.task import Task
    from labeldeconv.labels.hops import hops
    from labeldeconv.labels.pseudo import pseudo
    from labeldeconv.labels.targets import InverseTargets
    from labeldeconv.runs.asked import resolve
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


@pytest.mark.parametrize("method", ["ld", "wo-ld"])
@pytest.mark.parametrize(("nodes", "count"), [("all", 80), ("train", 48)])
def test_work_by_hand(graph, method, nodes, count):
    """Three rounds of two epochs; X_PNE and its GNN come before the first."""
    settings = load_config(None, {"labels.rounds": 3, "train.epochs": 2, "labels.nodes": nodes})
    work = METHODS[method].work(graph, settings, 2)
    assert (work.trained, work.exports, work.gnns) == (3 * 2 * count, 4, 4)


def test_without_deconvolution_there_is_one_hop_and_no_gamma_to_choose(graph, tmp_path):
    result = fit(graph, method="wo-ld", labels__gamma="auto", out=tmp_path / "r", **QUICK)
    assert "gamma" not in result.seconds
    assert np.load(tmp_path / "cache" / result.stages["hops"] / "values.npy").shape == (80, 1, 10)


def test_gamma_auto_without_validation_nodes(graph, tmp_path):
    with pytest.raises(ConfigError, match="'auto': validation nodes expected"):
        fit(graph, method="ld", labels__gamma="auto", setting="inductive", out=tmp_path / "r", **QUICK)
