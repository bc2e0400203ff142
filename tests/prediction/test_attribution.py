"""Contributions sum to the difference, and are what a closed form or another implementation gives."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from labeldeconv.data.sets.planted import planted
from labeldeconv.gnns.adapter import PyGModule
from labeldeconv.gnns.base import GNN, GNNS
from labeldeconv.prediction import attribution as module
from labeldeconv.prediction.attribution import EXACT, LEAST, OVER_HOPS, OVER_NODES, TOLERANCE, integrate, of_psi
from labeldeconv.prediction.logits import GraphModel
from labeldeconv.propagation.adjacency import Adjacency, convolve
from labeldeconv.settings.models import AdjacencyConfig
from tests.prediction.test_logits import NEW, VARIANTS, C, D, M, N, graph_model, grown_by, model

SYMMETRIC = {"normalization": "symmetric", "self_loops": True}
OF = 1


def explained(made, node, of=OF):
    grown, x = grown_by(made)
    known = made.on_the_whole(grown, x, NEW, np.array([node]))[0]
    return made.attribution(grown, x, node, of, known), known


def whole(made):
    """A-hat (n + m, n + m), features, and what all nodes have at the baseline, dense."""
    _, new = grown_by(made)
    x = np.concatenate([made.features, new]).astype(np.float64)
    edges = np.concatenate([made.edges, NEW], axis=1)
    A = Adjacency.from_edges(edges, N + M, made.config).dense()
    return A, x, np.broadcast_to(made.mean.double().numpy(), x.shape).copy()


@pytest.mark.parametrize("node", [0, 60])
@pytest.mark.parametrize("variant", VARIANTS)
def test_contributions_sum_to_the_difference(variant, node):
    """Of an old node and a new one, for every GNN, to a hundredth or a thousandth of a logit."""
    made = model(variant, **SYMMETRIC)
    found, known = explained(made, node)
    assert found.logit == pytest.approx(known[OF], abs=2e-3)
    assert abs(found.gap) <= max(TOLERANCE * abs(found.logit - found.baseline), LEAST) + 1e-6
    assert found.by_node.sum() == pytest.approx(found.by_hop.sum(), abs=1e-5)
    assert (found.how == EXACT) == (made.gnn.phi_coefficients is not None) == (found.points == 0)
    assert (found.of_labels is None) == (not made.gnn.label_hops)
    if found.how == EXACT:
        assert abs(found.gap) < 1e-6


class SumOfHops(GNN):
    """sum_i A-hat^i X W_i: linear in the hops."""

    feed = "rows"
    hops = 2

    def __init__(self):
        super().__init__(D, C)
        self.linears = nn.ModuleList(nn.Linear(D, C) for _ in range(3))

    def forward(self, hop_features):
        return sum(linear(hop_features[:, i]) for i, linear in enumerate(self.linears))


class SGC(GNN):
    """A-hat^2 X W, fed by the graph and without steps, as in docs/design.md."""

    feed = "graph"
    hops = 2

    def __init__(self):
        super().__init__(D, C)
        self.linear = nn.Linear(D, C)

    def forward(self, x, adj):
        return self.linear(convolve(adj, convolve(adj, x)))


@pytest.mark.parametrize("node", [0, 60])
def test_linear_models_have_their_closed_form(node):
    """Of A-hat^i X W_i, node u has [A-hat^i]_vu (x_u - mean) W_i."""
    torch.manual_seed(0)
    rows, graph = (graph_model(gnn, AdjacencyConfig(**SYMMETRIC)) for gnn in (SumOfHops(), SGC()))
    A, x, base = whole(rows)
    weights = [linear.weight[OF].double().detach().numpy() for linear in rows.gnn.linears]
    want = np.stack([np.linalg.matrix_power(A, i)[node] * ((x - base) @ w) for i, w in enumerate(weights)])  # (h, n)
    found, _ = explained(rows, node)
    assert (found.how, found.points) == (OVER_HOPS, module.POINTS[0])
    np.testing.assert_allclose(found.by_hop, want.sum(1), atol=1e-4)
    np.testing.assert_allclose(found.by_node, want.sum(0)[found.nodes], atol=1e-4)
    outside = np.setdiff1d(np.arange(N + M), found.nodes)
    assert not want[:, outside].any()

    found, _ = explained(graph, node)
    alone = (A @ A)[node] * ((x - base) @ graph.gnn.linear.weight[OF].double().detach().numpy())
    assert (found.how, found.points) == (OVER_NODES, module.POINTS[0])
    np.testing.assert_allclose(found.by_node, alone[found.nodes], atol=1e-4)
    np.testing.assert_allclose(
        found.by_hop, [alone[found.nodes[found.distance == i]].sum() for i in range(4)], atol=1e-4
    )


@pytest.mark.parametrize("name", ["appnp", "spegcn", "spegnn"])
def test_polynomials_are_what_dense_powers_give(name):
    made = model(name, **SYMMETRIC)
    A, x, base = whole(made)
    psi = lambda rows: made.gnn.psi(torch.from_numpy(rows).float())[:, OF].double().detach().numpy()  # noqa: E731
    theta = made.gnn.phi_coefficients.double().detach().numpy()
    want = np.stack([t * np.linalg.matrix_power(A, i)[60] * (psi(x) - psi(base)) for i, t in enumerate(theta)])
    found, _ = explained(made, 60)
    np.testing.assert_allclose(found.by_hop, want.sum(1), atol=1e-5)
    np.testing.assert_allclose(found.by_node, want.sum(0)[found.nodes], atol=1e-5)


@pytest.mark.parametrize("name", ["gcn", "gat", "revgat"])
def test_neighbourhoods_give_what_the_whole_graph_does(name, monkeypatch):
    """A second implementation: captum's sum over the points of Gauss and Legendre, of the GNN on the whole graph."""
    made = model(name, **SYMMETRIC)
    edges = np.concatenate([made.edges, NEW], axis=1)
    adj, (_, x, base) = Adjacency.from_edges(edges, N + M, made.config), whole(made)
    x, base = torch.from_numpy(x).float(), torch.from_numpy(base).float()
    mean = torch.zeros_like(x)
    for point, weight in zip(*np.polynomial.legendre.leggauss(8), strict=True):
        here = (base + 0.5 * (1 + point) * (x - base)).requires_grad_()
        made.gnn(here, adj)[60, OF].backward()
        mean += 0.5 * weight * here.grad
    want = ((x - base) * mean).sum(1).numpy()
    monkeypatch.setattr(module, "POINTS", (8,))
    found, _ = explained(made, 60)
    np.testing.assert_allclose(found.by_node, want[found.nodes], atol=1e-5)
    outside = np.setdiff1d(np.arange(N + M), found.nodes)
    assert not want[outside].any()


