"""Feeds: whatever the batches, all nodes come once, and predictions are those of the whole graph."""

import numpy as np
import pytest
import torch

from labeldeconv.errors import ConfigError
from labeldeconv.gnns.base import GNNS
from labeldeconv.gnns.gamlp import GAMLP
from labeldeconv.gnns.gcn import GCN
from labeldeconv.graph.attributed import edges_among
from labeldeconv.propagation.adjacency import Adjacency, propagate
from labeldeconv.settings.models import AdjacencyConfig, GNNConfig
from labeldeconv.training.feed import GraphFeed, InductiveFeed, RowFeed, make_feed
from tests.samples import random_edges

n, d, c = 40, 5, 3
CPU = torch.device("cpu")
EDGES = random_edges(n, 150)
X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
BOTH = [AdjacencyConfig(), AdjacencyConfig(normalization="symmetric", self_loops=True)]


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


def test_batches_drawn_ahead_follow_the_seed_whoever_else_draws(tmp_path):
    """Two feeds of one generator, as consistency training has them, give the same batches every time."""
    gnn = GCN(d, c, layers=2, hidden=8, dropout=0.0).eval()
    adj = Adjacency.from_edges(EDGES, n, BOTH[1])
    feed = make_feed(
        gnn, X.astype(np.float16), adj, GNNConfig(batching="neighbors", fanouts=[2], batch_nodes=6), tmp_path, CPU
    )

    def logits():
        generator = np.random.default_rng(0)
        pairs = zip(*(feed.batches(nodes, generator) for nodes in (np.arange(20), np.arange(20, n))), strict=True)
        return torch.cat([b.logits(gnn).detach() for pair in pairs for b in pair])

    first = logits()
    for _ in range(5):
        torch.testing.assert_close(logits(), first, rtol=0, atol=0)


@pytest.mark.parametrize("batching", ["full", "neighbors", "clusters"])
@pytest.mark.parametrize("name", ["gcn", "gat", "revgat"])
def test_feeds_run_under_autocast(name, batching, tmp_path):
    """bfloat16, as a surrounding autocast would have it: logits near those of float32, and a gradient for all."""
    if batching == "clusters":
        pytest.importorskip("pymetis")
    torch.manual_seed(0)
    gnn = GNNS[name](d, c, layers=3, hidden=8, dropout=0.0)
    adj = Adjacency.from_edges(EDGES, n, BOTH[1])
    config = GNNConfig(batching=batching, fanouts=[3], batch_nodes=16, clusters=4, clusters_per_batch=2)
    feed = make_feed(gnn, X, adj, config, tmp_path, CPU)
    for batch in feed.batches(np.arange(n), np.random.default_rng(0)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = batch.logits(gnn)
        logits.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in gnn.parameters())
    gnn.eval()
    with torch.inference_mode():
        expected = feed.predict(gnn, np.arange(n))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = feed.predict(gnn, np.arange(n)).float()
    torch.testing.assert_close(found, expected, atol=0.1, rtol=0.1)


def test_wrong_settings_are_named(tmp_path):
    adj = Adjacency.from_edges(EDGES, n)
    with pytest.raises(ConfigError, match=r"gnn.fanouts: 1 or 2 numbers expected for GCN, got \[3, 3, 3\]"):
        make_feed(GCN(d, c), X, adj, GNNConfig(batching="neighbors", fanouts=[3, 3, 3]), tmp_path, CPU)

    class NoSteps(GCN):
        def steps(self):
            return None

    with pytest.raises(ConfigError, match=r"has no steps\(\); 'full' or 'clusters'"):
        make_feed(NoSteps(d, c), X, adj, GNNConfig(batching="neighbors"), tmp_path, CPU)


@pytest.mark.parametrize("batching", ["full", "neighbors", "clusters"])
def test_predictions_are_those_of_the_whole_graph(batching, tmp_path):
    if batching == "clusters":
        pytest.importorskip("pymetis")
    gnn = GCN(d, c, layers=2, hidden=8).eval()
    adj = Adjacency.from_edges(EDGES, n, BOTH[1])
    config = GNNConfig(batching=batching, fanouts=[2], batch_nodes=7, clusters=5, clusters_per_batch=2)
    feed = make_feed(gnn, X, adj, config, tmp_path, CPU)
    nodes = np.array([5, 0, 33])
    with torch.inference_mode():
        torch.testing.assert_close(feed.predict(gnn, nodes), gnn(torch.from_numpy(X), adj)[nodes], atol=1e-5, rtol=1e-4)
    seen = np.concatenate([batch.ids for batch in feed.batches(np.arange(0, n, 2), np.random.default_rng(0))])
    assert sorted(seen) == list(range(0, n, 2))


