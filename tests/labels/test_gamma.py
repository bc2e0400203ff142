"""The choice of gamma: the ridge by its normal equations, what wins when, and what is never read."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from labeldeconv.data.sets.planted import planted
from labeldeconv.graph.split import Split
from labeldeconv.graph.task import Task
from labeldeconv.labels.gamma import RIDGE, _ridge, candidates, choose_gamma, gamma
from labeldeconv.labels.hops import hop_labels, hops
from labeldeconv.labels.pseudo import pseudo
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.fixed_point import dequantize
from labeldeconv.settings.models import AdjacencyConfig


def test_candidates_include_wo_ld_and_the_papers_start():
    tried = [tuple(np.round(g, 3)) for g in candidates(3)]
    assert (1, 0, 0) in tried
    assert (0.333, 0.333, 0.333) in tried
    assert (0, 1, 0) in tried
    assert all(sum(g) == pytest.approx(1, abs=0.01) for g in tried)
    assert len(tried) == len(set(tried))
    assert [tuple(g) for g in candidates(1)] == [(1.0,)]


@pytest.mark.parametrize(("n", "d", "m"), [(80, 5, 3), (80, 5, 1), (12, 30, 4)])  # the last has fewer rows than columns
def test_ridge_solves_the_normal_equations(n, d, m):
    """(X^T X + penalty I) W = X^T Y of the centred X and Y, the penalty a share of the mean diagonal."""
    rng = np.random.default_rng(0)
    X, queries = (rng.standard_normal((rows, d)).astype(np.float32) + 3 for rows in (n, 7))
    Y = rng.standard_normal((n, m)).astype(np.float32) - 1
    given = X.copy()
    inner = X.astype(float) - X.mean(0, dtype=float)
    gram = inner.T @ inner
    W = np.linalg.solve(gram + RIDGE * gram.diagonal().mean() * np.eye(d), inner.T @ (Y - Y.mean(0, dtype=float)))
    expected = (queries - X.mean(0, dtype=float)) @ W + Y.mean(0, dtype=float)
    found = _ridge(X, Y, queries)
    assert (found.shape, found.dtype) == ((7, m), np.float32)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_array_equal(X, given)  # what is passed in stays as it is


def test_ridge_by_hand():
    """x = -1, 1 and y = 0, 4: slope 4 / (2 + 0.02) around (0, 2); a constant x tells nothing but the mean."""
    x, y = np.array([[-1.0], [1.0]], dtype=np.float32), np.array([[0.0], [4.0]], dtype=np.float32)
    assert _ridge(x, y, np.array([[3.0]]))[0, 0] == pytest.approx(2 + 3 * 4 / 2.02)
    assert _ridge(np.ones_like(x), y, np.array([[1.0]]))[0, 0] == pytest.approx(2.0)


def choose(truth, features, hops=2):
    graph, task = truth.graph, Task.of(truth.graph)
    K = hop_labels(graph.edges, np.nan_to_num(task.targets(graph.labels)), hops)
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes)
    return choose_gamma(features, K, adj, graph.labels, graph.split, task)


def test_the_motivating_structure_asks_for_hop_one():
    """On planted, texts say nothing about their own label but name the labels one hop away."""
    truth = planted(1500, seed=0)
    noise = np.random.default_rng(0).normal(0, 0.1, truth.inverse_labels.shape)
    best, *others = choose(truth, truth.inverse_labels + noise)
    assert best.gamma[1] >= 0.5
    alone = next(o for o in [best, *others] if o.gamma[0] == 1)
    assert best.lead == pytest.approx(alone.error - best.error)
    assert (alone.lead, alone.doubt) == (0, 0)
    assert best.lead > 2 * best.doubt > 0
    assert best.error < 0.8 * alone.error


def test_labels_of_the_text_alone_ask_for_no_hops():
    """Random edges and labels that only the text decides: Y itself is at least as good as anything."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 600)
    features = np.eye(4)[labels] + rng.normal(0, 0.3, (600, 4))
    edges = rng.integers(0, 600, (2, 2400))
    K = hop_labels(edges, np.eye(4, dtype=np.float32)[labels], 2)
    split = Split.stratified(labels, seed=0)
    found = choose_gamma(features, K, Adjacency.from_edges(edges, 600), labels, split, Task("multiclass", 4))
    assert found[0].gamma[0] == 1
    assert found[0].score > 0.95
    assert len(found) == len(candidates(3))


