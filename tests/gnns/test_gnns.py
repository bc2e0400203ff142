"""Every built-in GNN keeps the contract, with its options too."""

import numpy as np
import pytest
import torch
from conftest import random_edges

from labeldeconv.adjacency import Adjacency, propagate
from labeldeconv.config import AdjacencyConfig
from labeldeconv.errors import ConfigError
from labeldeconv.names import GNNS
from labeldeconv.testing import GNN_CHECKS, check_gnn, check_psi, check_steps, logits

n, d, c = 12, 6, 4
VARIANTS = {
    **{name: {} for name in GNNS},
    "gat with edge features": {"edge_dim": 3, "ngnn": 2, "attend_target": False},
    "gat with layer norm": {"norm": "layer", "attention_dropout": 0.2},
    "revgat of four groups": {"groups": 4, "attend_target": True, "norm": "layer", "input_norm": False},
    "gamlp with jk": {"attention": "jk", "norm": "layer", "label_hops": 2},
    "gamlp without hop mlps": {"hop_layers": 0},
    "sagn with labels": {"label_hops": 3, "mlp_layers": 2},
    "spegnn of four hops": {"convolutions": 4, "norm": "none"},
}


def factory(variant):
    kind = GNNS[variant.split()[0]]
    return lambda d_in, d_out: kind(d_in, d_out, layers=3, hidden=8, dropout=0.5, **VARIANTS[variant])


@pytest.mark.parametrize("check", GNN_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("variant", VARIANTS)
def test_contract(variant, check):
    check(factory(variant))


@pytest.mark.parametrize("name", GNNS)
def test_hops_are_layers(name):
    assert factory(name)(d, c).hops == 3


def test_suite_finds_a_broken_promise():
    class Broken(GNNS["gcn"]):
        def psi(self, x):
            return 2 * super().psi(x)

    with pytest.raises(AssertionError, match="psi differs from forward"):
        check_psi(Broken)

    class Short(GNNS["gcn"]):
        def steps(self):
            return super().steps()[:1] * 1

        def forward(self, x, adj):
            for step in super().steps():
                x = step(x, adj)
            return x

    with pytest.raises(AssertionError, match="steps differ"):
        check_steps(lambda a, b: Short(a, b, hidden=b))
    check_gnn(GNNS["gcn"])


def test_gcn_layer_is_a_hat_h_w():
    """H = A-hat H W + b by dense matrices."""
    gnn = GNNS["gcn"](d, c, layers=1)
    x, edges = torch.randn(n, d), random_edges(n, 20)
    adj = Adjacency.from_edges(edges, n, AdjacencyConfig(normalization="symmetric", self_loops=True))
    expected = torch.from_numpy(adj.dense()).float() @ x @ gnn.convs[0].lin.weight.t() + gnn.convs[0].bias
    torch.testing.assert_close(gnn(x, adj), expected)


def test_sagn_psi_is_mlp_0():
    gnn = GNNS["sagn"](d, c, layers=2, hidden=8).eval()
    x = torch.randn(n, d)
    rows = torch.stack([x, *torch.randn(2, n, d)], 1)
    for mlp in gnn.mlps[1:]:  # hops without weight: their scores are far below
        mlp.forward = lambda x: torch.full((n, 8), -1e4) * torch.sign(gnn.attend_hop.weight)
    torch.testing.assert_close(gnn(rows), gnn.psi(x))


def test_gamlp_recursive_attention_by_hand():
    """theta_i from the score of hop i against the attention-weighted mean of those before it (GAMLP, eq. 7)."""
    gnn = GNNS["gamlp"](d, c, layers=2, hidden=8, hop_layers=0).eval()
    z = [torch.randn(n, d) for _ in range(3)]

    def score(reference, hop):
        return torch.nn.functional.leaky_relu(gnn.attend(torch.cat([reference, hop], 1)), 0.2)

    s0 = score(z[0], z[0])
    s1 = score(z[0], z[1])
    w = torch.cat([s0, s1], 1).softmax(1)
    s2 = score(w[:, :1] * z[0] + w[:, 1:] * z[1], z[2])
    torch.testing.assert_close(gnn._weights(z), torch.cat([s0, s1, s2], 1).softmax(1))


def test_spectral_forward_by_dense_powers():
    x, edges = torch.randn(n, d), random_edges(n, 20)
    A = torch.from_numpy(Adjacency.from_edges(edges, n).dense()).float()
    for name, coefficients in (("spegcn", [0, 0, 0, 1.0]), ("spegnn", [0.3, -0.2, 0.5, 0.1])):
        gnn = GNNS[name](d, c, layers=3, hidden=8).eval()
        if name == "spegnn":
            gnn.theta.data = torch.tensor(coefficients)
        expected = sum(t * torch.linalg.matrix_power(A, i) @ gnn.psi(x) for i, t in enumerate(coefficients))
        torch.testing.assert_close(gnn.cpu()(x, Adjacency.from_edges(edges, n)), expected, atol=1e-5, rtol=1e-4)


def test_label_branch_adds_and_psi_leaves_it_out():
    gnn = GNNS["gamlp"](d, c, layers=1, hidden=8, label_hops=2).eval()
    x, edges = torch.randn(n, d), random_edges(n, 20)
    rows = torch.stack(list(propagate(Adjacency.from_edges(edges, n), x, 1)), 1)
    labels = torch.rand(n, c)
    torch.testing.assert_close(gnn(rows, labels), gnn(rows) + gnn.labels(labels))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("revgat", {"layers": 1}, "RevGAT: layers of at least 2 expected, got 1"),
        ("revgat", {"groups": 3}, "RevGAT: groups from 2 that divide hidden 8 expected, got 3"),
        ("gamlp", {"attention": "all"}, "GAMLP: attention 'recursive' or 'jk' expected, got 'all'"),
        ("gcn", {"norm": "bach"}, "norm 'bach': unknown; did you mean 'batch'"),
    ],
)
def test_wrong_options_are_named(name, options, message):
    with pytest.raises(ConfigError, match=message):
        GNNS[name](d, c, **{"hidden": 8, **options})


def test_logits_of_rows_and_graph_agree_in_shape():
    x = torch.randn(14, d)
    for name in GNNS:
        assert logits(factory(name)(d, c).eval(), x, np.zeros((2, 0), int)).shape == (14, c)
