"""GCN: layers by dense matrices, psi by hand."""

import torch

from labeldeconv.gnns.gcn import GCN
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import AdjacencyConfig
from tests.samples import random_edges

n, d, c = 12, 6, 4


def test_gcn_layer_is_a_hat_h_w():
    """H = A-hat H W + b by dense matrices."""
    gnn = GCN(d, c, layers=1)
    x, edges = torch.randn(n, d), random_edges(n, 20)
    adj = Adjacency.from_edges(edges, n, AdjacencyConfig(normalization="symmetric", self_loops=True))
    expected = torch.from_numpy(adj.dense()).float() @ x @ gnn.convs[0].lin.weight.t() + gnn.convs[0].bias
    torch.testing.assert_close(gnn(x, adj), expected)


def test_psi_is_an_mlp_of_the_same_weights():
    gnn = GCN(d, c, layers=3, hidden=8, norm="none").eval()
    h = torch.randn(n, d)
    expected = h
    for i, conv in enumerate(gnn.convs):
        expected = expected @ conv.lin.weight.t() + conv.bias
        expected = expected.relu() if i < 2 else expected
    torch.testing.assert_close(gnn.psi(h), expected)
    assert gnn.hops == 3
    assert gnn.output_bias is gnn.convs[2].bias
