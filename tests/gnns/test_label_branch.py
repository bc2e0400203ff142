"""The label branch adds to the logits; psi leaves it out."""

import torch

from labeldeconv.gnns.gamlp import GAMLP
from labeldeconv.gnns.label_branch import LabelBranch
from labeldeconv.propagation.adjacency import Adjacency, propagate
from tests.samples import random_edges

n, d, c = 12, 6, 4


def test_label_branch_adds_and_psi_leaves_it_out():
    gnn = GAMLP(d, c, layers=1, hidden=8, label_hops=2).eval()
    x, edges = torch.randn(n, d), random_edges(n, 20)
    rows = torch.stack(list(propagate(Adjacency.from_edges(edges, n), x, 1)), 1)
    labels = torch.rand(n, c)
    torch.testing.assert_close(gnn(rows, labels), gnn(rows) + gnn.labels(labels))
    other = gnn.psi(x)
    gnn.labels = None
    torch.testing.assert_close(gnn.psi(x), other)


def test_one_layer_is_a_linear_map_of_the_label_inputs():
    branch = LabelBranch(c, 8, layers=1, dropout=0.5, input_dropout=0.5).eval()
    labels = torch.rand(n, c)
    linear = branch.mlp.lins[0]
    torch.testing.assert_close(branch(labels), labels @ linear.weight.t() + linear.bias)


def test_inputs_are_dropped_in_training_only():
    torch.manual_seed(0)
    branch = LabelBranch(c, 8, layers=1, dropout=0.0, input_dropout=0.9)
    labels = torch.rand(200, c)
    assert not torch.equal(branch(labels), branch(labels))
    branch.eval()
    torch.testing.assert_close(branch(labels), branch(labels))
