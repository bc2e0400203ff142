"""The label branch adds to the logits; psi leaves it out."""

import torch
from torch import nn

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


def test_layers_of_any_number_with_either_activation():
    """Widths c, hidden, ..., c; PReLU where asked for, unless there is no hidden layer for it."""
    for layers, widths in ((1, [c, c]), (2, [c, 8, c]), (4, [c, 8, 8, 8, c])):
        for activation in ("relu", "prelu"):
            branch = LabelBranch(c, 8, layers, dropout=0.3, input_dropout=0.2, activation=activation)
            assert branch.mlp.channel_list == widths
            assert isinstance(branch.mlp.act, nn.PReLU) == (activation == "prelu" and layers > 1)
            assert branch.mlp.dropout == [0.3] * (layers - 1) + [0.0]
    assert isinstance(LabelBranch(c, 8, 2, 0.0, 0.0).mlp.act, nn.ReLU)


def test_two_layers_by_hand():
    """relu(norm(x W_1)) W_2, with the moving averages of the normalisation."""
    torch.manual_seed(0)
    branch = LabelBranch(c, 8, layers=2, dropout=0.5, input_dropout=0.5).eval()
    x, (first, last), norm = torch.rand(n, c), branch.mlp.lins, branch.mlp.norms[0].module
    norm.running_mean.uniform_()
    h = (x @ first.weight.t() + first.bias - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    torch.testing.assert_close(branch(x), h.relu() @ last.weight.t() + last.bias)
