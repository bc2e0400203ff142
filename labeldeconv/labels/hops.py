"""Hop labels K_i = A-hat^i Y, i = 0..N (eqn:preprocess): computed once, node-major (n, h, c) with h = N + 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from labeldeconv.adjacency import Adjacency, propagate
from labeldeconv.outofcore import write_hops
from labeldeconv.progress import bar


def hop_labels(edges: np.ndarray | torch.Tensor, Y: np.ndarray | torch.Tensor, hops: int) -> np.ndarray:
    """K (n, hops + 1, c) float32 in memory, from edges (2, e), used both ways, and labels Y (n, c)."""
    Y = np.asarray(Y, dtype=np.float32)
    return np.stack(list(propagate(Adjacency.from_edges(np.asarray(edges), len(Y)), Y, hops)), axis=1)


def write_hop_labels(adj: Adjacency, Y: np.ndarray, hops: int, path: Path, store: str = "uint16") -> None:
    """Write K (n, hops + 1, c) to a .npy file: float32, or uint16 fixed point that `dequantize` reads.

    uint16 is for labels in [0, 1] and a row-normalised A-hat, whose products stay there; float32 is taken for others.
    """
    n, c = Y.shape
    fits = adj.right is None and adj.left is not None
    dtype = np.uint16 if store == "uint16" and fits else np.float32
    K = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(n, hops + 1, c))
    with bar("hop labels", total=(hops + 1) * c, unit="columns") as advance:
        write_hops(adj, Y, hops, K, path.parent, advance)
    K.flush()