def test_one_batch_of_all_clusters_is_the_whole_graph(tmp_path):
    pytest.importorskip("pymetis")
    gnn = GCN(d, c, layers=2, hidden=8).eval()
    adj = Adjacency.from_edges(EDGES, n, BOTH[1])
    feed = make_feed(gnn, X, adj, GNNConfig(batching="clusters", clusters=4, clusters_per_batch=4), tmp_path, CPU)
    (batch,) = feed.batches(np.arange(n), np.random.default_rng(0))
    torch.testing.assert_close(batch.logits(gnn), gnn(torch.from_numpy(X), adj)[batch.ids], atol=1e-5, rtol=1e-4)


def test_rows_come_with_their_label_inputs(tmp_path):
    gnn = GAMLP(d, c, layers=2, hidden=8, label_hops=1).eval()
    adj = Adjacency.from_edges(EDGES, n)
    feed = make_feed(gnn, X, adj, GNNConfig(batch_rows=9), tmp_path, CPU)
    inputs = np.random.default_rng(1).random((n, c)).astype(np.float32)
    hops = np.stack(list(propagate(adj, X.astype(np.float16).astype(np.float32), 2)), axis=1)
    rows = torch.from_numpy(hops.astype(np.float16).astype(np.float32))
    for label_inputs in (None, inputs):
        feed.label_inputs = label_inputs
        given = () if label_inputs is None else (torch.from_numpy(label_inputs),)
        expected = gnn(rows, *given).detach()
        batches = list(feed.batches(np.arange(n), np.random.default_rng(0)))
        assert sorted(np.concatenate([batch.ids for batch in batches])) == list(range(n))
        assert {len(batch.ids) for batch in batches} == {8}
        for batch in batches:
            torch.testing.assert_close(batch.logits(gnn).detach(), expected[batch.ids], atol=1e-3, rtol=1e-3)
        found = feed.predict(gnn, np.array([3, 2])).detach()
        torch.testing.assert_close(found, expected[[3, 2]], atol=1e-3, rtol=1e-3)


def test_inductive_batches_know_the_train_nodes_alone():
    """Batches are numbered as in the whole graph and computed in the graph of the train nodes."""
    nodes = np.arange(1, n, 3)
    inside, _ = edges_among(EDGES, nodes, n)
    gnn = GCN(d, c, layers=2, hidden=8).eval()
    view, whole = Adjacency.from_edges(inside, len(nodes), BOTH[1]), Adjacency.from_edges(EDGES, n, BOTH[1])
    feed = InductiveFeed(GraphFeed(X[nodes], view, CPU), GraphFeed(X, whole, CPU), nodes)
    (batch,) = feed.batches(nodes[[2, 0]], np.random.default_rng(0))
    assert batch.ids.tolist() == nodes[[2, 0]].tolist()
    torch.testing.assert_close(batch.logits(gnn), gnn(torch.from_numpy(X[nodes]), view)[[2, 0]])
    torch.testing.assert_close(feed.predict(gnn, np.arange(n)), gnn(torch.from_numpy(X), whole))
    assert feed.adj is whole


def test_rows_of_a_single_batch_are_read_once(tmp_path, monkeypatch):
    """Train and validation rows alternate and are both kept; a third set is read, and several batches always are."""
    adj, nodes, reads = Adjacency.from_edges(EDGES, n), np.arange(n), []
    feed = RowFeed(X, adj, 2, 25, tmp_path, CPU)
    monkeypatch.setattr(
        "labeldeconv.training.feed.read_rows", lambda rows, ids: reads.append(len(ids)) or rows[ids].astype(np.float32)
    )
    rows = torch.from_numpy(np.stack(list(propagate(adj, X, 2)), axis=1)).flatten(1)
    close = {"atol": 2e-3, "rtol": 1e-3}

    def echo(x):
        return x.flatten(1)

    for _ in range(3):
        (batch,) = feed.batches(nodes[:25], np.random.default_rng(0))
        torch.testing.assert_close(batch.logits(echo), rows[batch.ids], **close)
        torch.testing.assert_close(feed.predict(echo, nodes[25:]), rows[25:], **close)
    assert reads == [25, 15]
    feed.predict(echo, nodes[:3])
    assert reads == [25, 15, 3]
    for _ in range(2):
        found = [i for batch in feed.batches(nodes, np.random.default_rng(0)) for i in batch.ids]
        assert sorted(found) == nodes.tolist()
    assert reads == [25, 15, 3, 20, 20, 20, 20]


def test_rows_that_were_predicted_can_be_trained_on(tmp_path):
    """Self-training may teach the very nodes that were just predicted, whose rows are kept."""
    feed = RowFeed(X, Adjacency.from_edges(EDGES, n), 0, n, tmp_path, CPU)
    weights = torch.ones(X.shape[1], requires_grad=True)
    with torch.inference_mode():
        feed.predict(lambda x: x[:, 0], np.arange(n))
    (batch,) = feed.batches(np.arange(n), np.random.default_rng(0))
    batch.logits(lambda x: x[:, 0] @ weights).sum().backward()
    torch.testing.assert_close(weights.grad, torch.from_numpy(X).sum(0), atol=2e-2, rtol=1e-3)
