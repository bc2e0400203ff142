"""The contract suite as a user calls it, on the example of docs/gnns.md, and on GNNs that break their word."""

import pytest
import torch
from torch import nn

from labeldeconv.adjacency import convolve
from labeldeconv.gnns.base import GNN
from labeldeconv.testing import (
    check_bad_input,
    check_determinism,
    check_edges_matter,
    check_equivariance,
    check_gnn,
    check_gradients,
    check_output_bias,
    check_shapes,
)


class Sage(GNN):
    feed = "graph"
    psi_exact = True

    def __init__(self, in_dim, out_dim, *, layers=2, hidden=256, dropout=0.5):
        super().__init__(in_dim, out_dim)
        self.inner, self.outer = nn.Linear(in_dim, hidden), nn.Linear(hidden, out_dim)

    @property
    def hops(self):
        return 2

    def forward(self, x, adj):
        return convolve(adj, self.outer(convolve(adj, self.inner(x)).relu()))

    def psi(self, x):
        return self.outer(self.inner(x).relu())


class Blind(Sage):
    def forward(self, x, adj):
        return self.psi(x)


class Numbered(Sage):
    def forward(self, x, adj):
        return super().forward(x, adj) + torch.arange(len(x))[:, None]


class Idle(Sage):
    def __init__(self, in_dim, out_dim):
        super().__init__(in_dim, out_dim)
        self.unused = nn.Parameter(torch.zeros(1))


class Random(Sage):
    def forward(self, x, adj):
        return super().forward(x + torch.rand_like(x), adj)


class Wide(Sage):
    def psi(self, x):
        return super().psi(x).repeat(1, 2)


class Elsewhere(Sage):
    @property
    def output_bias(self):
        return nn.Parameter(torch.zeros(self.out_dim))


class Careless(Sage):
    def check_input(self, x, kind):
        return


def test_own_gnn_passes():
    check_gnn(Sage)


@pytest.mark.parametrize(
    ("gnn", "check", "message"),
    [
        (Blind, check_edges_matter, "does not depend on the edges"),
        (Numbered, check_equivariance, "not permutation-equivariant"),
        (Idle, check_gradients, "no gradient reaches unused"),
        (Random, check_determinism, "eval mode is random"),
        (Wide, check_shapes, r"psi: \(1, 4\) expected, got \(1, 8\)"),
        (Elsewhere, check_output_bias, "output_bias does not add to psi"),
    ],
)
def test_broken_promises_are_named(gnn, check, message):
    with pytest.raises(AssertionError, match=message):
        check(gnn)


def test_careless_input_is_found():
    with pytest.raises((AssertionError, RuntimeError)):
        check_bad_input(Careless)
