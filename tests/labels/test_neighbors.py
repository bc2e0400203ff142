import numpy as np
from conftest import random_edges

from labeldeconv.adjacency import Adjacency
from labeldeconv.labels.neighbors import NeighborClusters, _runs, balanced_tree, pifa_features


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
    targets = NeighborClusters(adj, clusters)(ids).numpy()
    expected = ((adj.dense() > 0)[ids].astype(int) @ np.eye(5, dtype=int)[clusters] > 0).astype(float)
    np.testing.assert_array_equal(targets, expected)
