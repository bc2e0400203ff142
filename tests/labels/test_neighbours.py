"""Neighbourhood prediction: the tree, PIFA features, targets, and the tree as a stage."""

from dataclasses import replace

import numpy as np

from labeldeconv.graph.task import Task
from labeldeconv.labels.neighbours import NeighbourClusters, NeighbourTargets, _runs, balanced_tree, pifa_features, tree
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.stages.keys import token
from tests.samples import letter_tokens, random_edges


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


def test_pifa_averages_tf_idf_over_neighbours():
    """Nodes 0 and 1 have no word in common but the same neighbour's words; node 4 has others."""
    texts = [[1], [2], [3, 3, 4], [5], [6]]
    tokens = np.concatenate(texts)
    offsets = np.concatenate([[0], np.cumsum([len(t) for t in texts])])
    adj = Adjacency.from_edges(np.array([[0, 1, 4], [2, 2, 3]]), 5)
    x = pifa_features(tokens, offsets, adj, dim=64)
    np.testing.assert_allclose(x[0], x[1], atol=1e-6)
    assert abs(x[0] @ x[4]) < 0.4
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, rtol=1e-5)


def test_runs_of_tokens_are_told_apart_within_nodes():
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 4, size).tolist() for size in (0, 1, 2, 5, 0, 40, 200)]
    offsets = np.concatenate([[0], np.cumsum([len(t) for t in texts])])
    runs = _runs(np.concatenate(texts).astype(np.int32), offsets, 3)
    expected = [tuple(text[i : i + 3]) for text in texts for i in range(len(text))]
    assert len(set(zip(runs.tolist(), expected, strict=True))) == len(set(runs.tolist())) == len(set(expected))


def test_pifa_of_runs_sees_the_order_of_residues():
    """Both neighbours hold the same residues, in another order."""
    tokens, offsets = np.array([9, 9, *[1, 2, 3] * 5, *[3, 2, 1] * 5]), np.array([0, 1, 2, 17, 32])
    adj = Adjacency.from_edges(np.array([[0, 1], [2, 3]]), 4)
    singles, triples = (pifa_features(tokens, offsets, adj, ngram) for ngram in (1, 3))
    np.testing.assert_allclose(singles[0], singles[1], atol=1e-6)
    assert abs(triples[0] @ triples[1]) < 0.3


def test_targets_are_the_neighbours_clusters():
    n = 30
    adj = Adjacency.from_edges(random_edges(n, 40), n)
    clusters = np.random.default_rng(1).integers(0, 5, n)
    ids = np.array([4, 0, 17])
    targets = NeighbourClusters(adj, clusters)(ids).numpy()
    expected = ((adj.dense() > 0)[ids].astype(int) @ np.eye(5, dtype=int)[clusters] > 0).astype(float)
    np.testing.assert_array_equal(targets, expected)


class KeyedTokens:
    """Tokens as a stage takes them: with a key."""

    def __init__(self, held, content_key):
        self.ids, self.offsets, self.content_key = held.ids, held.offsets, content_key


def test_stage_is_pifa_and_tree(small_graph, tmp_path):
    held = letter_tokens(6, tmp_path / "tokens")
    made = tree(KeyedTokens(held, "a"), small_graph, AdjacencyConfig(), 1, 2, 0)
    adj = Adjacency.from_edges(small_graph.edges, 6)
    pifa = pifa_features(np.asarray(held.ids), held.offsets, adj, 1, seed=0)
    np.testing.assert_array_equal(made.levels, balanced_tree(pifa, 2, seed=0))
    assert made.content_key != tree(KeyedTokens(held, "b"), small_graph, AdjacencyConfig(), 1, 2, 0).content_key
    targets = NeighbourTargets(made, 1, adj)
    assert (targets.clusters, targets.task) == (4, Task("multilabel", 4))
    assert targets.build()(np.arange(6)).shape == (6, 4)


def test_labels_are_in_no_key(small_graph, tmp_path):
    tokens = KeyedTokens(letter_tokens(6, tmp_path / "tokens"), "a")
    other = replace(small_graph, labels=np.zeros(6, int))
    keys = [tree.key(tokens, graph, AdjacencyConfig(), 1, 2, 0) for graph in (small_graph, other)]
    assert keys[0] == keys[1]
    assert keys[0] != tree.key(tokens, replace(small_graph, edges=np.zeros((2, 1))), AdjacencyConfig(), 1, 2, 0)


def test_adjacency_is_idle_in_keys_of_targets(small_graph, tmp_path):
    """The tree's key has it already, and a matrix of millions of edges need not be hashed again."""
    made = tree(KeyedTokens(letter_tokens(6, tmp_path / "tokens"), "a"), small_graph, AdjacencyConfig(), 1, 2, 0)
    one, other = (NeighbourTargets(made, 1, Adjacency.identity(n)) for n in (6, 7))
    assert token(one) == token(other)
    assert token(one) != token(NeighbourTargets(made, 0, Adjacency.identity(6)))
