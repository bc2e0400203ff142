"""SpeGCN and SpeGNN by dense powers of A-hat."""

import torch

from labeldeconv.gnns.base import GNNS
from labeldeconv.gnns.spectral import SpeGCN, SpeGNN
from labeldeconv.propagation.adjacency import Adjacency
from tests.samples import random_edges

n, d, c = 12, 6, 4


def test_spectral_forward_by_dense_powers():
    x, edges = torch.randn(n, d), random_edges(n, 20)
    A = torch.from_numpy(Adjacency.from_edges(edges, n).dense()).float()
    for name, coefficients in (("spegcn", [0, 0, 0, 1.0]), ("spegnn", [0.3, -0.2, 0.5, 0.1])):
        gnn = GNNS[name](d, c, layers=3, hidden=8).eval()
        if name == "spegnn":
            gnn.theta.data = torch.tensor(coefficients)
        expected = sum(t * torch.linalg.matrix_power(A, i) @ gnn.psi(x) for i, t in enumerate(coefficients))
        torch.testing.assert_close(gnn.cpu()(x, Adjacency.from_edges(edges, n)), expected, atol=1e-5, rtol=1e-4)


def test_convolutions_are_hops():
    for kind in (SpeGCN, SpeGNN):
        assert kind(d, c, layers=2, hidden=8).hops == 2
        assert kind(d, c, layers=2, hidden=8, convolutions=5).hops == len(kind(d, c, convolutions=5).steps()) == 5


def test_spegnn_starts_as_a_mean_over_the_hops():
    gnn = SpeGNN(d, c, layers=3, hidden=8).eval()
    x, A = torch.randn(n, d), Adjacency.from_edges(random_edges(n, 20), n)
    dense = torch.from_numpy(A.dense()).float()
    expected = torch.stack([torch.linalg.matrix_power(dense, i) @ gnn.psi(x) for i in range(4)]).mean(0)
    torch.testing.assert_close(gnn(x, A), expected, atol=1e-5, rtol=1e-4)
