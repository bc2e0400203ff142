"""GAT: a layer by hand, edge features, and the linear layers of NGNN."""

import numpy as np
import torch

from labeldeconv.gnns.gat import GAT
from labeldeconv.propagation.adjacency import Adjacency
from tests.samples import random_edges

n, d, c = 12, 6, 4
EDGES = random_edges(n, 20)


def test_one_layer_by_dense_attention():
    """relu(x W_in), then scores leaky_relu(a_src h_s + a_dst h_t) softmaxed over a row, a skip, relu, and W_out."""
    torch.manual_seed(0)
    gnn = GAT(d, c, layers=1, hidden=5, heads=1, norm="none").eval()
    adj = Adjacency.from_edges(EDGES, n)
    x = torch.randn(n, d)
    z = gnn.input(x).relu()
    conv = gnn.convs[0]
    h = z @ conv.lin.weight.t()
    scores = h @ conv.att_dst.view(-1, 1) + (h @ conv.att_src.view(-1, 1)).t()  # (target, source)
    scores = torch.where(scores > 0, scores, 0.2 * scores)
    scores = scores.masked_fill(torch.from_numpy(adj.dense()) == 0, -torch.inf)
    out = scores.softmax(1) @ h + z @ conv.skip.weight.t() + conv.skip.bias
    torch.testing.assert_close(gnn(x, adj), gnn.output(out.relu()))


def test_edge_features_matter_to_forward_and_not_to_psi():
    torch.manual_seed(0)
    gnn = GAT(d, c, layers=2, hidden=8, heads=2, edge_dim=1).eval()
    x, adj = torch.randn(n, d), Adjacency.from_edges(EDGES, n)
    few, many = (adj.with_edge_features(EDGES, np.arange(20.0, dtype=np.float32)[:, None] * k) for k in (0, 1))
    assert not torch.allclose(gnn(x, few), gnn(x, many))
    assert gnn.psi(x).shape == (n, c)


def test_linear_layers_of_ngnn_are_in_forward_and_psi():
    gnn = GAT(d, c, layers=1, hidden=8, heads=1, ngnn=2).eval()
    x, adj = torch.randn(n, d), Adjacency.from_edges(EDGES, n)
    before = gnn(x, adj), gnn.psi(x)
    with torch.no_grad():
        gnn.convs[0].ngnn[1].bias += 1
    assert not torch.allclose(gnn(x, adj), before[0])
    assert not torch.allclose(gnn.psi(x), before[1])
    assert len(gnn.convs[0].ngnn) == 2
