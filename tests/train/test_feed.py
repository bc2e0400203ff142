"""Feeds: sampled rows are uniform and unbiased, layer-wise inference equals forward, hop features out of core."""

import sys

import numpy as np
import pytest
import torch
from conftest import random_edges

from labeldeconv.adjacency import Adjacency, propagate
from labeldeconv.config import AdjacencyConfig, GNNConfig
from labeldeconv.errors import ConfigError, MissingExtra
from labeldeconv.gnns.gcn import GCN
from labeldeconv.names import GNNS
from labeldeconv.train import layerwise
from labeldeconv.train.feed import make_feed
from labeldeconv.train.hop_features import hop_features, read_rows
from labeldeconv.train.layerwise import infer, row_blocks
from labeldeconv.train.sampling import induced, partition, sample_blocks, sample_rows

n, d, c = 40, 5, 3
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


def test_induced_keeps_inner_edges_and_lone_nodes():
    adj = Adjacency.from_edges(np.array([[0, 1, 2, 4], [1, 2, 3, 5]]), 6)
    part = induced(adj, np.array([1, 2, 5]))
    np.testing.assert_allclose(part.dense(), [[0, 1, 0], [1, 0, 0], [0, 0, 1]])


@pytest.mark.parametrize("name", [name for name in GNNS if GNNS[name].feed == "graph"])
def test_layerwise_inference_equals_forward(name, tmp_path, monkeypatch):
    monkeypatch.setattr(layerwise, "BLOCK_ENTRIES", 50)
    gnn = GNNS[name](d, c, layers=3, hidden=8).eval()
    adj = Adjacency.from_edges(EDGES, n, BOTH[1])
    assert len(row_blocks(adj, np.arange(n))) > 3
    nodes = np.array([3, 30, 11])
    with torch.inference_mode():
        expected = gnn(torch.from_numpy(X), adj)[nodes]
        got = infer(gnn, X, adj, nodes, tmp_path, CPU)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)


def test_neighbour_batches_with_all_neighbours_equal_forward(tmp_path):
    gnn = GCN(d, c, layers=2, hidden=8, dropout=0.0).eval()
    adj = Adjacency.from_edges(EDGES, n, BOTH[1])
    config = GNNConfig(batching="neighbors", fanouts=[100], batch_nodes=7)
    feed = make_feed(gnn, X, adj, config, tmp_path, CPU)
    expected = gnn(torch.from_numpy(X), adj)
    seen = []
    for batch in feed.batches(np.arange(n), np.random.default_rng(0)):
        torch.testing.assert_close(batch.logits(gnn), expected[batch.ids], atol=1e-5, rtol=1e-4)
        seen += batch.ids.tolist()
    assert sorted(seen) == list(range(n))


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


def test_hop_features_are_float16_on_disk(tmp_path):
    adj = Adjacency.from_edges(EDGES, n)
    rows = hop_features(X.astype(np.float16), adj, 3, tmp_path)
    expected = np.stack(list(propagate(adj, X.astype(np.float16).astype(np.float32), 3)), axis=1)
    np.testing.assert_allclose(rows, expected, atol=2e-3)
    assert rows.dtype == np.float16
    assert not list(tmp_path.iterdir())


def test_wrong_settings_are_named(tmp_path):
    adj = Adjacency.from_edges(EDGES, n)
    with pytest.raises(ConfigError, match=r"gnn.fanouts: 1 or 2 numbers expected for gcn, got \[3, 3, 3\]"):
        make_feed(GCN(d, c), X, adj, GNNConfig(batching="neighbors", fanouts=[3, 3, 3]), tmp_path, CPU)

    class NoSteps(GCN):
        def steps(self):
            return None

    with pytest.raises(ConfigError, match=r"has no steps\(\); 'full' or 'clusters'"):
        make_feed(NoSteps(d, c), X, adj, GNNConfig(batching="neighbors"), tmp_path, CPU)


def test_rows_are_widened_exactly(tmp_path):
    """Every float16 there is, from a file, by two routes: subnormal, infinite and missing values too."""
    path = tmp_path / "rows.npy"
    np.save(path, np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(512, 2, 64))
    rows = np.load(path, mmap_mode="r")
    ids = np.random.default_rng(0).permutation(512)
    np.testing.assert_array_equal(read_rows(rows, ids).view(np.uint32) >> 31, (rows[ids].view(np.uint16) >> 15))
    np.testing.assert_array_equal(read_rows(rows, ids), rows[ids].astype(np.float32))
    assert read_rows(rows, ids[:0]).shape == (0, 2, 64)
    many = np.tile(ids, 20)  # enough for a second thread
    np.testing.assert_array_equal(read_rows(rows, many), rows[many].astype(np.float32))
