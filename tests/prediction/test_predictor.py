"""Predictor: new nodes of a finished run, equal to encoding and computing the whole grown graph anew."""

import shutil
from dataclasses import replace

import duckdb
import numpy as np
import pytest
import torch
from torch_geometric.nn import GraphSAGE

from labeldeconv import AttributedGraph, LabelDeconvolution, Predictor, Split, Texts, fit, planted
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.runs.calibration import calibration_error

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5, "gnn__hidden": 8, "encoder__max_tokens": 16}
TEXTS = ["not piano drum but river", "", "river", "quiet"]
EDGES = [("new-0", 3), (5, "new-0"), ("new-1", "new-0"), ("new-0", "new-1"), ("new-2", 3), ("new-2", "new-2")]
NUMBERS = np.array([[80, 5, 81, 80, 82], [3, 80, 80, 81, 3]])


@pytest.fixture(scope="module")
def ld(tmp_path_factory):
    """A run of ld with GCN on 80 nodes, without its cache."""
    folder = tmp_path_factory.mktemp("ld")
    fit(planted(80, seed=0).graph, out=folder / "run", cache=folder / "cache", **QUICK)
    shutil.rmtree(folder / "cache")
    return folder / "run"


def grown_graph(graph):
    """The graph with the new nodes in it."""
    multilabel = graph.task == "multilabel"
    none = np.full((4, graph.num_classes) if multilabel else 4, -1, graph.labels.dtype)
    return AttributedGraph(
        texts=Texts.from_strings([*graph.texts, *TEXTS]),
        edges=np.concatenate([graph.edges, NUMBERS], axis=1),
        labels=np.concatenate([graph.labels, none]),
        split=Split(np.concatenate([graph.split.roles, np.full(4, -1, np.int8)])),
        class_names=graph.class_names,
    )


@pytest.mark.parametrize("kind", ["multiclass", "multilabel"])
@pytest.mark.parametrize("gnn", ["gcn", "gat", "revgat", "sagn", "gamlp", "spegnn", "directed", "both"])
def test_exact_equals_the_whole_graph_encoded_anew(tmp_path, gnn, kind):
    graph = planted(80, kind, seed=0).graph
    more = {"directed": {"gnn__adjacency__undirected": False}, "both": {"method": "fne", "gnn__inputs": "both"}}
    of_gnn = {"gnn": "gcn", **more[gnn]} if gnn in more else {"gnn": gnn}
    fit(graph, out=tmp_path / "run", **{**QUICK, "method": "pne", **of_gnn})
    predictor = Predictor.load(tmp_path / "run")
    told = predictor.predict(TEXTS, EDGES, alone="gnn")
    encoded = replace(predictor.new_nodes(TEXTS, EDGES), features=told.features)  # as a server has them
    np.testing.assert_allclose(predictor.predict_nodes(encoded, alone="gnn").logits, told.logits, atol=1e-5)
    model = LabelDeconvolution.load(tmp_path / "run")
    whole = grown_graph(graph)
    np.testing.assert_allclose(told.features, model.transform(whole)[80:], atol=2e-3)
    wanted = model.decision_function(whole)[80:]
    np.testing.assert_allclose(told.logits, wanted, atol=2e-3 * max(1, np.abs(wanted).max()))
    assert told.by == ["gnn"] * 4
    assert np.isfinite(told.probabilities).all()
    if kind == "multiclass":
        np.testing.assert_allclose(told.probabilities.sum(1), 1, rtol=1e-5)
        assert told.classes == [graph.class_names[k] for k in told.numbers]
    else:
        assert told.classes[0] == [graph.class_names[k] for k in np.flatnonzero(told.numbers[0])]


def test_lone_nodes_go_to_psi_and_say_so(ld):
    predictor = Predictor.load(ld)
    told = predictor.predict(TEXTS, EDGES)
    assert told.by == ["gnn", "gnn", "gnn", "psi"]
    by_gnn = predictor.predict(TEXTS, EDGES, alone="gnn")
    assert by_gnn.by == ["gnn"] * 4
    np.testing.assert_array_equal(told.logits[:3], by_gnn.logits[:3])
    assert not np.allclose(told.logits[3], by_gnn.logits[3], atol=1e-3)
    temperature = predictor.psi[1]
    np.testing.assert_allclose(
        told.probabilities[3],
        predictor.task.probabilities(torch.from_numpy(told.logits[3]), temperature).numpy(),
        rtol=1e-5,
    )
    scaled = predictor.task.probabilities(torch.from_numpy(told.logits[0]), predictor.run.calibration["temperature"])
    np.testing.assert_allclose(told.probabilities[0], scaled.numpy(), rtol=1e-5)


