"""The MLP: its rows are the features, and no edge matters."""

import numpy as np
import torch

from labeldeconv.gnns.mlp import NodeMLP
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import GNNConfig
from labeldeconv.training.feed import make_feed
from tests.samples import random_edges

n, d, c = 12, 6, 4


def test_by_hand():
    gnn, x = NodeMLP(d, c, layers=2, hidden=8, norm="none").eval(), torch.randn(n, d)
    first, last = gnn.mlp.lins
    expected = (x @ first.weight.t() + first.bias).relu() @ last.weight.t() + last.bias
    torch.testing.assert_close(gnn.psi(x), expected)
    torch.testing.assert_close(gnn(x[:, None]), expected)
    assert gnn.hops == 0
    assert gnn.output_bias is last.bias


def test_its_feed_is_the_features_whatever_the_edges(tmp_path):
    gnn, x = NodeMLP(d, c, hidden=8).eval(), np.random.default_rng(0).integers(-9, 9, (n, d)).astype(np.float32)
    for e in (0, 30):
        adj = Adjacency.from_edges(random_edges(n, e), n)
        feed = make_feed(gnn, x, adj, GNNConfig(name="mlp"), tmp_path, torch.device("cpu"))
        torch.testing.assert_close(feed.predict(gnn, np.arange(n)), gnn.psi(torch.from_numpy(x)))
