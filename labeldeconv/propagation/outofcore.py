"""propagate out of core: hops of wide inputs written to disk, a block of columns at a time.

Columns do not mix, so all hops of a block are made before the next block is read. Memory is set by the block, not by
the input: pages of memory maps are given back as soon as they were written or read.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from labeldeconv.propagation.adjacency import Adjacency, propagate
from labeldeconv.propagation.fixed_point import quantize
from labeldeconv.propagation.kernel.gather import LINE, count_classes, padded
from labeldeconv.stages.files import scratch
from labeldeconv.stages.memory import MIB, free_memory_mib
from labeldeconv.stages.memory_limit import room

BLOCK_BYTES = 400 << 20  # two hops of a block; more where much memory is free
FREE_SHARE = 8  # that part of the free memory may be a block's: wide blocks read x and A-hat less often
ROW_BYTES = 4 << 20  # rows of a memory map in memory at a time
JOINED_BYTES = 64 << 20  # the same where columns are joined: a disk reads few long pieces faster than many short ones


def block_bytes(num_nodes: int) -> int:
    """Memory of `write_hops` at least, beside A-hat: two hops of the narrowest block, classes, rows on their way."""
    return 2 * LINE * num_nodes + 2 * num_nodes + 4 * ROW_BYTES


def write_hops(
    adj: Adjacency,
    x: np.ndarray,
    hops: int,
    out: np.ndarray,
    folder: Path,
    advance: Callable[[int], None] | None = None,
) -> None:
    """Fill out (n, hops + 1, d) with x, A-hat x, ..., A-hat^hops x for x (n, d), both perhaps memory-mapped.

    A uint16 `out` takes values in [0, 1] in fixed point (row-normalised A-hat only). Others are made in float32; for a
    float16 `out` and a row-normalised A-hat of rows in float16, which are summed in float32.
    `advance` is told every finished hop of every block, in columns.
    """
    n, d = x.shape
    computed = computed_type(out, adj.right)
    width = block_width(n, computed)
    starts = range(0, d, width)
    if len(starts) == 1:
        for i, values in enumerate(_hops(adj, x, hops, computed)):
            for lo, hi in row_chunks(out):
                out[lo:hi, i] = values[lo:hi]
                release(out, lo, hi)
            (advance or _nothing)(d)
        return
    columns = []
    for a in starts:
        part = scratch(folder, f"columns-{a}", (hops + 1, n, min(width, d - a)), out.dtype)
        for i, values in enumerate(_hops(adj, x[:, a : a + width], hops, computed)):
            for lo, hi in row_chunks(part[i]):
                part[i, lo:hi] = values[lo:hi]
                release(part[i], lo, hi)
            (advance or _nothing)(values.shape[1])
        columns.append(part)
    for lo, hi in row_chunks(out, ROW_BYTES if room() is not None else JOINED_BYTES):
        for a, part in zip(starts, columns, strict=True):
            out[lo:hi, :, a : a + width] = part[:, lo:hi].transpose(1, 0, 2)
            for i in range(hops + 1):
                release(part, i, i + 1)  # all of it: reading a page brings its neighbours along
        release(out, lo, hi)


def computed_type(out: np.ndarray, right: np.ndarray | None) -> np.dtype:
    """In what hops are computed that `out` takes; rows times factors `right` of columns are in float32."""
    short = out.dtype == np.uint16 or (out.dtype == np.float16 and right is None)
    return out.dtype if short else np.dtype(np.float32)


def block_width(num_nodes: int, dtype: np.dtype) -> int:
    """Columns whose hops are made at a time, by the memory that there is."""
    return max(1, _block_bytes() // (2 * LINE * max(num_nodes, 1))) * LINE // dtype.itemsize


def _hops(adj: Adjacency, x: np.ndarray, hops: int, dtype: np.dtype) -> Iterator[np.ndarray]:
    """propagate from a block of columns of x; whole-number labels are counted instead of summed.

    Only the hop at hand and the next one are held.
    """
    first = read_columns(x, dtype)
    labels = hops and adj.right is None and adj.left is not None and dtype != np.float16
    classes = classes_of(first) if labels else None
    if classes is not None and adj.left is not None:
        yield first
        first = count_classes(adj.indptr, adj.indices, adj.left, classes, first)
        hops -= 1
    rest = propagate(adj, first, hops)
    del first
    yield from rest


def read_columns(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """x in rows padded to cache lines, read in chunks."""
    out = padded(len(x), x.shape[1], dtype)
    for lo, hi in row_chunks(x):
        out[lo:hi] = quantize(x[lo:hi]) if dtype == np.uint16 else x[lo:hi]
        release(x, lo, hi)
    return out


def classes_of(x: np.ndarray) -> np.ndarray | None:
    """The column (n,) of the one in every row, or the number of columns for a row of zeros; None for other rows."""
    d = x.shape[1]
    one = 65535 if x.dtype == np.uint16 else 1
    classes = np.empty(len(x), np.uint16)
    if d >= 1 << 16:
        return None
    for lo, hi in row_chunks(x):
        part = x[lo:hi]
        top = part.argmax(1)
        highest = np.take_along_axis(part, top[:, None], 1)[:, 0]
        if not np.isin(highest, (0, one)).all() or (part < 0).any() or (np.count_nonzero(part, axis=1) > 1).any():
            return None
        classes[lo:hi] = np.where(highest == one, top, d)
    return classes


def _block_bytes() -> int:
    """Memory that two hops of a block may take: a share of what is free, or half of what a limit leaves, if less."""
    left = room()
    if left is not None:
        return min(BLOCK_BYTES, left // 2)
    return max(BLOCK_BYTES, int((free_memory_mib() or 0.0) * MIB) // FREE_SHARE)


def row_chunks(x: np.ndarray, most: int | None = None) -> Iterator[tuple[int, int]]:
    """Row ranges of about `most` bytes of x, ROW_BYTES by default."""
    step = max(1, (most or ROW_BYTES) // max(1, x.nbytes // max(1, len(x))))
    for lo in range(0, len(x), step):
        yield lo, min(len(x), lo + step)


def release(x: np.ndarray, lo: int, hi: int) -> None:
    """Give the memory of rows lo..hi of a memory map back to the system; their content stays in the file."""
    owner: object = x
    while isinstance(owner, np.ndarray):
        if isinstance(owner, np.memmap) and isinstance(owner.base, mmap.mmap):
            break
        owner = owner.base
    if not isinstance(owner, np.memmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    mapped = owner.base
    assert isinstance(mapped, mmap.mmap)
    origin = np.frombuffer(mapped, np.uint8).ctypes.data
    first = x.ctypes.data - origin + lo * x.strides[0]
    start = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE  # a page that others share stays
    length = first + (hi - lo) * x.strides[0] - start
    if length > 0:
        mapped.madvise(mmap.MADV_DONTNEED, start, min(length, len(mapped) - start))


def _nothing(_: int) -> None: ...