def test_calibration_is_in_the_result_and_found_for_older_runs(ld):
    predictor = Predictor.load(ld)
    told = predictor.run.result["calibration"]
    graph, task = predictor.run.graph, predictor.task
    val = graph.split.val
    error = calibration_error(task, predictor.run.logits[val], graph.labels[val], told["temperature"])
    assert told["ece_val"]["after"] == pytest.approx(error, abs=1e-5)
    older = Predictor.load(ld).run
    del older.result["calibration"]
    assert older.calibration == told


def test_fast_is_near(ld, tmp_path):
    predictor = Predictor.load(ld, cache=tmp_path / "kept")
    exact, fast = (predictor.predict(TEXTS, EDGES, mode=mode) for mode in ("exact", "fast"))
    assert np.abs(exact.logits - fast.logits).max() < 0.5 * np.abs(exact.logits).max()
    assert (tmp_path / "kept" / "activations").is_dir()
    again = predictor.predict(TEXTS[:1], EDGES[:2], mode="fast")
    assert again.by == ["gnn"]


def test_ids_of_ones_own_and_no_edges(ld):
    predictor = Predictor.load(ld)
    told = predictor.predict(["river", "drum"], [("b", 3)], ids=["a", "b"])
    assert (told.ids, told.by) == (["a", "b"], ["psi", "gnn"])
    assert predictor.predict(["river"]).by == ["psi"]
    nothing = predictor.predict([])
    assert (len(nothing), nothing.probabilities.shape, nothing.features.shape) == (0, (0, 10), (0, 32))


def test_mistakes(ld):
    predictor = Predictor.load(ld)
    for words, message in (
        ({"texts": ["a"], "ids": ["x", "y"]}, "as many ids as nodes expected, got 2 for 1"),
        ({"texts": ["a"], "ids": [7]}, "ids are in the run's graph already"),
        ({"texts": ["a"], "edges": [("new-0", 80)]}, r"edges: 1 edges name a node .* edge 0 \('80'\)"),
        ({"texts": ["a"], "edges": [(1, 2)]}, "edges join two nodes of the graph"),
        ({"features": np.zeros((1, 32))}, "texts, and no features, expected, as method 'ld' has learned on them"),
        ({}, "texts, and no features, expected"),
    ):
        with pytest.raises(DataError, match=message):
            predictor.predict(**words)
    for words in ({"mode": "quick"}, {"alone": "nobody"}):
        with pytest.raises(ConfigError, match="expected, got"):
            predictor.predict(["a"], **words)


def test_given_features(tmp_path):
    rng = np.random.default_rng(0)
    graph = replace(planted(80, seed=0).graph, features=rng.normal(size=(80, 5)).astype(np.float32))
    fit(graph, method="given", out=tmp_path / "run", **QUICK)
    predictor = Predictor.load(tmp_path / "run")
    x = rng.normal(size=(4, 5))
    told = predictor.predict(features=x, edges=EDGES)
    whole = replace(grown_graph(graph), features=np.concatenate([graph.features, x.astype(np.float32)]))
    wanted = LabelDeconvolution.load(tmp_path / "run").decision_function(whole)[80:]
    np.testing.assert_allclose(told.logits, wanted, atol=1e-4)
    np.testing.assert_allclose(told.features, x)
    for words, message in (
        ({"texts": ["a"]}, r"features \(m, d\) expected, as method 'given' has learned on them"),
        ({"features": np.zeros((1, 6))}, r"features \(1, 5\) expected, as the run has them, got \(1, 6\)"),
        ({"features": np.full((1, 5), np.nan)}, "features of row 0 are not finite numbers"),
    ):
        with pytest.raises(DataError, match=message):
            predictor.predict(**words)


