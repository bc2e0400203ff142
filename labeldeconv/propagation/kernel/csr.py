"""CSR from an unsorted edge list by a bucket sort: streams into buckets of rows, then a radix sort of each in cache.

A plain counting sort jumps through all of memory for every entry instead, and sorting each row by comparison costs
more than the rest together.
"""

from __future__ import annotations

import numba
import numpy as np
import torch

from labeldeconv.propagation.kernel.threads import CHUNKS, run_chunks

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


def build_block(rows: np.ndarray, cols: np.ndarray, num_rows: int, num_cols: int) -> tuple[np.ndarray, np.ndarray]:
    """`build_csr` of a matrix (num_rows, num_cols), of which all entries are kept."""
    return _build(rows, cols, num_rows, both_ways=False, diagonal=False, num_cols=num_cols, square=False)


def transpose_csr(indptr: np.ndarray, indices: np.ndarray, num_cols: int) -> tuple[np.ndarray, np.ndarray]:
    """The transposed pattern."""
    rows = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
    return build_block(indices, rows, num_cols, len(indptr) - 1)


def _build(
    rows: np.ndarray, cols: np.ndarray, n: int, both_ways: bool, diagonal: bool, num_cols: int, square: bool
) -> tuple[np.ndarray, np.ndarray]:
    if n >= 1 << 31:
        raise ValueError(f"at most 2^31 - 1 rows expected, got {n}")
    wanted = min(MOST, len(rows) * (1 + both_ways) // BUCKET + 1)
    shift = max(0, (max(n, 1) - 1).bit_length() - (wanted - 1).bit_length())  # rows of a bucket: 2^shift
    buckets = ((max(n, 1) - 1) >> shift) + 1
    column_bits = max(1, (max(num_cols, 1) - 1).bit_length())
    bits = shift + column_bits
    passes = -(-bits // DIGIT)
    form = (np.uint64(shift), np.uint64(column_bits), np.uint64(-(-bits // passes)))
    alone = len(rows) < SMALL
    parts = 1 if alone else torch.get_num_threads()
    bounds = np.linspace(0, len(rows), parts + 1).astype(np.int64)
    of_part = {int(lo): p for p, lo in enumerate(bounds[:-1])}

    counts = np.zeros((parts, buckets), np.int64)
    run_chunks(
        lambda lo, hi: _count(rows, cols, lo, hi, form[0], both_ways, square, counts[of_part[lo]]), bounds, alone
    )
    if diagonal:
        counts[0] += np.diff(np.minimum(np.arange(buckets + 1) << shift, n))
    ends = np.cumsum(counts.T.ravel()).reshape(buckets, parts).T  # where part p's share of bucket b ends
    position = ends - counts
    starts = np.append(position[0], ends[-1, -1])

    keys = np.empty(starts[-1], np.uint32 if bits <= 32 else np.uint64)  # row inside the bucket, column
    if diagonal:
        _scatter_diagonal(n, form, position[0], keys)
    run_chunks(
        lambda lo, hi: _scatter(rows, cols, lo, hi, form, both_ways, square, position[of_part[lo]], keys),
        bounds,
        alone,
    )
    columns = keys.view(np.int32)  # unique ones overwrite the keys, bucket by bucket
    indptr = np.zeros(n + 1, np.int64)
    every = np.linspace(0, buckets, min(buckets, CHUNKS * parts) + 1).astype(np.int64)
    digits = np.zeros((passes, 1 << int(form[2])), np.uint32)  # says how many passes of how many digits
    run_chunks(lambda lo, hi: _sort_buckets(lo, hi, form, digits, starts, keys, columns, indptr), every, alone)
    np.cumsum(indptr, out=indptr)
    indices = np.empty(indptr[-1], np.int32)
    run_chunks(lambda lo, hi: _collect(lo, hi, shift, n, starts, columns, indptr, indices), every, alone)
    return indptr, indices


@numba.njit(nogil=True, cache=True)
def _count(
    rows: np.ndarray, cols: np.ndarray, lo: int, hi: int, shift: int, both: bool, square: bool, counts: np.ndarray
) -> None:
    for k in range(lo, hi):
        r, c = np.uint64(rows[k]), np.uint64(cols[k])
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
    form: tuple[int, int, int],
    both: bool,
    square: bool,
    position: np.ndarray,
    keys: np.ndarray,
) -> None:
    shift, column_bits, _ = form
    inside = (np.uint64(1) << shift) - np.uint64(1)
    for k in range(lo, hi):
        r, c = np.uint64(rows[k]), np.uint64(cols[k])
        if square and r == c:
            continue
        b = r >> shift
        keys[np.uint64(position[b])] = (r & inside) << column_bits | c
        position[b] += 1
        if both:
            b = c >> shift
            keys[np.uint64(position[b])] = (c & inside) << column_bits | r
            position[b] += 1


@numba.njit(nogil=True, cache=True)
def _scatter_diagonal(n: int, form: tuple[int, int, int], position: np.ndarray, keys: np.ndarray) -> None:
    shift, column_bits, _ = form
    inside = (np.uint64(1) << shift) - np.uint64(1)
    for k in range(n):
        i = np.uint64(k)
        keys[position[i >> shift]] = (i & inside) << column_bits | i
        position[i >> shift] += 1


@numba.njit(nogil=True, cache=True)
def _sort_buckets(
    lo: int,
    hi: int,
    form: tuple[int, int, int],
    digits: np.ndarray,
    starts: np.ndarray,
    keys: np.ndarray,
    columns: np.ndarray,
    indptr: np.ndarray,
) -> None:
    """Sort every bucket by row and column; its unique columns overwrite it, their number goes to indptr[row + 1].

    A radix sort over the digits of the key, the last first; unsigned indices, since numba checks signed ones.
    """
    shift, column_bits, width = form
    largest = 0
    for b in range(lo, hi):
        largest = max(largest, starts[b + 1] - starts[b])
    one, other = np.empty(largest, keys.dtype), np.empty(largest, keys.dtype)
    passes, mask = len(digits), (np.uint64(1) << width) - np.uint64(1)
    counts = np.empty(digits.shape, np.uint32)
    only_column = (np.uint64(1) << column_bits) - np.uint64(1)
    per_key = keys.itemsize // 4
    for b in range(lo, hi):
        source, target = keys[starts[b] : starts[b + 1]], one
        counts[:] = 0
        for p in range(len(source)):
            key = np.uint64(source[p])
            for i in range(passes):
                counts[i, key >> np.uint64(i) * width & mask] += np.uint32(1)
        for i in range(passes):
            down, at = np.uint64(i) * width, np.uint32(0)
            places = counts[i]
            for k in range(len(places)):
                places[k], at = at, at + places[k]
            for p in range(len(source)):
                digit = np.uint64(source[p]) >> down & mask
                target[np.uint64(places[digit])] = source[p]
                places[digit] += np.uint32(1)
            source, target = target[: len(source)], other if i % 2 == 0 else one
        first = np.uint64(b) << shift
        out = starts[b] * per_key
        for p in range(len(source)):
            if p == 0 or source[p] != source[p - 1]:
                key = np.uint64(source[p])
                columns[out] = np.int32(key & only_column)
                indptr[first + (key >> column_bits) + np.uint64(1)] += 1
                out += 1


@numba.njit(nogil=True, cache=True)
def _collect(
    lo: int,
    hi: int,
    shift: int,
    n: int,
    starts: np.ndarray,
    columns: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
) -> None:
    """Bring the unique columns of every bucket together."""
    per_key = len(columns) // starts[-1] if starts[-1] else 1
    for b in range(lo, hi):
        q, end = indptr[b << shift], indptr[min(n, (b + 1) << shift)]
        p = starts[b] * per_key
        for k in range(end - q):
            indices[q + k] = columns[p + k]
