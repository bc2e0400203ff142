"""APPNP against PyG's, by its polynomial, and its limits."""

import torch
from torch_geometric import nn as pyg

from labeldeconv.gnns.appnp import APPNP
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import GNNAdjacencyConfig
from tests.samples import random_edges

n, d, c = 12, 6, 4


def test_it_is_pygs_appnp():
    """PyG makes the symmetric A-hat with self-loops itself; so do the defaults here."""
    adj = Adjacency.from_edges(random_edges(n, 30), n, GNNAdjacencyConfig())
    plain = Adjacency.from_edges(random_edges(n, 30), n).edge_index(torch.device("cpu"))
    x, gnn = torch.randn(n, d), APPNP(d, c, hidden=8, convolutions=7, teleport=0.2).eval()
    published = pyg.APPNP(K=7, alpha=0.2)
    torch.testing.assert_close(gnn(x, adj), published(gnn.psi(x), plain), atol=1e-5, rtol=1e-4)


def test_phi_is_the_polynomial_of_personalised_pagerank():
    x, adj = torch.randn(n, d), Adjacency.from_edges(random_edges(n, 20), n)
    A = torch.from_numpy(adj.dense()).float()
    gnn = APPNP(d, c, hidden=8, convolutions=3, teleport=0.3).eval()
    phi = 0.7**3 * torch.linalg.matrix_power(A, 3) + sum(
        0.3 * 0.7**k * torch.linalg.matrix_power(A, k) for k in range(3)
    )
    torch.testing.assert_close(gnn(x, adj), phi @ gnn.psi(x), atol=1e-5, rtol=1e-4)


def test_all_teleport_is_the_mlp_and_hops_are_the_steps():
    x, adj = torch.randn(n, d), Adjacency.from_edges(random_edges(n, 20), n)
    alone = APPNP(d, c, hidden=8, teleport=1.0).eval()
    torch.testing.assert_close(alone(x, adj), alone.psi(x))
    gnn = APPNP(d, c, layers=3, hidden=8, convolutions=5)
    assert gnn.hops == len(gnn.steps()) == 5
    assert len(gnn.mlp.lins) == 3
    assert gnn.output_bias is gnn.mlp.lins[2].bias
