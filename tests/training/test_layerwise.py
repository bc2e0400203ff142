"""Inference layer by layer over blocks of rows equals forward on the whole graph."""

import numpy as np
import pytest
import torch

from labeldeconv.gnns.base import GNNS
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.sampling import row_blocks
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.training import layerwise
from labeldeconv.training.layerwise import infer, take_rows
from tests.samples import random_edges

n, d, c = 40, 5, 3
EDGES = random_edges(n, 150)
X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
ADJ = Adjacency.from_edges(EDGES, n, AdjacencyConfig(normalization="symmetric", self_loops=True))


@pytest.mark.parametrize("limit", [{"BLOCK_ENTRIES": 50}, {"BLOCK_BYTES": 4 * d * 15}])
@pytest.mark.parametrize("name", [name for name in GNNS if GNNS[name].feed == "graph"])
def test_layerwise_inference_equals_forward(name, limit, tmp_path, monkeypatch):
    for setting, value in limit.items():
        monkeypatch.setattr(layerwise, setting, value)
    gnn = GNNS[name](d, c, layers=3, hidden=8).eval()
    entries, sources = layerwise.BLOCK_ENTRIES, layerwise.BLOCK_BYTES // (4 * d)
    assert len(row_blocks(ADJ, np.arange(n), entries, sources)) > 3
    nodes = np.array([3, 30, 11])
    with torch.inference_mode():
        expected = gnn(torch.from_numpy(X), ADJ)[nodes]
        got = infer(gnn, X, ADJ, nodes, tmp_path, torch.device("cpu"))
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)


def test_edge_features_reach_every_block(tmp_path, monkeypatch):
    monkeypatch.setattr(layerwise, "BLOCK_ENTRIES", 30)
    values = np.random.default_rng(1).normal(size=(EDGES.shape[1], 2)).astype(np.float32)
    adj = ADJ.with_edge_features(EDGES, values)
    gnn = GNNS["gat"](d, c, layers=2, hidden=8, edge_dim=2).eval()
    with torch.inference_mode():
        expected = gnn(torch.from_numpy(X), adj)
        got = infer(gnn, X, adj, np.arange(n), tmp_path, torch.device("cpu"))
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)
    without = ADJ.with_edge_features(EDGES, 0 * values)
    assert not torch.allclose(gnn(torch.from_numpy(X), without), expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_come_as_float32_from_any_type(dtype):
    ids = np.array([5, 1, 5])
    found = take_rows(X.astype(dtype), ids)
    assert found.dtype == torch.float32
    np.testing.assert_array_equal(found.numpy(), X.astype(dtype)[ids].astype(np.float32))


def test_memory_is_set_by_the_block(tmp_path, monkeypatch):
    """The largest input a step sees is within the limit on sources, and no step sees more entries than allowed."""
    monkeypatch.setattr(layerwise, "BLOCK_ENTRIES", 60)
    monkeypatch.setattr(layerwise, "BLOCK_BYTES", 4 * 8 * 25)
    gnn = GNNS["gcn"](8, c, layers=3, hidden=8).eval()
    seen = []
    steps = gnn.steps()

    def watched(step):
        return lambda h, rows: (seen.append((len(h), len(rows.indices))), step(h, rows))[1]

    monkeypatch.setattr(gnn, "steps", lambda: [watched(step) for step in steps])
    with torch.inference_mode():
        infer(gnn, np.ones((n, 8), np.float32), ADJ, np.arange(n), tmp_path, torch.device("cpu"))
    assert max(sources for sources, _ in seen) <= 25
    assert max(entries for _, entries in seen) <= 60
    assert sum(entries for _, entries in seen) == 3 * len(ADJ.indices)
