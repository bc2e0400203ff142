"""Inference layer by layer over the whole graph: every step of a GNN over blocks of rows, never sampled.

Memory is set by the block; what a layer gives (n, .) goes to a memory map.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from labeldeconv.gnns.base import GNN
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.outofcore import scratch
from labeldeconv.propagation.sampling import sample_rows

BLOCK_ENTRIES = 1 << 18  # entries of A-hat per block; a node with more has a block of its own


def infer(
    gnn: GNN, features: np.ndarray, adj: Adjacency, nodes: np.ndarray, folder: Path, device: torch.device
) -> torch.Tensor:
    """Logits (m, c) of `nodes` (m,), distinct, from features (n, d)."""
    steps = gnn.steps()
    assert steps is not None
    h = features
    everyone = np.arange(adj.num_nodes)
    for i, step in enumerate(steps):
        targets = nodes if i == len(steps) - 1 else everyone
        out: np.ndarray | None = None
        place = 0
        for ids in row_blocks(adj, targets):
            sources, rows = sample_rows(adj, ids, None)
            x = torch.from_numpy(np.asarray(h[sources], dtype=np.float32)).to(device)
            part = step(x, rows).float().cpu().numpy()
            if out is None:
                out = scratch(folder, f"layer-{i}", (len(targets), part.shape[1]), np.dtype(np.float32))
            out[place : place + len(ids)] = part
            place += len(ids)
        assert out is not None
        h = out
    return torch.from_numpy(np.array(h))


def row_blocks(adj: Adjacency, targets: np.ndarray) -> list[np.ndarray]:
    """Targets (m,) in order, cut where a block reaches BLOCK_ENTRIES entries."""
    entries = np.cumsum(adj.indptr[targets + 1] - adj.indptr[targets])
    return [ids for ids in np.split(targets, np.flatnonzero(np.diff(entries // BLOCK_ENTRIES)) + 1) if len(ids)]
