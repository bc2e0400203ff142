"""Hops by the ranks of one machine: every rank makes its own rows of A-hat^i x, from a map of the hop before.

The rows of a rank are a block with as many entries of A-hat as that of any other. All ranks map the same two files, the
hop at hand and the next one, and meet between hops. Rows are made by the kernel of one process in the same order of
additions, so results are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.fixed_point import quantize
from labeldeconv.propagation.kernel.gather import LINE, count_classes
from labeldeconv.propagation.outofcore import block_width, classes_of, computed_type, release, row_chunks
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.stages import ranks
from labeldeconv.stages.files import map_array
from labeldeconv.stages.memory import MIB, free_memory_mib


def fits_every_rank(num_nodes: int, num_edges: int, config: AdjacencyConfig) -> bool:
    """Whether ranks make hops together: they are on one machine, and there is room for an A-hat of each."""
    return ranks.one_machine() and adjacencies_fit(num_nodes, num_edges, config)


def adjacencies_fit(num_nodes: int, num_edges: int, config: AdjacencyConfig) -> bool:
    """Whether this machine has room for an A-hat of each of its ranks."""
    needed = ranks.on_this_machine() * Adjacency.building_bytes(num_nodes, num_edges, config)
    return needed < (free_memory_mib() or 0.0) * MIB


def shared_array(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> np.memmap:
    """A new .npy file of zeros that rank 0 makes and all ranks have memory-mapped for writing."""
    made = map_array(path, shape, dtype) if ranks.leads() else None
    told = ranks.of_first({"array": str(path)})
    return np.load(told["array"], mmap_mode="r+", allow_pickle=False) if made is None else made


def rows_of_rank(adj: Adjacency) -> tuple[int, int]:
    """The first row of this rank and the one behind its last: blocks of equal numbers of entries of A-hat."""
    cuts = np.searchsorted(adj.indptr, np.linspace(0, len(adj.indices), ranks.world() + 1))
    cuts[0], cuts[-1] = 0, adj.num_nodes
    return int(cuts[ranks.rank()]), int(cuts[ranks.rank() + 1])


def write_hops_together(
    adj: Adjacency,
    x: np.ndarray,
    hops: int,
    out: np.ndarray,
    folder: Path,
    advance: Callable[[int], None] | None = None,
) -> None:
    """`write_hops` by all ranks: fill out (n, hops + 1, d), one map of all, of which every rank writes its rows."""
    n, d = x.shape
    dtype = computed_type(out)
    width = min(d, int(ranks.of_first({"width": block_width(n, dtype)})["width"]))
    padded = -(-width * dtype.itemsize // LINE) * LINE // dtype.itemsize
    paths = [folder / f"hop-{k}.tmp.npy" for k in range(2)]
    now, after = (shared_array(path, (n, padded), dtype) for path in paths)
    ranks.meet("hops")  # all have opened both
    if ranks.leads():
        for path in paths:
            path.unlink()
    lo, hi = rows_of_rank(adj)
    for a in range(0, d, width):
        columns = slice(a, min(a + width, d))
        w = columns.stop - a
        for i in range(hops + 1):
            if i == 0:
                _read(x[:, columns], lo, hi, now[:, :w])
            else:
                values = _next_hop(adj, now[:, :w], lo, hi, count=i == 1)
                after[lo:hi, :w] = values
                now, after = after, now
            _keep(now[:, :w], lo, hi, out[:, i, columns])
            ranks.meet(f"hop {i} of columns {a}..{columns.stop}")  # the next one reads rows of all
            if advance is not None:
                advance(w)


def _next_hop(adj: Adjacency, x: np.ndarray, lo: int, hi: int, count: bool) -> np.ndarray:
    """Rows lo..hi of A-hat x; whole-number labels, at the first hop, are counted instead of summed, as elsewhere."""
    classes = classes_of(x) if count and adj.right is None and adj.left is not None else None
    if classes is None or adj.left is None:
        return adj.times_rows(lo, hi, x)
    first, last = adj.indptr[lo], adj.indptr[hi]
    block = adj.indptr[lo : hi + 1] - first, adj.indices[first:last], adj.left[lo:hi]
    return count_classes(*block, classes, x[lo:hi])


def _read(x: np.ndarray, lo: int, hi: int, target: np.ndarray) -> None:
    for start, end in row_chunks(x[lo:hi]):
        rows = slice(lo + start, lo + end)
        target[rows] = quantize(x[rows]) if target.dtype == np.uint16 else x[rows]
        release(x, lo + start, lo + end)


def _keep(values: np.ndarray, lo: int, hi: int, out: np.ndarray) -> None:
    for start, end in row_chunks(values[lo:hi]):
        out[lo + start : lo + end] = values[lo + start : lo + end]
