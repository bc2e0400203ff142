"""Neighbourhood prediction: the tree, PIFA features, targets of some outputs, and the tree as a stage."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from labeldeconv.data.sets.planted import planted
from labeldeconv.graph.task import Task
from labeldeconv.graph.texts import Texts
from labeldeconv.labels import neighbours as module
from labeldeconv.labels.neighbours import (
    ClusterTree,
    NeighbourOutputs,
    NeighbourTargets,
    balanced_tree,
    pifa_features,
    tree,
)
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.stages.keys import token
from tests.samples import random_edges


def test_tree_is_balanced_nested_and_finds_planted_groups():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 8)) * 5
    group = rng.permutation(np.arange(200) % 4)
    tree = balanced_tree(centres[group] + rng.normal(size=(200, 8)) * 0.1, levels=3)
    for level, clusters in enumerate(tree):
        assert np.bincount(clusters).tolist() == [200 // 2 ** (level + 1)] * 2 ** (level + 1)
    for fine, coarse in ((2, 1), (1, 0)):
        assert all(len(set(tree[coarse][tree[fine] == k])) == 1 for k in range(tree[fine].max() + 1))
    assert all(len(set(group[tree[1] == k])) == 1 for k in range(4))


@pytest.mark.parametrize("rows", [1, 17, 1000])
def test_a_split_is_the_one_of_dense_centres(rows, monkeypatch):
    """One step by numpy, cluster by cluster: nodes by the difference of distances to both halves' means."""
    monkeypatch.setattr(module, "ROWS", rows)
    rng = np.random.default_rng(0)
    x, order = rng.normal(size=(101, 4)).astype(np.float32), rng.permutation(101)
    bounds, middle = np.array([0, 30, 31, 31, 101]), np.array([15, 30, 31, 66])
    expected = []
    for lo, cut, hi in zip(bounds[:-1], middle, bounds[1:], strict=True):
        inside = order[lo:hi]
        halves = [order[lo:cut], order[cut:hi]]
        left, right = (x[h].mean(0, dtype=float) if len(h) else np.zeros(4) for h in halves)
        expected += inside[np.argsort(x[inside] @ (right - left), kind="stable")].tolist()
    assert module._halve(x, order, bounds, middle).tolist() == expected


def test_a_tree_holds_blocks_and_not_copies_of_the_features(monkeypatch):
    monkeypatch.setattr(module, "ROWS", 512)
    x = np.random.default_rng(0).normal(size=(20_000, 128)).astype(np.float32)
    tracemalloc.start()
    balanced_tree(x, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000 * (12 + 50) + 512 * 128 * 8 * 4  # the tree, some 40 bytes a node, and blocks; x itself has 512


@pytest.mark.parametrize(("dim", "alike"), [(128, 0.85), (8192, 0.998)])
def test_pifa_is_the_neighbours_mean_of_tf_idf(dim, alike, tmp_path, monkeypatch):
    """Cosines of all pairs against scikit-learn's TF-IDF and a dense A, as well as so many columns can tell."""
    monkeypatch.setattr(module, "DIM", dim)
    graph = planted(60, seed=0).graph
    adj = Adjacency.from_edges(graph.edges, 60)
    x = np.asarray(pifa_features(graph.texts, adj, None, tmp_path))
    parts = [
        TfidfVectorizer(analyzer=analyzer, ngram_range=(k, k), max_df=0.98).fit_transform(graph.texts)
        for analyzer, k in (("word", 1), ("word", 2), ("char_wb", 3))
    ]
    averaged = normalize(adj.dense() @ np.concatenate([p.toarray() for p in parts], axis=1))
    assert x.shape == (60, dim)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, rtol=1e-5)
    assert np.abs(x @ x.T - averaged @ averaged.T).max() < 5 / np.sqrt(dim)
    assert np.corrcoef((x @ x.T).ravel(), (averaged @ averaged.T).ravel())[0, 1] > alike
    assert not list(tmp_path.iterdir())


def test_pifa_of_runs_sees_the_order_of_residues(tmp_path):
    """Both neighbours hold the same residues, in another order."""
    texts = Texts.from_strings(["W", "W", "ACD" * 5, "DCA" * 5])
    adj = Adjacency.from_edges(np.array([[0, 1], [2, 3]]), 4)
    singles, triples = (pifa_features(texts, adj, residues, tmp_path) for residues in (1, 3))
    np.testing.assert_allclose(singles[0], singles[1], atol=1e-6)
    assert abs(triples[0] @ triples[1]) < 0.3


