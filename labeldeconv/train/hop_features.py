"""Hop features [X, A-hat X, ..., A-hat^N X] of GAMLP and SAGN: propagated once, out of core, read by rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from labeldeconv.adjacency import Adjacency
from labeldeconv.outofcore import scratch, write_hops


def hop_features(features: np.ndarray, adj: Adjacency, hops: int, folder: Path) -> np.ndarray:
    """(n, hops + 1, d) float16 in a memory map, node by node."""
    rows = scratch(folder, "hop_features", (len(features), hops + 1, features.shape[1]), np.dtype(np.float16))
    write_hops(adj, features, hops, rows, folder)
    return rows
