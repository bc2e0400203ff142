"""LabelDeconvolution: scikit-learn's manners, and the numbers of `fit`."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from torch_geometric.nn import GraphSAGE

from labeldeconv import AttributedGraph, LabelDeconvolution, Texts, fit, planted
from labeldeconv.errors import ConfigError, DataError

QUICK = {"train.epochs": 1, "gnn.epochs": 5}


@pytest.fixture
def graph():
    return planted(80, seed=0).graph


def estimator(tmp_path, **words):
    return LabelDeconvolution(**{"encoder": "tiny", "gnn": "gcn", "settings": QUICK, "out": tmp_path / "run", **words})


def test_it_gives_what_fit_gives(graph, tmp_path):
    model = estimator(tmp_path).fit(graph)
    result = fit(graph, method="ld", encoder="tiny", train__epochs=1, gnn__epochs=5, out=tmp_path / "other")
    assert result.cached == list(result.seconds)
    np.testing.assert_array_equal(model.decision_function(graph), result.logits)
    np.testing.assert_array_equal(model.predict(), result.logits.argmax(1))
    np.testing.assert_array_equal(model.transform(graph), result.features)
    np.testing.assert_allclose(model.predict_proba(graph).sum(1), 1, rtol=1e-5)
    assert model.score(graph, "test") == result.test
    assert model.score(role="val") == result.val
    assert model.gamma_ == result.gamma
    assert model.classes_ == graph.class_names


def test_scikit_learns_manners(graph, tmp_path):
    model = estimator(tmp_path, alpha=0.5, hops=1)
    copy = clone(model)
    assert copy is not model
    assert copy.get_params() == model.get_params()
    assert copy.set_params(alpha=0.25) is copy
    assert (copy.alpha, model.alpha) == (0.25, 0.5)
    with pytest.raises(ConfigError, match="no parameter 'alhpa'"):
        copy.set_params(alhpa=1)
    with pytest.raises(ConfigError, match="not fitted yet"):
        copy.predict(graph)
    assert not list(tmp_path.glob("run*"))  # nothing is computed in a constructor
    model.fit(graph)
    assert model.result_.settings["labels"]["alpha"] == 0.5
    assert len(model.gamma_) == 2


def test_auto_and_objects(graph, tmp_path):
    model = estimator(tmp_path, alpha="auto", gnn=GraphSAGE(32, 8, 1, 10)).fit(graph)
    assert model.result_.settings["labels"]["gamma"] == "auto"
    assert model.result_.settings["gnn"]["name"] == "GraphSAGE"


@pytest.mark.parametrize("gnn", ["gcn", "sagn", "gat", "revgat"])
def test_another_graph_is_encoded_and_predicted(graph, tmp_path, gnn):
    model = estimator(tmp_path, gnn=gnn).fit(graph)
    same = replace(graph, name="renamed")
    np.testing.assert_array_equal(model.decision_function(same), model.result_.logits)
    one_more = AttributedGraph(
        texts=Texts.from_strings([*graph.texts, "not piano drum but river"]),
        edges=np.concatenate([graph.edges, [[80], [3]]], axis=1),
        labels=np.append(graph.labels, -1),
        split=replace(graph.split, roles=np.append(graph.split.roles, np.int8(-1))),
        class_names=graph.class_names,
    )
    logits = model.decision_function(one_more)
    assert logits.shape == (81, 10)
    assert np.isfinite(logits).all()
    far = np.setdiff1d(np.arange(80), [3, *graph.edges[1, graph.edges[0] == 3], *graph.edges[0, graph.edges[1] == 3]])
    if gnn == "gcn":  # one layer: only the new node and its neighbour see it
        np.testing.assert_allclose(logits[far[:5]], model.result_.logits[far[:5]], atol=2e-2)
    np.testing.assert_allclose(
        model.transform(["not piano drum but river"])[0], model.transform(one_more)[80], atol=2e-3
    )


@pytest.mark.parametrize(("gnn", "option", "off"), [("sagn", "label_hops", "0"), ("revgat", "label_inputs", "false")])
def test_labels_that_another_graph_lacks_are_asked_for_by_name(graph, tmp_path, gnn, option, off):
    """A GNN that reads labels has none of another graph: it says so, and which option is to be off."""
    settings = {**QUICK, "gnn.options": {option: 1 if off == "0" else True}}
    model = LabelDeconvolution(encoder="tiny", gnn=gnn, method="pne", settings=settings, out=tmp_path / "run")
    model.fit(graph)
    with pytest.raises(
        ConfigError, match=f"{gnn}: label inputs of another graph are not known; {option} {off} expected"
    ):
        model.predict(planted(30, seed=1).graph)


def test_save_and_load(graph, tmp_path):
    model = estimator(tmp_path).fit(graph)
    model.save(tmp_path / "saved")
    loaded = LabelDeconvolution.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.predict(graph), model.predict(graph))
    np.testing.assert_array_equal(loaded.transform(["red", "blue"]), model.transform(["red", "blue"]))
    assert loaded.gamma_ == model.gamma_
    assert loaded.score(graph, "test") == model.score(graph, "test")
    with pytest.raises(DataError, match="an empty folder or none expected"):
        model.save(tmp_path / "saved")


def test_multi_label(tmp_path):
    graph = planted(60, "multilabel", seed=0).graph
    model = estimator(tmp_path).fit(graph)
    assert model.predict(graph).shape == (60, 10)
    assert set(np.unique(model.predict(graph))) <= {0, 1}


def test_names_of_data_work_too(tmp_path):
    assert estimator(tmp_path, method="pne").fit("planted:60").predict().shape == (60,)


def test_the_gnn_is_chosen_unless_named(graph, tmp_path):
    """And the one chosen predicts on other graphs, after loading too."""
    assert LabelDeconvolution().gnn == "auto"
    settings = {**QUICK, "gnn.hidden": 8, "gnn.candidates": ["sage", "mlp"]}
    model = estimator(tmp_path, gnn="auto", settings=settings, method="pne").fit(graph)
    assert model.result_.race["chosen"] in ("sage", "mlp")
    other = planted(30, seed=1).graph
    loaded = LabelDeconvolution.load(tmp_path / "run")
    assert loaded.gnn == model.result_.race["chosen"]
    np.testing.assert_array_equal(loaded.predict(other), model.predict(other))


def test_new_nodes(graph, tmp_path):
    model = estimator(tmp_path).fit(graph)
    told = model.predictor_.predict(["river", "drum"], [("new-0", 3)])
    words = {"texts": ["river", "drum"], "edges": [("new-0", 3)]}
    np.testing.assert_array_equal(model.predict(**words), told.numbers)
    np.testing.assert_array_equal(model.predict_proba(**words), told.probabilities)
    assert told.by == ["gnn", "psi"]
    loaded = LabelDeconvolution.load(model.save(tmp_path / "saved"))
    np.testing.assert_array_equal(loaded.predict(**words, mode="exact"), told.numbers)
    with pytest.raises(ConfigError, match="not fitted yet"):
        estimator(tmp_path).predict(**words)


def test_explain_is_the_predictors(graph, tmp_path):
    model = estimator(tmp_path, method="pne").fit(graph)
    assert model.explain(3, top=1) == model.predictor_.explain(3, top=1)
    assert model.explain("new-0", texts=["river"], edges=[("new-0", 3)]).node == "new-0"