def dense_targets(adj, clusters, outputs, ids):
    return ((adj.dense() > 0)[ids].astype(int) @ np.eye(outputs, dtype=int)[clusters] > 0).astype(float)


def test_targets_of_all_outputs_are_the_neighbours_clusters():
    n = 30
    adj = Adjacency.from_edges(random_edges(n, 40), n)
    clusters = np.random.default_rng(1).integers(0, 5, n)
    ids = np.array([4, 0, 17])
    some = NeighbourOutputs(adj, clusters, 5)(ids)
    assert some.outputs.tolist() == [0, 1, 2, 3, 4]
    assert some.weights.tolist() == [1] * 5
    np.testing.assert_array_equal(some.targets, dense_targets(adj, clusters, 5, ids))


@pytest.fixture
def toy():
    """A graph of 60 nodes, its A-hat, and features and rows of weights for a loss over all nodes."""
    adj = Adjacency.from_edges(random_edges(60, 90), 60)
    generator = torch.Generator().manual_seed(0)
    x, W = (torch.randn(size, 6, generator=generator, dtype=torch.float64) for size in (8, 60))
    return adj, x, W, np.array([3, 0, 17, 44, 45, 59, 8, 21])


def dense_loss(adj, x, W, ids):
    """The single-node level over all nodes, by torch: per neighbour, of which a node has so many on average."""
    targets = torch.from_numpy((adj.dense() > 0)[ids].astype(float))
    each = F.binary_cross_entropy_with_logits(x @ W.T, targets, reduction="none")
    return each.sum(1) / max(1.0, (adj.dense() > 0).sum() / 60)


def test_the_single_node_level_is_the_dense_loss(toy):
    adj, x, W, ids = toy
    some = NeighbourOutputs(adj, np.arange(60), 60)(ids)
    torch.testing.assert_close(some.loss(x @ W[some.outputs].T), dense_loss(adj, x, W, ids))


@pytest.mark.parametrize("negatives", [4, 16])
def test_drawn_outputs_give_the_dense_loss_on_average(toy, negatives):
    """Loss and gradient, over many draws; every draw has all neighbours, and few others."""
    adj, x, W, ids = toy
    module = NeighbourOutputs(adj, np.arange(60), 60, negatives)
    neighbours = set(np.flatnonzero((adj.dense() > 0)[ids].any(0)))
    torch.manual_seed(0)
    W.requires_grad_()
    losses, drawn = [], set()
    draws = 3000
    for _ in range(draws):
        some = module(ids)
        chosen = set(some.outputs.tolist())
        assert len(chosen) == len(some.outputs)
        assert neighbours <= chosen
        assert len(chosen) <= len(neighbours) + negatives
        np.testing.assert_array_equal(some.targets, (adj.dense() > 0)[ids][:, some.outputs])
        losses.append(some.loss(x @ W[some.outputs].T))
        drawn |= chosen
        (losses[-1].sum() / draws).backward()
    assert drawn == set(range(60))
    found, (gradient, W.grad) = torch.stack(losses).detach(), (W.grad, None)
    expected = dense_loss(adj, x, W, ids)
    error = found.std(0) / np.sqrt(draws)
    assert ((found.mean(0) - expected.detach()).abs() < 4 * error).all()
    expected.sum().backward()
    assert (gradient - W.grad).norm() < 0.1 * W.grad.norm()


def test_counts_are_of_nodes_and_not_of_links(monkeypatch):
    monkeypatch.setattr(module, "ROWS", 7)
    adj = Adjacency.from_edges(random_edges(30, 60), 30)
    clusters = np.random.default_rng(1).integers(0, 5, 30)
    nodes = np.arange(3, 30)
    counted = NeighbourOutputs(adj, clusters, 5).counts(nodes)
    np.testing.assert_array_equal(counted, dense_targets(adj, clusters, 5, nodes).sum(0))


def test_what_a_batch_holds_does_not_grow_with_the_graph():
    """32 nodes of a ring with 100 and with 100,000 nodes: their neighbours and 50 more at most."""
    sizes = []
    for n in (100, 100_000):
        ring = Adjacency.from_edges(np.stack([np.arange(n), (np.arange(n) + 1) % n]), n)
        some = NeighbourOutputs(ring, np.arange(n), n, 50)(np.arange(32))
        sizes.append(some.targets.shape)
        assert float(some.targets.sum()) == 64
        assert some.share == 2.0
    assert all(rows == 32 and outputs <= 34 + 50 for rows, outputs in sizes)


