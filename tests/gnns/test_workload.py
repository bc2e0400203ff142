"""Work and memory of a GNN, counted by hand."""

import pytest
from torch_geometric.nn import GraphSAGE

from labeldeconv.gnns.adapter import adapted
from labeldeconv.gnns.base import GNNS
from labeldeconv.gnns.workload import MIB, Size, edge_width, epoch_work, training_mib

SIZE = Size(nodes=100, entries=700, train=60, val=20)


def test_a_gcn_by_hand():
    """Weights 5 x 8 and 8 x 3 meet 100 nodes; 8 numbers flow along 700 entries, twice."""
    gnn = GNNS["gcn"](5, 3, hidden=8)
    assert epoch_work(gnn, SIZE) == 8 * (40 + 24) * 100 + 8 * 700 * 16
    assert training_mib(gnn, SIZE) == pytest.approx(4 * 100 * (5 + 3 * 11) / MIB)


def test_rows_are_those_of_train_and_validation_nodes():
    gnn = GNNS["mlp"](5, 3, hidden=8)
    assert epoch_work(gnn, SIZE) == (40 + 24) * (6 * 60 + 2 * 20)
    assert training_mib(gnn, SIZE) == 0.0


def test_predictions_are_narrower_than_hidden_layers():
    assert edge_width(GNNS["appnp"](5, 3, hidden=8)) == 5 * 3
    assert edge_width(GNNS["spegnn"](5, 3, hidden=8)) == 2 * 3
    assert edge_width(GNNS["sage"](5, 3, hidden=8)) == 2 * 8
    assert edge_width(GNNS["gat"](5, 3, hidden=8, heads=2)) == 2 * 16


def test_attention_and_modules_of_pyg_keep_their_messages():
    dense = Size(nodes=100, entries=70_000, train=60, val=20)
    module = adapted(GraphSAGE, 5, 3, {"hidden": 8, "layers": 2, "dropout": 0.0}, {})
    for gnn in (GNNS["gat"](5, 3, hidden=8), GNNS["revgat"](5, 3, hidden=8), module):
        grown = training_mib(gnn, dense) - training_mib(gnn, SIZE)
        assert grown == pytest.approx(4 * 69_300 * 2 * edge_width(gnn) / MIB)
    assert training_mib(GNNS["gcn"](5, 3), dense) == training_mib(GNNS["gcn"](5, 3), SIZE)
