"""Attention: the same numbers and gradients as PyG's GATConv, on every path."""

import pytest
import torch
from torch_geometric.nn import GATConv

from labeldeconv.gnns.attention import Attention, drop_edges

n, e, d = 20, 70, 5


@pytest.mark.parametrize("edge_dim", [0, 3])
def test_equals_gatconv(edge_dim):
    torch.manual_seed(0)
    mine = Attention(d, 4, 3, edge_dim=edge_dim, residual=False)
    pyg = GATConv(d, 4, 3, add_self_loops=False, edge_dim=edge_dim or None)
    pyg.load_state_dict(mine.state_dict())
    x, edges = torch.randn(n, d), torch.randint(0, n, (2, e))
    values = torch.randn(e, edge_dim) if edge_dim else None
    a, b = mine(x, edges, n, values), pyg(x, edges, values)
    torch.testing.assert_close(a, b)
    a.pow(2).sum().backward()
    b.pow(2).sum().backward()
    for p, q in zip(mine.parameters(), pyg.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, atol=1e-4, rtol=1e-4)


def test_without_the_target_equals_a_zero_att_dst():
    torch.manual_seed(0)
    mine = Attention(d, 4, 2, attend_target=False, residual=False)
    pyg = GATConv(d, 4, 2, add_self_loops=False)
    pyg.load_state_dict({**mine.state_dict(), "att_dst": torch.zeros(1, 2, 4)})
    x, edges = torch.randn(n, d), torch.randint(0, n, (2, e))
    torch.testing.assert_close(mine(x, edges, n), pyg(x, edges))


def test_linear_layers_of_ngnn_come_before_the_residual():
    """Aggregate, linear, ReLU, linear, ReLU, and only then the residual, which has the bias."""
    torch.manual_seed(0)
    conv = Attention(d, 4, 2, ngnn=2)
    plain = GATConv(d, 4, 2, add_self_loops=False, bias=False)
    plain.load_state_dict({k: v for k, v in conv.state_dict().items() if k in plain.state_dict()})
    x, edges = torch.randn(n, d), torch.randint(0, n, (2, e))
    with torch.no_grad():
        conv.skip.bias += 1.0
    one, two = conv.ngnn
    skip = x @ conv.skip.weight.t() + 1.0
    torch.testing.assert_close(conv(x, edges, n), two(one(plain(x, edges)).relu()).relu() + skip)
    torch.testing.assert_close(conv.alone(x), two(one(x @ conv.lin.weight.t()).relu()).relu() + skip)


def test_rows_equal_the_whole():
    conv = Attention(d, 4, 2)
    x, edges = torch.randn(n, d), torch.randint(0, n, (2, e))
    first = edges[:, edges[1] < 6]
    torch.testing.assert_close(conv(x, first, 6), conv(x, edges, n)[:6])


def test_dropped_edges():
    edges, values = torch.arange(2000).reshape(2, 1000), torch.arange(1000.0)[:, None]
    torch.manual_seed(0)
    kept, kept_values = drop_edges(edges, values, 0.3, True)
    assert 600 < kept.shape[1] < 800
    torch.testing.assert_close(kept[0].float(), kept_values[:, 0])
    assert drop_edges(edges, values, 0.3, False)[0] is edges
