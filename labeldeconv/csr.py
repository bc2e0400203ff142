"""CSR from an unsorted edge list by a bucket sort: streams into buckets of rows, then a radix sort of each in cache.

A plain counting sort jumps through all of memory for every entry instead, and sorting each row by comparison costs
more than the rest together.
"""

from __future__ import annotations

import numba
import numpy as np
import torch

from labeldeconv.threads import CHUNKS, run_chunks

BUCKET = 1 << 16  # entries per bucket, about: two copies of them fit a core's cache
MOST = 2048  # buckets at most: more streams than that slow the writing down
DIGIT = 11  # bits per pass of the radix sort at most
SMALL = 1 << 16  # entries below which a second thread costs more than it brings


def build_csr(
    rows: np.ndarray, cols: np.ndarray, num_rows: int, both_ways: bool = False, diagonal: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """(indptr int64, indices int32) with sorted, unique columns per row, from entries (rows[k], cols[k]).

    Args:
        rows, cols: (e,) integers.
        num_rows: rows of the matrix.
        both_ways: also take every entry transposed.
        diagonal: True keeps exactly one entry (i, i) in every row, False keeps none.
    """
    rows, cols = np.ascontiguousarray(rows), np.ascontiguousarray(cols)
    return _build(rows, cols, num_rows, both_ways, diagonal, num_rows, square=True)


def transpose_csr(indptr: np.ndarray, indices: np.ndarray, num_cols: int) -> tuple[np.ndarray, np.ndarray]:
    """The transposed pattern."""
    rows = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
    return _build(indices, rows, num_cols, both_ways=False, diagonal=False, num_cols=len(indptr) - 1, square=False)


def _build(
    rows: np.ndarray, cols: np.ndarray, n: int, both_ways: bool, diagonal: bool, num_cols: int, square: bool
) -> tuple[np.ndarray, np.ndarray]:
    if n >= 1 << 31:
        raise ValueError(f"at most 2^31 - 1 rows expected, got {n}")
    wanted = min(MOST, len(rows) * (1 + both_ways) // BUCKET + 1)
    shift = max(0, (max(n, 1) - 1).bit_length() - (wanted - 1).bit_length())
    buckets = ((max(n, 1) - 1) >> shift) + 1
    bits = max(1, (max(num_cols, 1) - 1).bit_length())
    passes = -(-bits // DIGIT)
    digit = -(-bits // passes)
    alone = len(rows) < SMALL
    parts = 1 if alone else torch.get_num_threads()
    bounds = np.linspace(0, len(rows), parts + 1).astype(np.int64)
    of_part = {int(lo): p for p, lo in enumerate(bounds[:-1])}

    counts = np.zeros((parts, buckets), np.int64)
    run_chunks(lambda lo, hi: _count(rows, cols, lo, hi, shift, both_ways, square, counts[of_part[lo]]), bounds, alone)
    if diagonal:
        counts[0] += np.diff(np.minimum(np.arange(buckets + 1) << shift, n))
    ends = np.cumsum(counts.T.ravel()).reshape(buckets, parts).T  # where part p's share of bucket b ends
    position = ends - counts
    starts = np.append(position[0], ends[-1, -1])

    packed = np.empty(starts[-1], np.uint64)  # (row, column)
    if diagonal:
        _scatter_diagonal(n, shift, position[0], packed)
    run_chunks(
        lambda lo, hi: _scatter(rows, cols, lo, hi, shift, both_ways, square, position[of_part[lo]], packed),
        bounds,
        alone,
    )
    halves = packed.view(np.int32)
    indptr = np.zeros(n + 1, np.int64)
    every = np.linspace(0, buckets, min(buckets, CHUNKS * parts) + 1).astype(np.int64)
    run_chunks(
        lambda lo, hi: _sort_buckets(lo, hi, shift, n, starts, packed, halves, indptr, passes, digit), every, alone
    )
    np.cumsum(indptr, out=indptr)
    indices = np.empty(indptr[-1], np.int32)
    run_chunks(lambda lo, hi: _collect(lo, hi, shift, n, starts, halves, indptr, indices), every, alone)
    return indptr, indices


@numba.njit(nogil=True, cache=True)
def _count(
    rows: np.ndarray, cols: np.ndarray, lo: int, hi: int, shift: int, both: bool, square: bool, counts: np.ndarray
) -> None:
    for k in range(lo, hi):
        r, c = rows[k], cols[k]
        if square and r == c:
            continue
        counts[r >> shift] += 1
        if both:
            counts[c >> shift] += 1


@numba.njit(nogil=True, cache=True)
def _scatter(
    rows: np.ndarray,
    cols: np.ndarray,
    lo: int,
    hi: int,
    shift: int,
    both: bool,
    square: bool,
    position: np.ndarray,
    packed: np.ndarray,
) -> None:
    for k in range(lo, hi):
        r, c = np.uint64(rows[k]), np.uint64(cols[k])
        if square and r == c:
            continue
        b = r >> np.uint64(shift)
        packed[position[b]] = r << np.uint64(32) | c
        position[b] += 1
        if both:
            b = c >> np.uint64(shift)
            packed[position[b]] = c << np.uint64(32) | r
            position[b] += 1


@numba.njit(nogil=True, cache=True)
def _scatter_diagonal(n: int, shift: int, position: np.ndarray, packed: np.ndarray) -> None:
    for i in range(n):
        packed[position[i >> shift]] = np.uint64(i) << np.uint64(32) | np.uint64(i)
        position[i >> shift] += 1


@numba.njit(nogil=True, cache=True)
def _sort_buckets(
    lo: int,
    hi: int,
    shift: int,
    n: int,
    starts: np.ndarray,
    packed: np.ndarray,
    halves: np.ndarray,
    indptr: np.ndarray,
    passes: int,
    digit: int,
) -> None:
    """Sort every bucket by row and column; its unique columns overwrite it, their number goes to indptr[row + 1]."""
    largest = 0
    for b in range(lo, hi):
        largest = max(largest, starts[b + 1] - starts[b])
    one, other = np.empty(largest, np.uint64), np.empty(largest, np.uint64)
    columns = np.empty(largest, np.int32)
    ends = np.empty((1 << shift) + 1, np.int64)
    digits = np.empty((1 << digit) + 1, np.int64)
    mask = np.uint64((1 << digit) - 1)
    for b in range(lo, hi):
        first, end, size = b << shift, min(n, (b + 1) << shift), starts[b + 1] - starts[b]
        source, target = packed[starts[b] : starts[b + 1]], one
        for i in range(passes):  # by the digits of the column, the last first
            down = np.uint64(i * digit)
            digits[:] = 0
            for p in range(size):
                digits[np.int64((source[p] >> down) & mask) + 1] += 1
            for k in range(len(digits) - 1):
                digits[k + 1] += digits[k]
            for p in range(size):
                at = np.int64((source[p] >> down) & mask)
                target[digits[at]] = source[p]
                digits[at] += 1
            source, target = target, other if i % 2 == 0 else one
        ends[:] = 0
        for p in range(size):  # by the row, in which columns stay sorted
            ends[np.int64(source[p] >> np.uint64(32)) - first + 1] += 1
        for i in range(end - first):
            ends[i + 1] += ends[i]
        for p in range(size):
            row = np.int64(source[p] >> np.uint64(32)) - first
            columns[ends[row]] = np.int32(source[p] & np.uint64(0xFFFFFFFF))
            ends[row] += 1  # from where the row starts to where it ends
        out = 2 * starts[b]
        start = 0
        for i in range(end - first):
            before = out
            for p in range(start, ends[i]):
                if p == start or columns[p] != columns[p - 1]:
                    halves[out] = columns[p]
                    out += 1
            indptr[first + i + 1] = out - before
            start = ends[i]


@numba.njit(nogil=True, cache=True)
def _collect(
    lo: int,
    hi: int,
    shift: int,
    n: int,
    starts: np.ndarray,
    halves: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
) -> None:
    """Bring the unique columns of every bucket together."""
    for b in range(lo, hi):
        q, end = indptr[b << shift], indptr[min(n, (b + 1) << shift)]
        p = 2 * starts[b]
        for k in range(end - q):
            indices[q + k] = halves[p + k]