def test_test_labels_are_never_read():
    truth = planted(300, seed=0)
    a = choose(truth, truth.inverse_labels)
    labels = truth.graph.labels.copy()
    labels[truth.graph.split.test] = 0
    graph, task = truth.graph, Task.of(truth.graph)
    K = hop_labels(graph.edges, task.targets(graph.labels), 2)
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes)
    b = choose_gamma(truth.inverse_labels, K, adj, labels, graph.split, task)
    assert [c.score for c in a] == [c.score for c in b]


def test_multilabel_runs():
    truth = planted(300, "multilabel", seed=0)
    assert choose(truth, truth.inverse_labels)[0].score > 0.5


def test_a_lead_within_its_doubt_does_not_choose():
    """A handful of validation nodes cannot tell: what leads there stands second, with its lead and its doubt."""
    truth = planted(400, seed=0)
    graph = truth.graph
    few = graph.split.roles.copy()
    few[graph.split.val[4:]] = 2
    noise = np.random.default_rng(0).normal(0, 2.0, truth.inverse_labels.shape)
    K = hop_labels(graph.edges, Task.of(graph).targets(graph.labels), 2)
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes)
    first, second, *_ = choose_gamma(truth.inverse_labels + noise, K, adj, graph.labels, Split(few), Task.of(graph))
    assert first.gamma[0] == 1
    assert second.error < first.error
    assert 0 < second.lead <= 2 * second.doubt


def test_nodes_without_a_label_do_not_count():
    truth = planted(300, seed=0)
    graph, task = truth.graph, Task.of(truth.graph)
    K = hop_labels(graph.edges, task.targets(graph.labels), 2)
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes)
    labels, roles = graph.labels.copy(), graph.split.roles.copy()
    for role, ids in enumerate((graph.split.test[:20], graph.split.test[20:40])):
        labels[ids], roles[ids] = -1, role
    plain = choose_gamma(truth.inverse_labels, K, adj, graph.labels, graph.split, task)
    more = choose_gamma(truth.inverse_labels, K, adj, labels, Split(roles), task)
    assert [(c.error, c.doubt) for c in plain] == [(c.error, c.doubt) for c in more]


@dataclass
class Values:
    """Features as a stage takes them: with a key."""

    values: np.ndarray
    content_key: str


def test_stage_equals_the_function_and_reads_no_test_label():
    truth = planted(200, seed=0)
    graph = truth.graph
    predicted = PredictedLogits(np.log(truth.inverse_labels + 1e-3), "first")
    X, adjacency = Values(truth.inverse_labels, "x"), AdjacencyConfig()
    K = hops(pseudo(predicted, graph), graph, adjacency, 2)
    chosen = gamma(K, X, graph, adjacency)
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes, adjacency)
    found = choose_gamma(X.values, dequantize(K.values), adj, graph.labels, graph.split, Task.of(graph))
    assert chosen.gamma == found[0].gamma.tolist()
    assert [c["error"] for c in chosen.candidates] == [c.error for c in found]
    labels = graph.labels.copy()
    labels[graph.split.test] = 0
    assert gamma.key(K, X, graph, adjacency) == gamma.key(K, X, replace(graph, labels=labels), adjacency)
    labels[graph.split.val] = 0
    assert gamma.key(K, X, graph, adjacency) != gamma.key(K, X, replace(graph, labels=labels), adjacency)


@dataclass
class PredictedLogits:
    """Predictions as a stage takes them."""

    logits: np.ndarray
    content_key: str
