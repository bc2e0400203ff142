"""Neighbours drawn without replacement for many rows of a CSR pattern at once, and the numbering of what was drawn.

A row draws by Floyd's algorithm, one random number per neighbour, with a table of stamps instead of a search for
duplicates. Its random numbers are a stream of its own (splitmix64, from a key and the row's node), so that rows are
independent of each other, of the other rows that are asked for, and of the number of threads. In numpy the same took
16.6 s for a batch of ogbn-proteins (21 million draws); docs/performance.md has what it takes here.
"""

from __future__ import annotations

from functools import partial

import numba
import numpy as np

from labeldeconv.propagation.kernel.gather import prefetch
from labeldeconv.propagation.kernel.threads import CHUNKS, run_chunks

SMALL = 1 << 15  # entries below which a second thread costs more than it brings
WAITING = np.uint64(128)  # entries between their draw and their reading
SPARSE = 256  # nodes per entry from which sorting the entries is cheaper than a table of all nodes
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # constants of splitmix64 (Steele, Lea and Flood 2014)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def draw(
    indptr: np.ndarray,
    indices: np.ndarray,
    targets: np.ndarray,
    fanout: int | None,
    key: int,
    carried: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """At most `fanout` entries of every row in `targets` (t,), uniform without replacement; None takes all.

    Returns starts (t + 1,), where the entries of a row begin, their columns (m,) int32, and what they carry: of an
    array of one value per entry of the pattern, those of the drawn entries. Rows that are not cut keep their order.
    """
    targets = np.ascontiguousarray(targets, np.int64)
    degree = indptr[targets + 1] - indptr[targets]
    starts = np.zeros(len(targets) + 1, np.int64)
    np.cumsum(degree if fanout is None else np.minimum(degree, fanout), out=starts[1:])
    columns = np.empty(starts[-1], np.int32)
    indices = np.ascontiguousarray(indices, np.int32)
    source = np.empty(0, np.int32) if carried is None else np.ascontiguousarray(carried)
    taken = np.empty(0 if carried is None else len(columns), source.dtype)
    largest = int(degree.max(initial=0))
    work = partial(_draw_rows, indptr, indices, source, targets, starts, np.uint64(key), largest, columns, taken)
    run_chunks(work, _even(len(targets)), alone=len(columns) < SMALL)
    return starts, columns, None if carried is None else taken


def number(columns: np.ndarray, targets: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Sources (s,): the targets (t,), distinct, then all other nodes among the columns (m,), ascending.

    Also returns the place (m,) int32 of every column among the sources.
    """
    if num_nodes > SPARSE * max(1, len(columns)):
        sources = np.concatenate([targets, np.setdiff1d(columns, targets)])
        order = np.argsort(sources, kind="stable")
        return sources, order[np.searchsorted(sources, columns, sorter=order)].astype(np.int32)
    seen, local = np.zeros(num_nodes, np.bool_), np.empty(num_nodes, np.int32)
    places, bounds, alone = np.empty(len(columns), np.int32), _even(len(columns)), len(columns) < SMALL
    run_chunks(partial(_mark, columns, seen), bounds, alone)
    seen[targets] = False
    sources = np.concatenate([targets, np.flatnonzero(seen)])
    local[sources] = np.arange(len(sources), dtype=np.int32)
    run_chunks(partial(_renumber, local, columns, places), bounds, alone)
    return sources, places


def _even(count: int) -> np.ndarray:
    return np.linspace(0, count, 2 * CHUNKS + 1).astype(np.int64)


@numba.njit(nogil=True, cache=True)
def _mixed(z: np.uint64) -> np.uint64:
    """The output function of splitmix64."""
    z = (z ^ (z >> np.uint64(30))) * MIX_1
    z = (z ^ (z >> np.uint64(27))) * MIX_2
    return z ^ (z >> np.uint64(31))


@numba.njit(nogil=True, cache=True)
def _draw_rows(
    indptr: np.ndarray,
    indices: np.ndarray,
    carried: np.ndarray,
    targets: np.ndarray,
    starts: np.ndarray,
    key: int,
    largest: int,
    columns: np.ndarray,
    taken: np.ndarray,
    lo: int,
    hi: int,
) -> None:
    """Rows lo..hi of `draw`; `largest` is the highest degree. Unsigned indices, since numba checks signed ones.

    A drawn entry is fetched from memory while the next ones are drawn, and read when WAITING of them are there.
    """
    stamps = np.zeros(largest, np.int32)  # which row took a neighbour last
    entries, places = np.empty(WAITING, np.uint64), np.empty(WAITING, np.uint64)
    waiting = np.uint64(0)
    at_indices, at_carried = np.uint64(indices.ctypes.data), np.uint64(carried.ctypes.data)
    per_index, per_carried = np.uint64(indices.itemsize), np.uint64(carried.itemsize)
    carries = len(taken) > 0
    for i in range(lo, hi):
        first, at = np.uint64(indptr[targets[i]]), np.uint64(starts[i])
        degree, count = np.uint64(indptr[targets[i] + 1]) - first, np.uint64(starts[i + 1]) - at
        if count == degree:
            for k in range(count):
                columns[at + k] = indices[first + k]
                if carries:
                    taken[at + k] = carried[first + k]
            continue
        stamp, state = np.int32(i - lo + 1), _mixed(key + np.uint64(targets[i] + 1) * GOLDEN)
        for k in range(count):
            last = degree - count + k
            size = last + np.uint64(1)
            # Lemire's bounded numbers: the upper half of a 32-bit number times the size; what would favour some of the
            # results by 1 in 2^32 is drawn again.
            state += GOLDEN
            product = (_mixed(state) >> HALF) * size
            if product & LOW < size:
                least = (LOW + np.uint64(1) - size) % size
                while product & LOW < least:
                    state += GOLDEN
                    product = (_mixed(state) >> HALF) * size
            chosen = product >> HALF
            if stamps[chosen] == stamp:
                chosen = last
            stamps[chosen] = stamp
            entry = first + chosen
            prefetch(at_indices + entry * per_index)
            if carries:
                prefetch(at_carried + entry * per_carried)
            entries[waiting], places[waiting] = entry, at + k
            waiting += np.uint64(1)
            if waiting == WAITING:
                _read(indices, carried, entries, places, waiting, columns, taken)
                waiting = np.uint64(0)
    _read(indices, carried, entries, places, waiting, columns, taken)


@numba.njit(nogil=True, cache=True)
def _read(
    indices: np.ndarray,
    carried: np.ndarray,
    entries: np.ndarray,
    places: np.ndarray,
    waiting: int,
    columns: np.ndarray,
    taken: np.ndarray,
) -> None:
    """The columns of the entries that wait, and what they carry, to their places."""
    for p in range(waiting):
        columns[places[p]] = indices[entries[p]]
    if len(taken) > 0:
        for p in range(waiting):
            taken[places[p]] = carried[entries[p]]


@numba.njit(nogil=True, cache=True)
def _mark(columns: np.ndarray, seen: np.ndarray, lo: int, hi: int) -> None:
    """Threads may write the same mark, never another."""
    for p in range(lo, hi):
        seen[np.uint64(columns[np.uint64(p)])] = True


@numba.njit(nogil=True, cache=True)
def _renumber(local: np.ndarray, columns: np.ndarray, places: np.ndarray, lo: int, hi: int) -> None:
    for p in range(lo, hi):
        places[np.uint64(p)] = local[np.uint64(columns[np.uint64(p)])]
