"""One hop in blocks: what a worker computes of K_{i+1} = A-hat K_i where no machine holds all of K.

Node `row` stands in block `row % blocks`, at place `row // blocks` of it. An entry (source, target) of A-hat is kept
with the block of its source. Whoever has the vectors of that block sums them by target (`partial_sums`), so that one
row per target and source block travels instead of one per entry; whoever has the block of the targets adds what comes
and multiplies by 1 / degree (`finish`). A source with very many entries, a hub, would make its block larger than the
others: its entries stand with the blocks of their targets instead, and its vector is given to all.

Sums are made in float64, or, for fixed point, in whole numbers: their order, which a cluster does not keep, changes
nothing that is larger than the rounding of float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

FULL = 65535  # 1.0 in fixed point, as in propagation/fixed_point.py
PAGE_BYTES = 1 << 20  # of sums that travel as one record: Spark moves few large records faster than many small ones
SUM_BYTES = 32 << 20  # of sums in float64 held at a time
SEGMENT = 1 << 16  # entries per sum at most: in fixed point 65536 * 65535 still fits 32 bits


@dataclass(frozen=True)
class BlockForm:
    """How K (n, c) and A-hat lie in blocks.

    `fixed` computes in fixed point, which needs a row-normalised A-hat; `hard` says that Y has one 1 a row or none.
    """

    blocks: int
    nodes: int
    classes: int
    symmetric: bool = False
    fixed: bool = False
    hard: bool = False

    @property
    def numbers(self) -> str:
        """The type of node rows on their way: 4 bytes where that is enough."""
        return "<u4" if self.nodes <= 1 << 32 else "<i8"

    @property
    def sums(self) -> str:
        """The type of sums on their way."""
        return "<u4" if self.fixed else "<f4"

    def size(self, block: int) -> int:
        """How many nodes stand in a block."""
        return len(range(block, self.nodes, self.blocks))


def pack_entries(form: BlockForm, sources: np.ndarray, targets: np.ndarray) -> Iterator[tuple[bytes, bytes]]:
    """Entries (m,) of one block as pages of bytes, sorted by the targets' block, the target and the source."""
    order = np.lexsort((sources, targets, targets % form.blocks))
    step = PAGE_BYTES // 8
    for lo in range(0, len(order), step):
        part = order[lo : lo + step]
        yield sources[part].astype(form.numbers).tobytes(), targets[part].astype(form.numbers).tobytes()


def scaled_sources(form: BlockForm, values: np.ndarray, degree: np.ndarray) -> np.ndarray:
    """What rows `values` (m, c) float32 with their degrees (m,) add to their targets: float64, or whole numbers."""
    if form.fixed:
        return np.rint(values * np.float32(FULL)).astype(np.int64)
    return values * _root(degree)[:, None] if form.symmetric else values.astype(np.float64)


def partial_sums(
    form: BlockForm,
    block: int,
    sources: np.ndarray,
    targets: np.ndarray,
    x: np.ndarray,
    hubs: np.ndarray,
    hub_x: np.ndarray,
) -> Iterator[tuple[int, bytes, bytes]]:
    """Sums over the entries of one block, by target: (target block, targets as bytes, sums as bytes), page by page.

    Args:
        sources: (m,) rows of nodes: of this block, or hubs.
        targets: (m,), in the order of `pack_entries`.
        x: (size, c), the block's `scaled_sources`.
        hubs: (k,) rows of hubs, ascending.
        hub_x: (k, c), their `scaled_sources`.
    """
    if not len(targets):
        return
    own = sources % form.blocks == block
    places = np.where(own, sources // form.blocks, len(x) + np.searchsorted(hubs, sources))
    x = np.concatenate([x, hub_x]) if len(hubs) else x
    begins = np.flatnonzero(np.concatenate([[True], targets[1:] != targets[:-1]]))
    starts = np.union1d(begins, np.arange(0, len(targets), SEGMENT))  # a target may stand in several sums
    ends = np.append(starts, len(targets))
    reached = targets[starts]
    per_page = max(1, PAGE_BYTES // (4 * form.classes))
    cuts = np.flatnonzero(np.diff(reached % form.blocks)) + 1
    step = max(1, SUM_BYTES // (8 * form.classes))
    for lo in range(0, len(starts), step):
        hi = min(lo + step, len(starts))
        first, last = ends[lo], ends[hi]
        ones = np.ones(last - first, x.dtype)
        shape = (hi - lo, len(x))
        sums = (csr_matrix((ones, places[first:last], ends[lo : hi + 1] - first), shape) @ x).astype(form.sums)
        bounds = np.union1d(cuts[(cuts > lo) & (cuts < hi)], np.arange(lo, hi, per_page))
        for a, b in zip(bounds, [*bounds[1:], hi], strict=True):
            numbers = reached[a:b].astype(form.numbers)
            yield int(reached[a] % form.blocks), numbers.tobytes(), sums[a - lo : b - lo].tobytes()


def finish(
    form: BlockForm, rows: np.ndarray, degree: np.ndarray, pages: Iterable[tuple[bytes, bytes]], hop: int
) -> np.ndarray:
    """K_hop (m, c) float32 of the nodes `rows` (m,) of one block, all of it, from the pages that came for it."""
    total = np.zeros((len(rows), form.classes), np.int64 if form.fixed else np.float64)
    for targets, sums in pages:
        places = np.frombuffer(targets, form.numbers).astype(np.int64) // form.blocks
        values = np.frombuffer(sums, form.sums).reshape(len(places), form.classes)
        if (places[1:] == places[:-1]).any():
            np.add.at(total, places, values)
        else:
            total[places] += values
    total = total[rows // form.blocks]
    if not form.fixed:
        left = _root(degree) if form.symmetric else _left(degree).astype(np.float64)
        return (total * left[:, None]).astype(np.float32)
    # As the kernel rounds (propagation/kernel/gather.py), so that both engines have the same 16 bits.
    left = _left(degree)[:, None]
    if form.hard and hop == 1:
        scaled = (total // FULL).astype(np.float32) * (np.float32(FULL) * left)
    else:
        scaled = total.astype(np.float32) * left
    return (scaled + np.float32(0.5)).astype(np.uint16).astype(np.float32) / FULL


def _left(degree: np.ndarray) -> np.ndarray:
    return (1.0 / degree.astype(np.float64)).astype(np.float32)


def _root(degree: np.ndarray) -> np.ndarray:
    return (1.0 / np.sqrt(degree.astype(np.float64))).astype(np.float32).astype(np.float64)


def blocks_for(entries: int, classes: int, least: int, block_bytes: int) -> int:
    """How many blocks: `least` at least, and so many that what may come for one block is at most `block_bytes`."""
    return max(least, -(-entries * (4 * classes + 4) // block_bytes))


def hub_degree(entries: int, blocks: int) -> int:
    """From how many entries a source is a hub: a quarter of a block's share, so there are at most 4 hubs a block."""
    return max(2, entries // (4 * blocks))