def test_outputs_and_parents_of_a_tree():
    levels = balanced_tree(np.random.default_rng(0).normal(size=(50, 4)), 4)
    made = ClusterTree(levels)
    assert [made.outputs(level) for level in range(5)] == [2, 4, 8, 16, 50]
    assert made.clusters(4).tolist() == list(range(50))
    for level, above in ((3, 1), (4, 3), (4, 0)):
        parents = made.parents(level, above)
        assert len(parents) == made.outputs(level)
        np.testing.assert_array_equal(parents[made.clusters(level)], levels[above])


def test_stage_is_pifa_and_tree(small_graph, tmp_path):
    made = tree(small_graph, AdjacencyConfig(), None, 2, 0)
    adj = Adjacency.from_edges(small_graph.edges, 6)
    pifa = pifa_features(small_graph.texts, adj, None, tmp_path, seed=0)
    np.testing.assert_array_equal(made.levels, balanced_tree(pifa, 2, seed=0))
    targets = NeighbourTargets(made, 1, adj)
    assert (targets.outputs, targets.task) == (4, Task("multilabel", 4))
    assert targets.build()(np.arange(6)).targets.shape == (6, 4)
    nodes = NeighbourTargets(made, 2, adj, 3)
    assert nodes.outputs == 6
    assert nodes.build().negatives == 3


def test_labels_are_in_no_key(small_graph):
    other = replace(small_graph, labels=np.zeros(6, int))
    keys = [tree.key(graph, AdjacencyConfig(), None, 2, 0) for graph in (small_graph, other)]
    assert keys[0] == keys[1]
    for changed in ({"edges": np.zeros((2, 1), int)}, {"texts": Texts.from_strings("abcdef")}):
        assert keys[0] != tree.key(replace(small_graph, **changed), AdjacencyConfig(), None, 2, 0)
    assert keys[0] != tree.key(small_graph, AdjacencyConfig(), 3, 2, 0)


def test_adjacency_is_idle_in_keys_of_targets(small_graph):
    """The tree's key has it already, and a matrix of millions of edges need not be hashed again."""
    made = tree(small_graph, AdjacencyConfig(), None, 2, 0)
    one, other = (NeighbourTargets(made, 1, Adjacency.identity(n)) for n in (6, 7))
    assert token(one) == token(other)
    assert token(one) != token(NeighbourTargets(made, 0, Adjacency.identity(6)))
    assert token(one) != token(NeighbourTargets(made, 1, Adjacency.identity(6), 2))


def test_a_graph_with_few_edges_shares_by_no_less_than_one():
    """Four nodes and one edge: fewer than one neighbour each, so the loss is the plain sum; and without any node."""
    pattern = Adjacency(np.array([0, 1, 2, 2, 2]), np.array([1, 0], np.int32), None, None, symmetric=True)
    assert NeighbourOutputs(pattern, np.arange(4), 4).share == 1.0
    empty = Adjacency(np.array([0]), np.empty(0, np.int32), None, None, symmetric=True)
    assert NeighbourOutputs(empty, np.empty(0, int), 0).share == 1.0


def test_a_tree_is_a_function_of_its_seed():
    x = np.random.default_rng(0).normal(size=(64, 4))
    np.testing.assert_array_equal(balanced_tree(x, 2), balanced_tree(x, 2, seed=0, steps=8))
    assert not np.array_equal(balanced_tree(x, 2), balanced_tree(x, 2, seed=1))


def test_eight_steps_of_two_means_by_numpy():
    """The first level from the seeded order: eight times the means of both halves, then the order along them."""
    x = np.random.default_rng(3).normal(size=(41, 3))
    order = np.random.default_rng(5).permutation(41)
    for _ in range(8):
        order = order[np.argsort(x[order] @ (x[order[20:]].mean(0) - x[order[:20]].mean(0)), kind="stable")]
    expected = np.zeros(41, int)
    expected[order[20:]] = 1
    np.testing.assert_array_equal(balanced_tree(x, 1, seed=5)[0], expected)


def test_every_row_of_pifa_is_given_back(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROWS", 4)
    given: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    monkeypatch.setattr(module, "release", lambda x, lo, hi: given.setdefault(x.shape, []).append((lo, hi)))
    texts = Texts.from_strings(["red fox", "brown dog", "red dog", "fox", "dog", "the end"])
    pifa_features(texts, Adjacency.from_edges(np.array([[0, 1], [2, 3]]), 6), None, tmp_path)
    assert given == {(6, 2, 128): [(0, 4), (4, 6)], (6, 128): [(0, 4), (4, 6)]}
