"""Nodes whose labels are numbers, in the page: in the unit of the labels, at sensible decimals, with their errors."""

from dataclasses import replace

import numpy as np
import pytest

from labeldeconv import Predictor, fit, planted
from labeldeconv.graph.task import RegressionTask
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.report.blocks import embedded
from labeldeconv.report.source import open_source
from labeldeconv.report.tabs.node_numbers import TARGETS, decimals, far_off
from labeldeconv.report.tabs.nodes import nodes
from tests.report.run_writing import ring, write_comparison, write_run


def data(source, **bounds):
    adj = Adjacency.from_edges(source.graph.edges, source.graph.num_nodes)
    (block,) = nodes(source, adj, **bounds).blocks
    return block.data, block.note


@pytest.mark.parametrize(("std", "places"), [(9.7, 2), (10.2, 1), (250, 0), (99_000, 0), (0.0031, 5), (1, 2)])
def test_decimals_follow_the_spread_of_the_labels(std, places):
    assert decimals(std) == places


def test_predictions_are_means_over_seeds_in_the_unit_of_the_labels(tmp_path):
    source = open_source(write_comparison(tmp_path, ring(numbers=2), seeds=3))
    found, note = data(source)
    assert note == "All 60 nodes."
    mean, std, digits = found["unit"]
    train = source.graph.labels[source.graph.split.train]
    assert mean == pytest.approx(train.mean(0), rel=1e-5)
    assert std == pytest.approx(train.std(0), rel=1e-5)
    assert digits == [decimals(s) for s in std]
    for entry, place in zip(source.entries, (0, 1), strict=True):
        values = np.stack([np.array(r.logits) for r in entry.runs]) * train.std(0) + train.mean(0)
        for i, node in enumerate(found["nodes"]):
            numbers, spreads, far = node["p"][place]
            truth = source.graph.labels[i]
            assert node["y"] == pytest.approx(truth, abs=0.051)
            assert numbers == pytest.approx(values[:, i].mean(0), abs=0.051)
            assert spreads == pytest.approx(values[:, i].std(0, ddof=1), abs=0.051)
            assert far == pytest.approx(np.mean(np.abs(values[:, i].mean(0) - truth) / train.std(0)), abs=1e-4)


def test_hops_and_their_mix_are_in_the_unit_of_the_labels(tmp_path):
    """The run keeps K in standard units: K_1 here is the mean of the neighbours' numbers."""
    source = open_source(write_comparison(tmp_path, ring(numbers=2)))
    found, _ = data(source)
    assert found["slices"] == ["true", "K0 pseudo", "K1", "inverse"]
    Y, n = source.graph.labels, 60
    A = np.zeros((n, n))
    a, b = source.graph.edges
    A[a, b] = A[b, a] = 1
    K1 = A @ Y / A.sum(1, keepdims=True)
    for i, node in enumerate(found["nodes"]):
        for k in range(2):
            want = [Y[i, k], Y[i, k], K1[i, k], 0.3 * Y[i, k] + 0.7 * K1[i, k]]
            assert node["b"][k] == pytest.approx(want, abs=0.051)


def test_missing_numbers_are_empty_and_not_judged(tmp_path):
    graph = ring(numbers=2)
    labels = graph.labels.copy()
    labels[3] = labels[7, 0] = np.nan
    source = open_source(write_comparison(tmp_path, replace(graph, labels=labels)))
    found, _ = data(source)
    none, half = found["nodes"][3], found["nodes"][7]
    assert none["y"] is None
    assert np.isnan(none["p"][0][2])
    assert embedded(none["p"][0]).endswith("null]")
    assert np.isnan(half["y"][0])
    assert half["p"][0][2] == pytest.approx(abs(half["p"][0][0][1] - labels[7, 1]) / found["unit"][1][1], abs=0.01)


def test_how_far_counts_known_targets_alone():
    task = RegressionTask("regression", 2, None, None, (0.0, 0.0), (2.0, 10.0))
    labels = np.array([[0.0, 0.0], [np.nan, 0.0], [np.nan, np.nan]])
    np.testing.assert_allclose(far_off(task, np.array([[2.0, 5.0]] * 3), labels), [0.75, 0.5, np.nan])


def test_large_graphs_have_the_largest_errors_of_all_test_nodes(tmp_path):
    source = open_source(write_comparison(tmp_path, ring(400, numbers=1)))
    found, note = data(source, most=100)
    assert note.startswith("100 of 400 nodes: 25 test nodes with the largest errors of ld, 25 other test nodes")
    graph, run = source.graph, source.reference.runs[0]
    test = graph.split.test
    error = np.abs(source.task.values(run.logits[test]) - graph.labels[test])[:, 0]
    worst = set(test[np.argsort(-error)[:25]].tolist())
    shown = {int(node["id"]): node for node in found["nodes"]}
    assert worst <= set(shown)
    assert any(node["o"] for node in found["nodes"])
    for node in found["nodes"]:
        for neighbour, y in node["o"]:
            assert y == pytest.approx(graph.labels[int(neighbour)], abs=0.051)


def test_bytes_and_targets_are_bounded(tmp_path):
    source = open_source(write_comparison(tmp_path, ring(400, numbers=9), seeds=2))
    found, note = data(source, most_bytes=20_000)
    assert 10 < len(found["nodes"]) < 200
    assert len(embedded(found["nodes"]).encode()) <= 20_100
    assert note.endswith(f"The first {TARGETS} of 9 targets are shown.")
    assert len(found["classes"]) == TARGETS
    assert {len(part) for node in found["nodes"] for part in (node["y"], node["b"], *node["p"][0][:2])} == {TARGETS}


def test_inductive_labels_are_unknown_elsewhere(tmp_path):
    graph = ring(numbers=1)
    write_run(tmp_path, graph, setting="inductive")
    found, _ = data(open_source(tmp_path))
    test, train = (int(graph.split.ids(role)[0]) for role in ("test", "train"))
    assert np.isnan(found["nodes"][test]["b"][0][1:]).all()
    assert np.isfinite(found["nodes"][train]["b"][0]).all()


def test_what_carried_a_number_is_told_in_its_unit(tmp_path):
    """Labels of a spread of about 0.001: two decimals, as logits have, would leave nothing of the contributions."""
    graph = planted(60, "regression", num_classes=4, num_targets=1).graph
    graph = replace(graph, labels=graph.labels / 10_000)
    quick = {"encoder": "tiny", "gnn__epochs": 3, "gnn__hidden": 8, "encoder__max_tokens": 16}
    fit(graph, method="pne", gnn="gcn", out=tmp_path / "run", cache=tmp_path / "cache", **quick)
    found, _ = data(open_source(tmp_path / "run"))
    place, row = next((i, node["e"]) for i, node in enumerate(found["nodes"]) if "e" in node)
    told = Predictor.load(tmp_path / "run").explain(found["nodes"][place]["id"], top=6)
    places = found["unit"][2][0]
    assert places >= 5
    assert row[:4] == [
        0,
        *(round(v, places) for v in (told.logit, told.baseline)),
        [round(v, places) for v in told.by_hop],
    ]
    assert any(row[3])
