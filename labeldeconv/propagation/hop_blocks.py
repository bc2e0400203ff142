"""Hops by several ranks: each owns some rows of A-hat and of every hop, and fetches the rows that those need.

    K_i[rows] = A-hat[rows] K_{i-1},  K_{i-1} from the ranks that own its rows

Ranks of one machine write their rows of a hop into one memory map, which all of them read; ranks of several machines
send each other the rows that are wanted. The kernel and the order of its additions are those of one process, so that
results are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch

from labeldeconv.propagation.adjacency import Adjacency, scales, with_own_neighbour
from labeldeconv.propagation.kernel.csr import build_block
from labeldeconv.propagation.kernel.gather import LINE, count_classes, gather, zeros_in_lines
from labeldeconv.propagation.outofcore import block_width, classes_of, computed_type, read_columns, row_chunks
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.stages import ranks
from labeldeconv.stages.memory import MIB, free_memory_mib
from labeldeconv.stages.shared_arrays import shared_array

SENT_BYTES = 1 << 28  # rows that a rank sends, and receives, at a time: about


def blocks_fit(num_nodes: int, num_edges: int, config: AdjacencyConfig) -> bool:
    """Whether this machine has room for the blocks of its ranks, so that all ranks can make hops together."""
    return _room_for_all(RowBlock.building_bytes(num_nodes, num_edges, config))


def adjacencies_fit(num_nodes: int, num_edges: int, config: AdjacencyConfig) -> bool:
    """Whether this machine has room for an A-hat of each of its ranks."""
    return _room_for_all(Adjacency.building_bytes(num_nodes, num_edges, config))


def _room_for_all(size: int) -> bool:
    return ranks.on_this_machine() * size < (free_memory_mib() or 0.0) * MIB


@dataclass(frozen=True, eq=False)
class RowBlock:
    """The rows of A-hat (n, n) of this rank, `rows`: their entries, and the factors of its nodes' rows and columns.

    Args:
        cuts: the first row of every rank, and n (world + 1,).
        indptr, indices: the entries, as in `Adjacency`; columns are nodes of the whole graph.
        left, right: factors (t,), or None.
        entries: how many entries A-hat has.
    """

    cuts: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    left: np.ndarray | None
    right: np.ndarray | None
    entries: int

    @classmethod
    def from_edges(cls, edges: np.ndarray, num_nodes: int, config: AdjacencyConfig) -> RowBlock:
        """Built by all ranks together from edges (2, e), each from the entries of its rows; see `Adjacency.from_edges`.

        Every rank gets about as many entries as any other, duplicates counted.
        """
        ends = np.concatenate([[0], np.cumsum(_entries_of_rows(edges, num_nodes, config.undirected))])
        ends += np.arange(num_nodes + 1) * config.self_loops
        cuts = np.searchsorted(ends, np.linspace(0, ends[-1], ranks.world() + 1))
        cuts[0], cuts[-1] = 0, num_nodes
        lo, hi = int(cuts[ranks.rank()]), int(cuts[ranks.rank() + 1])
        most = int(ends[hi] - ends[lo])
        del ends
        rows, cols = np.empty(most, np.int32), np.empty(most, np.int32)
        targets, sources = np.ascontiguousarray(edges[1]), np.ascontiguousarray(edges[0])
        used = _entries_between(targets, sources, lo, hi, config.undirected, config.self_loops, rows, cols)
        indptr, indices = build_block(rows[:used], cols[:used], hi - lo, num_nodes)
        indptr, indices = with_own_neighbour(indptr, indices, first=lo)
        entries = torch.tensor([len(indices)])
        ranks.add_up(entries)
        return cls(cuts, indptr, indices, *scales(np.diff(indptr), config.normalization), int(entries))

    @staticmethod
    def building_bytes(num_nodes: int, num_edges: int, config: AdjacencyConfig) -> int:
        """Memory of a rank at the peak of `from_edges`: its entries, sorted as in `Adjacency`; counts of all rows."""
        whole = Adjacency.building_bytes(num_nodes, num_edges, config)
        own = Adjacency.building_bytes(0, -(-num_edges // ranks.started()), config)
        return own + own * 8 // 12 + 24 * num_nodes if ranks.started() > 1 else whole

    @property
    def num_nodes(self) -> int:
        """n, of the whole graph."""
        return int(self.cuts[-1])

    @property
    def rows(self) -> slice:
        """Which rows of A-hat these are."""
        return slice(int(self.cuts[ranks.rank()]), int(self.cuts[ranks.rank() + 1]))

    def __matmul__(self, x: np.ndarray) -> np.ndarray:
        """These rows (t, d) of A-hat x, for x (n, d) as `gather` reads them, times `right` already."""
        whole = self.num_nodes, self.entries  # tiles and their order as for all rows
        return gather(self.indptr, self.indices, self.left, x, whole=whole)


def write_hops_together(
    block: RowBlock,
    x: np.ndarray,
    hops: int,
    out: np.ndarray,
    folder: Path,
    advance: Callable[[int], None] | None = None,
) -> None:
    """`write_hops` by all ranks: each fills out (t, hops + 1, d), its rows of x, A-hat x, ..., A-hat^hops x.

    Of x (n, d), perhaps memory-mapped, a rank reads its rows alone.
    """
    d, dtype = x.shape[1], computed_type(out, block.right)
    width = min(d, int(ranks.of_first({"width": block_width(block.num_nodes, dtype)})["width"]))
    padded = -(-width * dtype.itemsize // LINE) * LINE // dtype.itemsize
    fetch = (_Map if ranks.one_machine() else _Exchange)(block, padded, dtype, folder)
    for a in range(0, d, width):
        columns = slice(a, min(a + width, d))
        own = read_columns(x[block.rows, columns], dtype)
        for i in range(hops + 1):
            if i:
                own = _next_hop(block, own, fetch, count=i == 1)
            for lo, hi in row_chunks(own):
                out[lo:hi, i, columns] = own[lo:hi]
            if advance is not None:
                advance(own.shape[1])


def _next_hop(block: RowBlock, own: np.ndarray, fetch: _Map | _Exchange, count: bool) -> np.ndarray:
    """Own rows (t, d) of A-hat x; whole-number labels, at the first hop, are counted instead of summed."""
    if count and block.right is None and block.left is not None and own.dtype != np.float16:
        classes = classes_of(own)
        others = torch.tensor([classes is None], dtype=torch.int64)
        ranks.add_up(others)
        if not int(others):
            every = torch.zeros(block.num_nodes, dtype=torch.int32)
            every[block.rows] = torch.from_numpy(np.asarray(classes, np.int32))
            ranks.add_up(every)
            return count_classes(block.indptr, block.indices, block.left, every.numpy().astype(np.uint16), own)
    sent = own if block.right is None else own * block.right[:, None]
    return block @ fetch(sent)


class _Map:
    """Rows of a hop in a memory map of one machine, into which every rank writes its own."""

    def __init__(self, block: RowBlock, width: int, dtype: np.dtype, folder: Path) -> None:
        self.rows, paths = block.rows, [folder / f"hop-{k}.tmp.npy" for k in range(2)]
        self.maps = [shared_array(path, (block.num_nodes, width), dtype) for path in paths]
        ranks.meet("hops")  # all have opened both
        if ranks.leads():
            for path in paths:
                path.unlink()

    def __call__(self, own: np.ndarray) -> np.ndarray:
        """x (n, d) with the rows of all ranks, of which this one gives its `own` (t, d)."""
        now, self.maps = self.maps[0], self.maps[::-1]  # a slower rank may still read the other one
        now[self.rows, : own.shape[1]] = own
        ranks.meet("a hop")
        return now[:, : own.shape[1]]


class _Exchange:
    """Rows of a hop sent from rank to rank, those that are wanted; memory of others is never touched."""

    def __init__(self, block: RowBlock, width: int, dtype: np.dtype, folder: Path) -> None:
        del folder
        self.rows, self.x = block.rows, zeros_in_lines(block.num_nodes, width, dtype)
        needed = np.zeros(block.num_nodes, bool)
        needed[block.indices] = True
        needed[self.rows] = False
        wanted = [lo + np.flatnonzero(needed[lo:hi]) for lo, hi in pairwise(block.cuts)]
        pieces = max(1, -(-block.num_nodes * width * dtype.itemsize // SENT_BYTES))
        self.wanted = [np.array_split(ids, pieces) for ids in wanted]
        self.asked = [np.array_split(ids - self.rows.start, pieces) for ids in ranks.swap(wanted)]

    def __call__(self, own: np.ndarray) -> np.ndarray:
        """x (n, d) with the rows that this rank needs, of which it gives its `own` (t, d)."""
        x = self.x[:, : own.shape[1]]
        x[self.rows] = own
        for theirs, mine in zip(zip(*self.asked, strict=True), zip(*self.wanted, strict=True), strict=True):
            got = ranks.swap([own[ids] for ids in theirs])
            for ids, values in zip(mine, got, strict=True):
                x[ids] = values
        return x


def _entries_of_rows(edges: np.ndarray, num_nodes: int, both_ways: bool) -> np.ndarray:
    """Entries of every row (n,), duplicates counted, of which every rank counts a part of the edges."""
    count = edges.shape[1]
    part = edges[:, count * ranks.rank() // ranks.world() : count * (ranks.rank() + 1) // ranks.world()]
    total = torch.from_numpy(np.zeros(num_nodes, np.int64))
    for ends in part if both_ways else part[1:]:
        total += torch.from_numpy(np.bincount(ends, minlength=num_nodes))
    ranks.add_up(total)
    return total.numpy()


@numba.njit(nogil=True, cache=True)
def _entries_between(
    targets: Any, sources: Any, lo: int, hi: int, both: bool, diagonal: bool, rows: np.ndarray, cols: np.ndarray
) -> int:
    """Entries of the rows lo..hi, counted from lo; the number of them."""
    at = 0
    for k in range(len(targets)):
        r, c = targets[k], sources[k]
        if r == c:
            continue
        if lo <= r < hi:
            rows[at], cols[at] = r - lo, c
            at += 1
        if both and lo <= c < hi:
            rows[at], cols[at] = c - lo, r
            at += 1
    if diagonal:
        for i in range(lo, hi):
            rows[at], cols[at] = i - lo, i
            at += 1
    return at
