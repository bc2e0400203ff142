import numpy as np
import pytest

from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.report.source import open_source
from labeldeconv.report.tabs.predictions import node_homophily, predictions
from tests.report.run_writing import ring, write_comparison


def made(tmp_path, **graph):
    source = open_source(write_comparison(tmp_path, ring(240, **graph), methods=("pne", "ld"), seeds=2))
    return source, Adjacency.from_edges(source.graph.edges, source.graph.num_nodes)


def figure(section, title):
    return next(b for b in section.blocks if b.title == title)


def test_node_homophily_by_hand(small_graph):
    adj = Adjacency.from_edges(small_graph.edges, 6)
    graph = small_graph
    # path 0-1-2-3-4 with labels 0 1 2 0 1: no neighbours agree; node 5 is alone
    assert node_homophily(graph, adj, np.arange(6))[:5].tolist() == [0.0] * 5
    assert np.isnan(node_homophily(graph, adj, np.array([5]))[0])


def test_multilabel_homophily_is_jaccard():
    graph = ring(8, multilabel=True)
    adj = Adjacency.from_edges(graph.edges, 8)
    got = node_homophily(graph, adj, np.arange(8))
    near = adj.indices[adj.indptr[3] : adj.indptr[4]]
    pairs = [(graph.labels[3] > 0, graph.labels[j] > 0) for j in near]
    each = [(a & b).sum() / (a | b).sum() for a, b in pairs if (a | b).any()]
    assert got[3] == pytest.approx(np.mean(each))


def test_confusion_rows_are_shares_of_the_truth(tmp_path):
    source, adj = made(tmp_path)
    shown = figure(predictions(source, adj), "Confusion matrix")
    assert [name for name, _ in shown.variants] == ["pne", "ld"]
    assert shown.start == 1  # LD first
    test = source.graph.split.test
    truth = source.graph.labels[test]
    for entry, (_, spec) in zip(source.entries, shown.variants, strict=True):  # LD's is symmetric by chance, PNE's not
        values = np.array(spec["values"])
        assert values.shape == (3, 3)
        for k, j in np.ndindex(3, 3):
            share = np.mean([(r.logits[test].argmax(1) == j)[truth == k].mean() for r in entry.runs])
            assert values[k, j] == pytest.approx(share, abs=0.001)


def test_score_by_degree_adds_up_to_the_score(tmp_path):
    source, adj = made(tmp_path)
    spec = figure(predictions(source, adj), "Accuracy by degree").variants[0][1]
    points = spec["series"][1]["points"]
    counts = spec["x"]["counts"]
    total = sum(counts[int(p[0])] * p[1] for p in points) / sum(counts)
    assert total == pytest.approx(source.entries[1].test[0], abs=1e-3)


def test_multilabel_shows_areas(tmp_path):
    source, adj = made(tmp_path, multilabel=True)
    section = predictions(source, adj)
    rows = figure(section, "ROC-AUC by label").variants[0][1]["rows"]
    mean = np.mean([next(p["value"] for p in row["points"] if p["name"] == "ld") for row in rows])
    assert mean == pytest.approx(source.entries[1].test[0])
    assert "Confusion matrix" not in [b.title for b in section.blocks]