def test_edge_features(tmp_path):
    rng = np.random.default_rng(0)
    graph = planted(80, seed=0).graph
    graph = replace(graph, edge_features=rng.random((graph.num_edges, 2)).astype(np.float32))
    fit(graph, method="pne", gnn="gat", gnn__options={"edge_dim": 2}, out=tmp_path / "run", **QUICK)
    predictor, weights = Predictor.load(tmp_path / "run"), rng.random((5, 2)).astype(np.float32)
    told = predictor.predict(TEXTS, EDGES[:5], edge_features=weights)
    whole = replace(grown_graph(graph), edge_features=np.concatenate([graph.edge_features, weights]))
    wanted = LabelDeconvolution.load(tmp_path / "run").decision_function(whole)[80:]
    np.testing.assert_allclose(told.logits, wanted, atol=2e-3)
    with pytest.raises(DataError, match=r"edge features \(5, 2\) expected"):
        predictor.predict(TEXTS, EDGES[:5])
    with pytest.raises(DataError, match="edge features of row 1 are not finite"):
        predictor.predict(TEXTS, EDGES[:2], edge_features=np.array([[0, 0], [np.nan, 0]]))


def test_a_gnn_given_as_an_object_is_given_again(tmp_path):
    module = GraphSAGE(32, 8, 2, 10)
    model = LabelDeconvolution("pne", "tiny", module, out=tmp_path / "run", settings={"gnn.epochs": 3})
    model.fit(planted(80, seed=0).graph)
    told = model.predictor_.predict(TEXTS, EDGES)
    np.testing.assert_allclose(told.logits, model.decision_function(grown_graph(model.run_.graph))[80:], atol=2e-3)
    with pytest.raises(ConfigError, match=r"gnn.name 'GraphSAGE': unknown"):
        Predictor.load(tmp_path / "run").predict(TEXTS, EDGES)
    assert Predictor.load(tmp_path / "run", gnn=module).predict(TEXTS, EDGES).by == ["gnn"] * 4


def test_a_table_of_predictions(ld, tmp_path):
    told = Predictor.load(ld).predict(TEXTS, EDGES)
    path = told.save(tmp_path / "out.parquet")
    asked = 'id, prediction, probability, "by", len(probabilities), len(features)'
    rows = duckdb.sql(f"SELECT {asked} FROM '{path}'").fetchall()
    assert rows[3] == ("new-3", told.classes[3], pytest.approx(told.probabilities[3].max()), "psi", 10, 32)
    assert "features" not in told.columns(features=False)


def test_old_nodes_are_explained_by_their_own_logits(ld):
    predictor = Predictor.load(ld)
    graph = predictor.run.graph
    for node in (3, 17):
        told, best = predictor.explain(node, top=2), int(predictor.run.logits[node].argmax())
        assert (told.node, told.of, told.by) == (str(node), graph.class_names[best], "gnn")
        assert told.logit == pytest.approx(predictor.run.logits[node, best], abs=2e-3)
        parts = [told.own, told.others, told.gap, *(n.contribution for n in told.neighbours)]
        assert sum(parts) == pytest.approx(told.logit - told.baseline, abs=1e-5)
        assert len(told.neighbours) == 2
        for near in told.neighbours:
            assert near.label == graph.class_names[graph.labels[int(near.id)]]
    other = predictor.explain(3, of="topic 7")
    assert other.logit == pytest.approx(predictor.run.logits[3, 7], abs=2e-3)
    with pytest.raises(DataError, match="no node '99' in the run's graph; did you mean '9'"):
        predictor.explain(99)


def test_new_nodes_are_explained_as_they_are_predicted(ld):
    predictor = Predictor.load(ld)
    told = predictor.predict(TEXTS, EDGES)
    first = predictor.explain("new-0", texts=TEXTS, edges=EDGES)
    assert first.logit == pytest.approx(told.logits[0].max(), abs=1e-4)
    assert {"3", "5", "new-1"} <= {n.id for n in first.neighbours}
    assert next(n for n in first.neighbours if n.id == "new-1").label is None
    alone = predictor.explain("new-3", texts=TEXTS, edges=EDGES)
    assert (alone.by, alone.how, alone.neighbours, len(alone.by_hop)) == ("psi", "exact", [], 1)
    assert alone.logit == pytest.approx(told.logits[3].max(), abs=1e-4)
    assert alone.own == pytest.approx(alone.logit - alone.baseline)
    by_gnn = predictor.explain("new-3", texts=TEXTS, edges=EDGES, alone="gnn")
    assert by_gnn.by == "gnn"
    old = predictor.explain(3, texts=TEXTS, edges=EDGES)  # of the graph as it was, whatever else is given
    assert old == predictor.explain(3)


