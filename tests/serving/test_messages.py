"""Bodies of requests: what is taken, and which field is wrong where one is."""

import json
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from labeldeconv import Predictor, fit, planted
from labeldeconv.serving.limits import Limits
from labeldeconv.serving.messages import (
    Asked,
    Refused,
    answered,
    check_size,
    columns_of,
    invalid_fields,
    to_new_nodes,
)

QUICK = {"encoder": "tiny", "gnn__epochs": 2, "gnn__hidden": 8, "encoder__max_tokens": 16, "method": "pne"}


@pytest.fixture(scope="module")
def predictor(ld_run):
    return Predictor.load(ld_run)


def asked(**body):
    return Asked.model_validate(body)


def refused(predictor, columns=None, **body):
    with pytest.raises(Refused) as error:
        to_new_nodes(asked(**body), predictor, columns)
    assert error.value.status == 422
    return {e["field"]: e["message"] for e in error.value.errors}


def test_neighbors_lead_to_the_node_and_edges_are_as_given(predictor):
    nodes = [{"text": "river", "neighbors": [3, "new-1"]}, {"text": "drum"}]
    new = to_new_nodes(asked(nodes=nodes, edges=[["new-0", 7]]), predictor, None)
    assert new.ids == ["new-0", "new-1"]
    assert new.texts == ["river", "drum"]
    assert new.edges.tolist() == [[3, 81, 80], [80, 80, 7]]


def test_unknown_ids_are_named_by_their_field(predictor):
    nodes = [{"text": "river", "id": "a", "neighbors": [3, 999]}, {"text": "drum", "id": 5}]
    told = refused(predictor, nodes=nodes, edges=[["a", "b"], [1, 2]])
    assert set(told) == {"nodes[1].id", "nodes[0].neighbors[1]", "edges[1]"}
    assert "nodes[0].neighbors[1] ('999'), edges[0] ('b')" in told["nodes[0].neighbors[1]"]
    assert "did you mean" not in told["nodes[0].neighbors[1]"]
    assert "in the run's graph already" in told["nodes[1].id"]
    assert "one end of a new edge is new" in told["edges[1]"]


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["nodes"]),
        ({"nodes": []}, ["nodes"]),
        ({"nodes": [{"text": 5}]}, ["nodes[0].text"]),
        ({"nodes": [{"text": "a", "neighbors": [True]}]}, ["nodes[0].neighbors[0]"]),
        ({"nodes": [{"text": "a", "id": "x" * 300}]}, ["nodes[0].id"]),
        ({"nodes": [{"text": "a", "txt": "b"}]}, ["nodes[0].txt"]),
        ({"nodes": [{"text": "a"}], "edges": [["new-0"]]}, ["edges[0][1]"]),
        ({"nodes": [{"text": "a"}], "mode": "quick", "alone": 3}, ["mode", "alone"]),
        ({"nodes": [{"features": [1.0, float("nan")]}]}, ["nodes[0].features[1]"]),
    ],
)
def test_a_wrong_field_is_named(body, fields):
    with pytest.raises(ValidationError) as error:
        asked(**body)
    assert [name for name, _ in invalid_fields(error.value.errors())] == fields


def test_sizes():
    small = Limits(nodes=2, edges=3, text=5)
    check_size(asked(nodes=[{"text": "12345", "neighbors": [1, 2]}, {"text": ""}], edges=[[1, 2]]), small)
    for body, field in (
        ({"nodes": [{"text": ""}] * 3}, "nodes"),
        ({"nodes": [{"text": "", "neighbors": [1, 2, 3, 4]}]}, "nodes[].neighbors"),
        ({"nodes": [{"text": ""}], "edges": [[1, 2]] * 4}, "edges"),
        ({"nodes": [{"text": ""}, {"text": "123456"}]}, "nodes[1].text"),
        ({"nodes": [{"text": {"a": "123", "b": 4567}}]}, "nodes[0].text"),
    ):
        with pytest.raises(Refused) as error:
            check_size(asked(**body), small)
        assert (error.value.status, error.value.errors[0]["field"]) == (413, field)


