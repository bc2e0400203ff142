"""GraphSAGE against PyG's SAGEConv, and psi by hand."""

import numpy as np
import torch

from labeldeconv.gnns.base import ROW_NORMALISED
from labeldeconv.gnns.sage import SAGE
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import AdjacencyConfig
from tests.samples import random_edges

n, d, c = 12, 6, 4
EDGES = np.concatenate([random_edges(n, 20), [np.arange(n), (np.arange(n) + 1) % n]], axis=1)  # no isolated node


def test_it_is_pygs_sage():
    """The layers of PyG on the same edges, for a width that falls (6 to 4) and for one that rises (6 to 8)."""
    adj = Adjacency.from_edges(EDGES, n, AdjacencyConfig(normalization="row", self_loops=False))
    x, pairs = torch.randn(n, d), adj.edge_index(torch.device("cpu"))
    for layers in (1, 2):
        gnn = SAGE(d, c, layers=layers, hidden=8, norm="none").eval()
        expected = x
        for i, conv in enumerate(gnn.convs):
            expected = conv(expected, pairs)
            expected = expected.relu() if i < layers - 1 else expected
        torch.testing.assert_close(gnn(x, adj), expected)


def test_own_part_and_neighbours_have_their_own_weights():
    """With W = I and W' = -I a layer gives the difference to the neighbours' mean: heterophily, by hand."""
    gnn = SAGE(2, 2, layers=1)
    with torch.no_grad():
        gnn.convs[0].lin_r.weight.copy_(torch.eye(2))
        gnn.convs[0].lin_l.weight.copy_(-torch.eye(2))
        gnn.convs[0].lin_l.bias.zero_()
    adj = Adjacency.from_edges(np.array([[1, 2], [0, 0]]), 3)  # node 0 between 1 and 2
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [4.0, 0.0]])
    torch.testing.assert_close(gnn(x, adj), torch.tensor([[-1.0, -1.0], [-1.0, 2.0], [3.0, 0.0]]))


def test_psi_is_an_mlp_of_the_sum_of_the_weights():
    gnn = SAGE(d, c, layers=2, hidden=8, norm="none").eval()
    h = torch.randn(n, d)
    first, last = ((conv.lin_l.weight + conv.lin_r.weight, conv.lin_l.bias) for conv in gnn.convs)
    expected = (h @ first[0].t() + first[1]).relu() @ last[0].t() + last[1]
    torch.testing.assert_close(gnn.psi(h), expected)
    assert gnn.hops == 2
    assert gnn.output_bias is gnn.convs[1].lin_l.bias
    assert ROW_NORMALISED.items() <= gnn.suggests.items()
