"""Hop labels K_i = A-hat^i Y, i = 0..N (eqn:preprocess): computed once, node-major (n, h, c) with h = N + 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from labeldeconv.adjacency import Adjacency, propagate
from labeldeconv.progress import bar


def hop_labels(edges: np.ndarray | torch.Tensor, Y: np.ndarray | torch.Tensor, hops: int) -> np.ndarray:
    """K (n, hops + 1, c) in memory, from edges (2, e), used both ways, and labels Y (n, c)."""
    Y = np.asarray(Y, dtype=np.float32)
    return np.stack(list(propagate(Adjacency.from_edges(np.asarray(edges), len(Y)), Y, hops)), axis=1)


def write_hop_labels(adj: Adjacency, Y: np.ndarray, hops: int, path: Path) -> None:
    """Write K (n, hops + 1, c) float32 to a .npy file; two hops are in memory at a time, never all of them."""
    n, c = Y.shape
    K = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, hops + 1, c))
    with bar("hop labels", total=hops + 1, unit="hops") as advance:
        for i, K_i in enumerate(propagate(adj, Y, hops)):
            K[:, i] = K_i
            advance(1)
    K.flush()
