"""Kept activations are what every step gives on the old graph, in any blocks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from labeldeconv.gnns.gcn import GCN
from labeldeconv.prediction import kept
from labeldeconv.prediction.kept import activations
from labeldeconv.propagation.adjacency import Adjacency
from tests.samples import random_edges


@dataclass(frozen=True, eq=False)
class Some:
    steps: Any
    inputs: np.ndarray
    adj: Adjacency
    content_key: str


def test_activations(monkeypatch):
    torch.manual_seed(0)
    gnn, adj = GCN(4, 2, layers=3, hidden=5).eval(), Adjacency.from_edges(random_edges(30, 80), 30)
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float16)
    wanted, h = [], torch.from_numpy(x.astype(np.float32))
    with torch.no_grad():
        for step in gnn.steps():
            h = step(h, adj)
            wanted.append(h.numpy())
    monkeypatch.setattr(kept, "BLOCK_ENTRIES", 17)
    held = activations(Some(gnn.steps(), x, adj, "one"))
    assert held.count == 2
    for found, right in zip(held.open(), wanted[:2], strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)
    again = activations(Some(gnn.steps(), x, adj, "one"))
    assert again.made.cached
    assert activations(Some(gnn.steps()[:1], x, adj, "two")).open() == []
