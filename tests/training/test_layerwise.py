"""Inference layer by layer over blocks of rows equals forward on the whole graph."""

import numpy as np
import pytest
import torch

from labeldeconv.gnns.base import GNNS
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.training import layerwise
from labeldeconv.training.layerwise import infer, row_blocks
from tests.samples import random_edges

n, d, c = 40, 5, 3
EDGES = random_edges(n, 150)
X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
ADJ = Adjacency.from_edges(EDGES, n, AdjacencyConfig(normalization="symmetric", self_loops=True))


@pytest.mark.parametrize("name", [name for name in GNNS if GNNS[name].feed == "graph"])
def test_layerwise_inference_equals_forward(name, tmp_path, monkeypatch):
    monkeypatch.setattr(layerwise, "BLOCK_ENTRIES", 50)
    gnn = GNNS[name](d, c, layers=3, hidden=8).eval()
    assert len(row_blocks(ADJ, np.arange(n))) > 3
    nodes = np.array([3, 30, 11])
    with torch.inference_mode():
        expected = gnn(torch.from_numpy(X), ADJ)[nodes]
        got = infer(gnn, X, ADJ, nodes, tmp_path, torch.device("cpu"))
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)


def test_blocks_are_cut_by_entries(monkeypatch):
    """Rows of 3, 1, 2 and 5 entries, cut wherever another four are full: 3, 4, 6 and 11 in sum."""
    adj = Adjacency(np.array([0, 3, 4, 6, 11]), np.zeros(11, np.int32), None, None, symmetric=False)
    monkeypatch.setattr(layerwise, "BLOCK_ENTRIES", 4)
    assert [ids.tolist() for ids in row_blocks(adj, np.arange(4))] == [[0], [1, 2], [3]]
    assert [ids.tolist() for ids in row_blocks(adj, np.array([3, 0]))] == [[3], [0]]