def test_contributions_follow_how_planted_labels_were_made(tmp_path):
    """phi = A-hat - 1.2 I: a label is what the neighbours are about; the node's own topic is not it."""
    truth = planted(600, seed=0, decoy_words=0.0, num_classes=5, num_words=12)
    settings = {"train__lr": 3e-3, "train__epochs": 4, "encoder": "tiny", "encoder__max_tokens": 24, "gnn": "spegnn"}
    settings |= {"gnn__layers": 1, "gnn__epochs": 100, "gnn__lr": 0.05, "gnn__dropout": 0.0, "train__gamma_lr": 1e-2}
    settings |= {"gnn__adjacency__normalization": "row", "gnn__adjacency__self_loops": False}
    fit(truth.graph, method="ld", out=tmp_path / "run", **settings)
    predictor, graph = Predictor.load(tmp_path / "run"), truth.graph
    topics = truth.inverse_labels.argmax(1)
    hops = {
        what: np.mean([predictor.explain(v, of=graph.class_names[k[v]]).by_hop for v in graph.split.test[:60]], 0)
        for what, k in (("label", graph.labels), ("topic", topics))
    }
    assert hops["label"][1] > 0.2
    assert hops["label"][1] > 5 * abs(hops["label"][0])
    assert np.abs(hops["topic"]).max() < 0.2 * hops["label"][1]


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("gnn", ["gcn", "revgat", "gamlp", "directed"])
def test_calls_at_once_are_apart(tmp_path, gnn, mode, monkeypatch):
    """Calls of other sizes, with the same ids and neighbours, give what each gives alone; also in groups of two."""
    more = {"gnn": "gcn", "gnn__adjacency__undirected": False, "gnn__layers": 3} if gnn == "directed" else {"gnn": gnn}
    fit(planted(80, seed=0).graph, method="pne", out=tmp_path / "run", **{**QUICK, **more})
    predictor = Predictor.load(tmp_path / "run")
    calls = [
        predictor.new_nodes(TEXTS, EDGES),
        predictor.new_nodes(["river"], [("new-0", 3)]),
        predictor.new_nodes(["a"]),
    ]
    wanted = [predictor.predict_nodes(new, mode) for new in calls]
    for most in (1 << 21, 2 * 80):
        monkeypatch.setattr("labeldeconv.prediction.logits.COPIED", most)
        for one, told in zip(wanted, predictor.predict_apart(calls, mode), strict=True):
            np.testing.assert_allclose(told.logits, one.logits, atol=1e-4 * max(1, np.abs(one.logits).max()))
            np.testing.assert_allclose(told.features, one.features, atol=2e-3)
            assert (told.ids, told.by) == (one.ids, one.by)


def test_a_gnn_that_reads_its_own_predictions_needs_the_whole_graph(tmp_path):
    """RevGAT with label inputs: train labels are shown, all others are predicted first, the new nodes' too."""
    graph, options = planted(80, seed=0).graph, {"label_inputs": True, "heads": 1}
    fit(graph, method="pne", gnn="revgat", gnn__options=options, out=tmp_path / "run", **{**QUICK, "gnn__epochs": 20})
    predictor = Predictor.load(tmp_path / "run")
    told = predictor.predict(TEXTS, EDGES, alone="gnn")
    model, new = predictor.model, predictor.inputs(told.features)
    grown = model.grow(4, NUMBERS)
    shown = replace(model, reuse=replace(model.reuse, config=model.reuse.config.model_copy(update={"iterations": 0})))
    plain = shown.on_the_whole(grown, new, NUMBERS, grown.new_nodes)
    assert np.abs(told.logits - plain).max() > 1e-3  # without their own predictions they are others
    two = predictor.predict_apart([predictor.new_nodes(TEXTS, EDGES), predictor.new_nodes(TEXTS[:1], EDGES[:1])])
    assert np.isfinite(two[1].logits).all()
    with pytest.raises(ConfigError, match="label_inputs false expected"):
        predictor.explain(0)
