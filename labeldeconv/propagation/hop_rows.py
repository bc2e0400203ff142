"""Hop features [X, A-hat X, ..., A-hat^N X] of GAMLP and SAGN: propagated once, out of core, read by rows."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numba
import numpy as np

from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.hop_blocks import RowBlock, write_hops_together
from labeldeconv.propagation.kernel.threads import CHUNKS, run_chunks
from labeldeconv.propagation.outofcore import write_hops
from labeldeconv.stages import ranks
from labeldeconv.stages.files import flush, map_array, scratch
from labeldeconv.stages.shared_arrays import rows_of_all

SMALL = 1 << 18  # values below which a second thread costs more than it brings


def hop_features(features: np.ndarray, adj: Adjacency, hops: int, folder: Path) -> np.ndarray:
    """(n, hops + 1, d) float16 in a memory map, node by node."""
    rows = scratch(folder, "hop_features", (len(features), hops + 1, features.shape[1]), np.dtype(np.float16))
    write_hops(adj, features, hops, rows, folder)
    return rows


def shared_hop_features(
    features: np.ndarray, adj: Adjacency, hops: int, folder: Path, block: RowBlock | None = None
) -> np.ndarray:
    """The same for all ranks: made together where each has its rows of A-hat, a `block`, else by rank 0.

    The file stays in the folder where ranks are on several machines: what one removes, others may not have open.
    """
    path, shape = folder / "hop_features.tmp.npy", (len(features), hops + 1, features.shape[1])
    if block is not None:
        with rows_of_all(path, shape, np.float16, block.rows) as own:
            write_hops_together(block, features, hops, own, folder)
    elif ranks.leads():
        write_hops(adj, features, hops, map_array(path, shape, np.float16), folder)
        flush(path)
    ranks.meet("hop features")
    rows = np.load(ranks.of_first({"hop_features": str(path)})["hop_features"], mmap_mode="r", allow_pickle=False)
    ranks.meet("hop features are open")
    if ranks.one_machine() and ranks.leads():
        path.unlink()
    return rows


def read_rows(rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """rows[ids] (b, h, d) as float32, from float16 rows (n, h, d) perhaps on disk: taken and widened in one go."""
    n, h, d = rows.shape
    out = np.empty((len(ids), h, d), np.float32)
    source, target = rows.view(np.uint16).reshape(n, h * d), out.view(np.uint32).reshape(len(ids), h * d)
    bounds = np.linspace(0, len(ids), CHUNKS + 1).astype(np.int64)
    run_chunks(partial(_widen, source, np.ascontiguousarray(ids, np.int64), target), bounds, alone=out.size < SMALL)
    return out


@numba.njit(nogil=True, cache=True)
def _widen(source: np.ndarray, ids: np.ndarray, target: np.ndarray, lo: int, hi: int) -> None:
    """The bits of float32 from those of float16; numba has no float16, and numpy takes twice as long."""
    scale = np.float32(2.0**112)  # moves the exponent, and makes subnormal numbers normal
    for i in range(lo, hi):
        row = ids[i]
        for k in range(source.shape[1]):
            bits = source[row, k]
            rest = np.uint32((bits & 0x7FFF) << 13)
            moved = np.float32(rest.view(np.float32) * scale)
            value = moved.view(np.uint32)
            if rest >= 0x0F800000:  # infinite, or not a number
                value = np.uint32(rest | 0x7F800000)
            target[i, k] = np.uint32((bits & 0x8000) << 16) | value
