"""Rows of A-hat for mini-batches: sampled rows are uniform and unbiased, parts cover the graph."""

import sys

import numpy as np
import pytest
import torch

from labeldeconv.errors import MissingExtra
from labeldeconv.propagation.adjacency import Adjacency, propagate
from labeldeconv.propagation.sampling import induced, partition, row_blocks, sample_blocks, sample_rows
from labeldeconv.settings.models import AdjacencyConfig
from tests.samples import random_edges

n, d = 40, 5
CPU = torch.device("cpu")
EDGES = random_edges(n, 150)
X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
BOTH = [AdjacencyConfig(), AdjacencyConfig(normalization="symmetric", self_loops=True)]


@pytest.mark.parametrize("config", BOTH)
def test_all_neighbours_are_rows_of_a_hat(config):
    adj = Adjacency.from_edges(EDGES, n, config)
    targets = np.array([7, 3, 21])
    sources, rows = sample_rows(adj, targets, None)
    np.testing.assert_array_equal(sources[:3], targets)
    assert len(np.unique(sources)) == len(sources) == rows.num_sources
    np.testing.assert_allclose(rows.dense(), adj.dense()[np.ix_(targets, sources)], rtol=1e-6)
    np.testing.assert_allclose(rows @ X[sources], (adj @ X)[targets], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(rows.transposed.dense(), rows.dense().T, rtol=1e-6)
    np.testing.assert_allclose(rows.on(CPU).to_dense().numpy(), rows.dense(), rtol=1e-6)


@pytest.mark.parametrize("config", BOTH)
def test_sampled_rows_are_distinct_uniform_and_unbiased(config):
    adj = Adjacency.from_edges(EDGES, n, config)
    target, rng, fanout = int(np.argmax(np.diff(adj.indptr))), np.random.default_rng(0), 3
    degree = int(np.diff(adj.indptr)[target])
    assert degree > fanout
    counts, total = np.zeros(n), np.zeros(d)
    for _ in range(3000):
        sources, rows = sample_rows(adj, np.array([target, (target + 1) % n]), fanout, rng)
        drawn = sources[rows.indices[: rows.indptr[1]]]
        assert len(set(drawn)) == fanout
        counts[drawn] += 1
        total += (rows @ X[sources])[0]
    neighbours = adj.indices[adj.indptr[target] : adj.indptr[target + 1]]
    assert set(np.flatnonzero(counts)) == set(neighbours)
    expected = 3000 * fanout / degree
    assert np.abs(counts[neighbours] - expected).max() < 5 * np.sqrt(expected)
    np.testing.assert_allclose(total / 3000, (adj @ X)[target], atol=0.05)


def test_blocks_lead_from_input_to_seeds():
    adj = Adjacency.from_edges(EDGES, n)
    seeds = np.array([0, 9])
    ids, blocks = sample_blocks(adj, seeds, [None, None, None], np.random.default_rng(0))
    h = X[ids]
    for rows in blocks:
        h = rows @ h
    np.testing.assert_allclose(h, list(propagate(adj, X, 3))[3][seeds], atol=1e-5)


def test_edge_features_follow_their_entries():
    values = np.arange(EDGES.shape[1], dtype=np.float32)[:, None]
    adj = Adjacency.from_edges(EDGES, n, AdjacencyConfig(self_loops=True)).with_edge_features(EDGES, values)
    targets = np.array([5, 17])
    sources, rows = sample_rows(adj, targets, 4, np.random.default_rng(0))
    for (s, t), v in zip(rows.edge_index(CPU).T.tolist(), rows.edge_values(CPU)[:, 0].tolist(), strict=True):
        s, t = sources[s], targets[t]
        if s != t:
            assert {s, t} == set(EDGES[:, int(v)])


def test_blocks_are_cut_by_entries():
    """Rows of 3, 1, 2 and 5 entries, at most four in a block; a longer row has a block of its own."""
    adj = Adjacency(np.array([0, 3, 4, 6, 11]), np.zeros(11, np.int32), None, None, symmetric=False)
    assert [ids.tolist() for ids in row_blocks(adj, np.arange(4), 4, 9)] == [[0, 1], [2], [3]]
    assert [ids.tolist() for ids in row_blocks(adj, np.array([3, 0]), 4, 9)] == [[3], [0]]
    assert row_blocks(adj, np.empty(0, np.int64), 4, 9) == []


def test_blocks_are_cut_by_sources():
    """0 - 1, 0 - 2, 3 - 4: rows 0, 1 and 2 share three sources, rows 3 and 4 two more."""
    adj = Adjacency.from_edges(np.array([[0, 0, 3], [1, 2, 4]]), 5)
    assert [ids.tolist() for ids in row_blocks(adj, np.arange(5), 99, 3)] == [[0, 1, 2], [3, 4]]
    assert [ids.tolist() for ids in row_blocks(adj, np.arange(5), 99, 4)] == [[0, 1, 2], [3, 4]]
    assert [ids.tolist() for ids in row_blocks(adj, np.arange(5), 99, 5)] == [[0, 1, 2, 3, 4]]
    assert [ids.tolist() for ids in row_blocks(adj, np.array([1, 3, 2]), 99, 2)] == [[1], [3], [2]]


def test_sampled_edges_are_edges_and_draws_follow_the_seed():
    """Every sampled entry stands in the CSR; equal seeds draw alike; one number is taken from the generator."""
    adj = Adjacency.from_edges(EDGES, n, BOTH[1])
    known = set(zip(np.repeat(np.arange(n), np.diff(adj.indptr)).tolist(), adj.indices.tolist(), strict=True))
    ids, blocks = sample_blocks(adj, np.array([4, 8, 1]), [3, 2, 4], np.random.default_rng(5))
    nodes = ids
    for rows, fanout in zip(blocks, (3, 2, 4), strict=True):
        targets = np.repeat(nodes[: rows.num_nodes], np.diff(rows.indptr))
        pairs = list(zip(targets.tolist(), nodes[rows.indices].tolist(), strict=True))
        assert len(set(pairs)) == len(pairs)
        assert set(pairs) <= known
        assert np.diff(rows.indptr).max() == fanout
        nodes = nodes[: rows.num_nodes]
    again, others = sample_blocks(adj, np.array([4, 8, 1]), [3, 2, 4], np.random.default_rng(5))
    np.testing.assert_array_equal(ids, again)
    for a, b in zip(blocks, others, strict=True):
        np.testing.assert_array_equal(a.indices, b.indices)
    one, two = np.random.default_rng(5), np.random.default_rng(5)
    sample_rows(adj, np.arange(n), 2, one)
    two.integers(1 << 63)
    assert one.integers(1 << 63) == two.integers(1 << 63)
    with pytest.raises(ValueError, match="generator is needed"):
        sample_rows(adj, np.arange(n), 2)


def test_induced_keeps_inner_edges_and_lone_nodes():
    adj = Adjacency.from_edges(np.array([[0, 1, 2, 4], [1, 2, 3, 5]]), 6)
    part = induced(adj, np.array([1, 2, 5]))
    np.testing.assert_allclose(part.dense(), [[0, 1, 0], [1, 0, 0], [0, 0, 1]])


def test_partition_covers_and_cuts_little():
    pytest.importorskip("pymetis")
    blocks = np.concatenate([random_edges(20, 100, k) + 20 * k for k in range(4)], axis=1)
    for config in (AdjacencyConfig(), AdjacencyConfig(undirected=False, self_loops=True)):
        parts = partition(Adjacency.from_edges(blocks, 80, config), 4)
        assert sorted(np.concatenate(parts)) == list(range(80))
        assert {tuple(np.unique(p // 20)) for p in parts} == {(0,), (1,), (2,), (3,)}


def test_missing_metis_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(MissingExtra, match=r"labeldeconv\[metis\]"):
        partition(Adjacency.from_edges(EDGES, n), 2)


@pytest.mark.parametrize(("most", "stamps"), [(4, 5), (5, 0), (9, 0)])
def test_sources_are_counted_only_where_a_block_can_have_too_many(most, stamps, monkeypatch):
    """An empty table of stamps says that they need not be; one of another length would be written beyond its end."""
    from labeldeconv.propagation import sampling as module

    given, real = [], module._cut

    def cut(*arguments):
        given.append(len(arguments[-1]))
        return real(*arguments)

    monkeypatch.setattr(module, "_cut", cut)
    adj = Adjacency.from_edges(np.array([[0, 0, 3], [1, 2, 4]]), 5)
    row_blocks(adj, np.arange(5), 99, most)
    assert given == [stamps]


def test_later_blocks_may_be_as_full_as_the_first():
    """Three pairs, 0 - 1, 2 - 3 and 4 - 5: two sources and two entries make a block."""
    adj = Adjacency.from_edges(np.array([[0, 2, 4], [1, 3, 5]]), 6)
    pairs = [[0, 1], [2, 3], [4, 5]]
    assert [ids.tolist() for ids in row_blocks(adj, np.arange(6), 2, 9)] == pairs
    assert [ids.tolist() for ids in row_blocks(adj, np.arange(6), 99, 2)] == pairs