def test_a_run_on_texts_takes_texts(predictor):
    assert columns_of(predictor) is None
    nodes = [{"text": {"a": "b"}}, {"text": "river", "features": [1.0]}, {}]
    told = refused(predictor, nodes=nodes, edge_features=[[1.0]])
    assert set(told) == {"nodes[0].text", "nodes[1].features", "nodes[2].text", "edge_features"}


def test_a_run_on_records_takes_its_columns(tmp_path):
    graph = planted(80, seed=0).graph
    texts = type(graph.texts).from_strings(json.dumps({"title": text, "year": "7"}) for text in graph.texts)
    fit(replace(graph, texts=texts, attributes="record"), out=tmp_path / "run", **QUICK)
    predictor = Predictor.load(tmp_path / "run")
    columns = columns_of(predictor)
    assert columns == ["title", "year"]
    told = refused(predictor, columns, nodes=[{"text": "river"}, {"text": {"title": "river"}}])
    assert told["nodes[0].text"] == "an object with the columns title, year expected"
    assert len(told) == 2
    new = to_new_nodes(asked(nodes=[{"text": {"title": "river", "year": 7}}]), predictor, columns)
    assert json.loads(new.texts[0]) == {"title": "river", "year": "7"}
    assert predictor.predict_nodes(new).by == ["gnn"]  # PNE has no psi


def test_a_run_on_given_features_takes_numbers(tmp_path):
    X = np.random.default_rng(0).normal(size=(80, 5)).astype(np.float32)
    fit(replace(planted(80, seed=0).graph, features=X), out=tmp_path / "run", **{**QUICK, "method": "given"})
    predictor = Predictor.load(tmp_path / "run")
    told = refused(predictor, nodes=[{"text": "river"}, {"features": [1, 2]}])
    assert told["nodes[0].text"].startswith("no text expected")
    assert told["nodes[1].features"] == "5 numbers expected, got 2"
    new = to_new_nodes(asked(nodes=[{"features": [1, 2, 3, 4, 5]}]), predictor, None)
    assert new.features.tolist() == [[1, 2, 3, 4, 5]]


def test_edge_features(tmp_path):
    graph = planted(80, seed=0).graph
    graph = replace(graph, edge_features=np.ones((graph.num_edges, 2), np.float32))
    fit(graph, out=tmp_path / "run", gnn="gat", gnn__options={"edge_dim": 2}, **QUICK)
    predictor = Predictor.load(tmp_path / "run")
    node = {"text": "river", "neighbors": [3]}
    assert "nodes[0].neighbors" in refused(predictor, nodes=[node])
    edge = {"nodes": [{"text": "river"}], "edges": [["new-0", 3]]}
    assert "edge_features" in refused(predictor, **edge)
    assert "edge_features" in refused(predictor, **edge, edge_features=[[1.0]])
    new = to_new_nodes(asked(**edge, edge_features=[[1.0, 2.0]]), predictor, None)
    assert new.edge_values.tolist() == [[1, 2]]


def test_an_answer_is_what_was_predicted(predictor):
    told = predictor.predict(["river", "drum"], [("new-0", 3)])
    body = json.loads(answered(told, features=True))
    assert body["class_names"] == told.class_names
    for i, node in enumerate(body["nodes"]):
        assert (node["id"], node["prediction"], node["by"]) == (told.ids[i], told.classes[i], told.by[i])
        np.testing.assert_allclose(node["probabilities"], told.probabilities[i], atol=1e-6)
        assert node["probability"] == max(node["probabilities"])
        np.testing.assert_allclose(node["features"], told.features[i], rtol=1e-6)
    assert "features" not in json.loads(answered(told, features=False))["nodes"][0]