def test_integrals_of_a_cubic_are_exact_with_few_points():
    """f(a, b) = a^3 + a b, from (1, 1) to (2, 3): by hand 7 + 2 for a and 3 for b, together 14 - 2."""
    x, base = [torch.tensor([2.0]), torch.tensor([3.0])], [torch.tensor([1.0]), torch.tensor([1.0])]
    found = integrate(lambda here: (here[0] ** 3 + here[0] * here[1])[:, 0], x, base)
    parts = [float((a - b) * g) for a, b, g in zip(x, base, found.gradients, strict=True)]
    assert (found.top, found.bottom, found.points) == (14.0, 2.0, 8)
    assert parts == pytest.approx([7 + 2, 3], abs=1e-5)


def test_more_points_are_taken_until_the_sum_is_right():
    """A step at 0.3 of the way, a twentieth wide, is not seen by 8 points."""
    x, base = [torch.ones(1)], [torch.zeros(1)]
    found = integrate(lambda here: torch.sigmoid(400 * (here[0][:, 0] - 0.3)), x, base, together=64)
    assert found.points > 8
    assert float(found.gradients[0]) == pytest.approx(1.0, abs=TOLERANCE)


def test_a_module_of_pyg_is_asked_about_a_part():
    torch.manual_seed(0)
    made = graph_model(PyGModule(pyg.GCN(D, 8, 1, C), D, C).eval(), AdjacencyConfig())
    found, known = explained(made, 63)
    assert found.logit == pytest.approx(known[OF], abs=1e-5)
    assert len(found.nodes) < N
    assert abs(found.gap) <= max(TOLERANCE * abs(found.logit - found.baseline), LEAST) + 1e-6


def test_a_module_that_reaches_further_than_it_counts_gets_the_whole_graph():
    """One layer of message passing by name, ten hops in truth."""

    class Far(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.spread = nn.Linear(D, C), pyg.APPNP(10, 0.05)

        def forward(self, x, edge_index):
            return self.spread(self.linear(5 * x), edge_index)

    torch.manual_seed(0)
    made = graph_model(PyGModule(Far(), D, C).eval(), AdjacencyConfig())
    found, known = explained(made, 63)
    assert len(found.nodes) == N + M
    assert found.logit == pytest.approx(known[OF], abs=1e-4)
    assert found.by_node[64] == 0  # nothing leads from there
    assert found.distance[64] == found.distance.max()


def test_revgat_with_degrees_has_no_steps_and_is_explained():
    torch.manual_seed(0)
    gnn = GNNS["revgat"](D, C, layers=3, hidden=8, symmetric_norm=True).eval()
    made = graph_model(gnn, AdjacencyConfig(**SYMMETRIC))
    found, known = explained(made, 60)
    assert found.logit == pytest.approx(known[OF], abs=1e-4)
    assert abs(found.gap) <= max(TOLERANCE * abs(found.logit - found.baseline), LEAST) + 1e-6


def test_psi_reads_the_node_alone():
    torch.manual_seed(0)
    head = nn.Linear(D, C)
    x, mean = torch.randn(D), torch.randn(D)
    found = of_psi(head, x, mean, 7, OF)
    assert found.by_hop.tolist() == found.by_node.tolist()
    assert found.by_node[0] == pytest.approx(float((head.weight[OF].detach() * (x - mean)).sum()), abs=1e-5)
    assert (found.nodes.tolist(), found.gap) == ([7], 0.0)


def test_the_planted_filter_is_found_to_the_digit():
    """Y = (A-hat - 1.2 I) psi(F*): the contributions of hop 0 and hop 1 are those two terms, off their means."""
    truth = planted(200, seed=0)

    class Truth(GNN):
        feed = "graph"
        hops = 1
        phi_coefficients = torch.tensor(truth.phi)

        def forward(self, x, adj):
            return convolve(adj, x) - 1.2 * x

        def psi(self, x):
            return x

    config = AdjacencyConfig()
    adj = Adjacency.from_edges(truth.graph.edges, 200, config)
    P = truth.inverse_labels
    made = GraphModel(Truth(10, 10), P, adj, config, truth.graph.edges)
    grown = made.grow(0, np.empty((2, 0), int))
    for node in (0, 33):
        k = int(truth.graph.labels[node])
        found = made.attribution(grown, P[:0], node, k, truth.soft_labels[node])
        mean = P[:, k].mean(dtype=np.float64)
        around = (adj.dense() @ P)[node, k]
        np.testing.assert_allclose(found.by_hop, [-1.2 * (P[node, k] - mean), around - mean], atol=1e-5)
        assert found.logit == pytest.approx(truth.soft_labels[node, k], abs=1e-5)
