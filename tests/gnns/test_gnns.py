"""One contract for every GNN: shapes, psi, gradients, determinism."""

import numpy as np
import pytest
import torch
from conftest import random_edges

from labeldeconv.adjacency import Adjacency, propagate
from labeldeconv.config import AdjacencyConfig
from labeldeconv.gnns.base import Psi
from labeldeconv.names import GNNS

n, d, c = 12, 6, 4


def logits(gnn, x, edges):
    adj = Adjacency.from_edges(edges, len(x), AdjacencyConfig())
    if gnn.feed == "graph":
        return gnn(x, adj)
    return gnn(torch.stack(list(propagate(adj, x, gnn.hops)), dim=1))


@pytest.fixture(params=GNNS)
def gnn(request):
    torch.manual_seed(0)
    return GNNS[request.param](d, c, layers=3, hidden=8, dropout=0.5)


def test_shapes_and_hops(gnn):
    x = torch.randn(n, d)
    assert logits(gnn, x, random_edges(n, 20)).shape == (n, c)
    assert Psi(gnn)(x).shape == (n, c)
    assert gnn.hops == 3


def test_edges_matter(gnn):
    x = torch.randn(n, d)
    gnn.eval()
    assert not torch.allclose(logits(gnn, x, random_edges(n, 20)), logits(gnn, x, random_edges(n, 20, seed=1)))


def test_permutation_equivariance(gnn):
    x, edges, order = torch.randn(n, d), random_edges(n, 20), np.random.default_rng(0).permutation(n)
    gnn.eval()
    there = np.argsort(order)
    torch.testing.assert_close(logits(gnn, x[order], there[edges]), logits(gnn, x, edges)[order], atol=1e-5, rtol=1e-4)


def test_gradient_reaches_every_parameter(gnn):
    gnn.dropout = 0.0
    logits(gnn, torch.randn(n, d), random_edges(n, 20)).pow(2).sum().backward()
    assert [name for name, p in gnn.named_parameters() if p.grad is None] == []


def test_psi_trains_on_a_small_batch(gnn):
    gnn.train()
    gnn.psi(torch.randn(4, d)).sum().backward()
    assert sum(p.grad is not None for p in gnn.parameters()) > 2


def test_gcn_psi_is_forward_without_edges():
    gnn = GNNS["gcn"](d, c, layers=2, hidden=8).eval()
    x = torch.randn(n, d)
    torch.testing.assert_close(logits(gnn, x, np.zeros((2, 0), int)), gnn.psi(x))


def test_sagn_psi_is_hop_zero():
    """With one hop matrix, attention over it is 1 and forward is MLP_0 with the head."""
    gnn = GNNS["sagn"](d, c, layers=1, hidden=8).eval()
    x = torch.randn(n, d)
    gnn.mlps = gnn.mlps[:1]
    torch.testing.assert_close(gnn(x[:, None]), gnn.psi(x))
