"""Hop features [X, A-hat X, ..., A-hat^N X] of GAMLP and SAGN: propagated once, out of core, read by rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from labeldeconv.adjacency import Adjacency, propagate
from labeldeconv.train.layerwise import scratch

COLUMN_BYTES = 1 << 30  # memory of the columns that are propagated at a time
ROW_BYTES = 1 << 28  # memory of the rows that are put in order at a time


def hop_features(features: np.ndarray, adj: Adjacency, hops: int, folder: Path) -> np.ndarray:
    """(n, hops + 1, d) float16 in a memory map, node by node: a block of columns at a time, then put in order."""
    n, d = features.shape
    width = max(1, min(d, COLUMN_BYTES // (12 * n)))  # a hop in, a hop out, and one on its way to float16
    starts = range(0, d, width)
    rows = scratch(folder, "hop_features", (n, hops + 1, d), np.dtype(np.float16))
    if len(starts) == 1:
        for i, x in enumerate(propagate(adj, np.asarray(features, dtype=np.float32), hops)):
            rows[:, i] = x
        return rows
    columns = [scratch(folder, f"columns-{a}", (hops + 1, n, min(width, d - a)), np.dtype(np.float16)) for a in starts]
    for a, out in zip(starts, columns, strict=True):
        for i, x in enumerate(propagate(adj, np.asarray(features[:, a : a + width], dtype=np.float32), hops)):
            out[i] = x
    step = max(1, ROW_BYTES // (2 * (hops + 1) * d))
    for start in range(0, n, step):
        part = np.concatenate([c[:, start : start + step] for c in columns], axis=2)  # (h, b, d)
        rows[start : start + step] = part.transpose(1, 0, 2)
    return rows
