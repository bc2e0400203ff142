"""The contract's own code: the default psi, what is checked at the door, the registry, and Psi."""

import pytest
import torch
from torch import nn

from labeldeconv.errors import ConfigError, DataError
from labeldeconv.gnns.base import GNN, GNNS, Psi, register, require
from labeldeconv.gnns.gcn import GCN
from labeldeconv.propagation.adjacency import Adjacency, convolve

n, d, c = 9, 5, 3


class Plain(GNN):
    """A GNN that defines no psi of its own."""

    feed = "graph"

    def __init__(self, in_dim, out_dim):
        super().__init__(in_dim, out_dim)
        self.linear = nn.Linear(in_dim, out_dim)

    @property
    def hops(self):
        return 1

    def forward(self, x, adj):
        return convolve(adj, self.linear(x))


class Rows(GNN):
    """One that is fed by rows and weighs its hops 1, 10, 100."""

    feed = "rows"

    @property
    def hops(self):
        return 2

    def forward(self, rows):
        return torch.einsum("bhd,h->bd", rows, torch.tensor([1.0, 10.0, 100.0]))


def test_default_psi_is_forward_with_every_node_its_own_neighbour():
    gnn, x = Plain(d, c), torch.randn(n, d)
    torch.testing.assert_close(gnn.psi(x), gnn.linear(x))
    torch.testing.assert_close(gnn.psi(x), gnn(x, Adjacency.from_edges(torch.zeros(2, 0).long().numpy(), n)))


def test_default_psi_of_rows_has_the_own_features_at_every_hop():
    x = torch.randn(n, d)
    torch.testing.assert_close(Rows(d, d).psi(x), 111 * x)


def test_default_psi_passes_gradients():
    gnn, x = Plain(d, c), torch.randn(n, d, requires_grad=True)
    gnn.psi(x).sum().backward()
    torch.testing.assert_close(x.grad, gnn.linear.weight.sum(0).expand(n, d))


@pytest.mark.parametrize(
    ("x", "got"),
    [
        (torch.zeros(n, d + 1), r"\(9, 6\) torch.float32"),
        (torch.zeros(n, d, dtype=torch.int64), r"\(9, 5\) torch.int64"),
        (torch.zeros(n, 1, d), r"\(9, 1, 5\) torch.float32"),
        ([[0.0] * d], "list"),
    ],
)
def test_wrong_features_are_named(x, got):
    for run in (lambda: Plain(d, c)(x, Adjacency.identity(n)), lambda: Psi(Plain(d, c))(x)):
        with pytest.raises(DataError, match=rf"Plain: features \(n, 5\) of a floating type expected, got {got}"):
            run()
    with pytest.raises(DataError, match=r"Rows: features \(b, 3, 5\) of a floating type expected"):
        Rows(d, d)(x)


def test_forward_is_the_steps_one_after_the_other():
    class Doubling(Plain):
        def steps(self):
            return [lambda h, adj: 2 * h, lambda h, adj: h + 1]

        forward = GNN.forward

    assert Doubling(2, 2)(torch.ones(1, 2), Adjacency.identity(1)).tolist() == [[3.0, 3.0]]
    assert Plain(2, 2).steps() is None
    assert Plain(2, 2).output_bias is None


def test_registered_by_name_and_the_last_one_counts():
    assert list(GNNS)[:10] == ["gcn", "sage", "gat", "revgat", "gamlp", "sagn", "appnp", "spegcn", "spegnn", "mlp"]
    assert GNNS.named("gcn") is GCN
    assert GNNS.named("labeldeconv.gnns.gcn:GCN") is GCN
    try:
        assert register("plain-of-tests")(Plain) is Plain
        assert GNNS.named("plain-of-tests") is Plain
        register("plain-of-tests")(Rows)
        assert GNNS.named("plain-of-tests") is Rows
    finally:
        GNNS._members.pop("plain-of-tests", None)
    with pytest.raises(ConfigError, match=r"gnn.name 'gnc': unknown; did you mean 'gcn'"):
        GNNS.named("gnc")


def test_psi_has_the_parameters_of_its_gnn():
    gnn = GCN(d, c, hidden=8)
    psi = Psi(gnn, "layer").eval()
    assert {id(p) for p in psi.parameters()} == {id(p) for p in gnn.parameters()}
    x = torch.randn(n, d)
    torch.testing.assert_close(psi(x), gnn.psi(x))
    assert any(isinstance(m, nn.LayerNorm) for m in gnn.modules())


def test_require():
    require(True, GCN, "norm", "of some kind", "x")
    with pytest.raises(ConfigError, match="GCN: norm of some kind expected, got 'x'"):
        require(False, GCN, "norm", "of some kind", "x")
