"""Sums over neighbours' rows at the speed of memory: the kernel under `propagate` (K_{i+1} = A-hat K_i).

What makes it fast, in order: the rows of neighbours some edges ahead are prefetched; a row of sums stays in vector
registers; rows are padded to cache lines; indices are 32-bit; 1/degree multiplies once per row instead of once per
edge; threads take chunks with equally many edges. numba has neither vectors nor prefetch, so the inner loop is written
in its intermediate language, which LLVM lowers to whatever the machine has: no compiler is needed.

Values are float32; float16 for features, summed in float32: half the memory traffic, one rounding of at most 2^-11 of
a value per hop; or uint16 fixed point (value * 65535) for labels in [0, 1]: exact integer sums, one rounding of at most
7.7e-6 per hop. Every row is summed by one thread in CSR order: bit-equal whatever the number of threads.

Dense graphs go by tiles: a tile of source rows that stays in the core's own cache serves the edges of many rows before
the next tile comes. Sums then wait in memory between tiles, which pays where a row has many edges per tile.

All of it stands in one file, because numba's cache on disk asks whether the file of a kernel has changed, and no other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from labeldeconv.propagation.fixed_point import FULL
from labeldeconv.propagation.kernel.threads import CHUNKS, balanced, run_chunks

LINE = 64  # bytes of a cache line, and of a vector here
WIDEST = 8  # cache lines of a row that are summed at a time
TILE_BYTES = 1 << 20  # source rows that stay in a core's own cache
TILE_EDGES = 8  # edges per row and tile from which tiles pay
TILE_CHUNKS = 4  # per thread: every chunk reads all tiles
NEXT = 4  # rows between prefetch and use, inside a tile
AHEAD = 16  # edges between prefetch and use
SEGMENT = 1024  # summed on its own before it joins the total: keeps float32 sums exact, integer sums from overflowing
KINDS = {  # type of the values: a type that stands for it in numba, which has no float16
    np.dtype(np.float32): np.float32, np.dtype(np.float16): np.int16, np.dtype(np.uint16): np.uint16,
}  # fmt: skip
EXPONENT = 112  # what float32 adds to the exponent of float16 with the same bits
I32, I64, F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
SMALL = 1 << 18  # additions below which a second thread costs more than it brings


def padded(n: int, d: int, dtype: Any) -> np.ndarray:
    """Room for (n, d) values, every row on cache lines of its own; what fills up the lines is zero."""
    whole = _lines(n, d, dtype)
    whole[:, d:] = 0
    return whole[:, :d]


def zeros_in_lines(n: int, d: int, dtype: Any) -> np.ndarray:
    """`padded` of zeros, of which rows take memory when they are first written."""
    stride = -(-d * np.dtype(dtype).itemsize // LINE) * LINE
    raw = np.zeros(n * stride + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + n * stride].view(dtype).reshape(n, -1)[:, :d]


def _lines(n: int, d: int, dtype: Any) -> np.ndarray:
    """Uninitialised rows of whole cache lines, (n, d or a little more).

    numpy asks the system for huge pages when it allocates without clearing, and random rows need them.
    """
    size = np.dtype(dtype).itemsize
    stride = -(-d * size // LINE) * LINE
    raw = np.empty(n * stride + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + n * stride].view(dtype).reshape(n, stride // size)


def rows_aligned(x: np.ndarray) -> bool:
    """Whether `gather` can read x as it is: float32, float16 or uint16, every row on cache lines of its own."""
    inside = x.strides[1] == x.itemsize and x.strides[0] % LINE == 0 and x.strides[0] >= x.shape[1] * x.itemsize
    return x.dtype in KINDS and inside and x.ctypes.data % LINE == 0


def gather(
    indptr: np.ndarray,
    indices: np.ndarray,
    scale: np.ndarray | None,
    x: np.ndarray,
    kernel: Any = None,
    whole: tuple[int, int] | None = None,
    tiles: bool = True,
) -> np.ndarray:
    """out[i] = scale[i] * sum of x[j] over indices[indptr[i]:indptr[i + 1]]: (t, d) for aligned x (s, d).

    float32, float16 or uint16 in, the same out. float16 has to be finite; uint16 needs scale = 1 / degree, so that
    results stay in range. What lies between the columns and the end of their last cache line is read and written along.
    `kernel` replaces the loop over rows, for benchmarks. Of a block of rows, `whole` tells rows and entries of all:
    their order of additions is taken; without `tiles` it is that of the entries.
    """
    if not rows_aligned(x):
        raise ValueError("rows on cache lines of their own expected; `padded` makes them")
    t, d = len(indptr) - 1, x.shape[1]
    scale = np.ones(t, np.float32) if scale is None else np.ascontiguousarray(scale, dtype=np.float32)
    indices = np.ascontiguousarray(indices, dtype=np.int32)
    out = _lines(t, d, x.dtype)[:, :d]
    lines = -(-d * x.itemsize // LINE)
    strides = np.uint64(x.strides[0]), np.uint64(out.strides[0])
    tile = 0 if kernel or not tiles else _tile_rows(len(x), *(whole or (t, len(indices))), lines)
    bounds = balanced(indptr, TILE_CHUNKS if tile else CHUNKS)
    alone = len(indices) * d < SMALL
    for first in range(0, lines, WIDEST):
        form = (KINDS[x.dtype](0),) * min(WIDEST, lines - first)
        at = np.uint64(first * LINE)
        addresses = np.uint64(x.ctypes.data) + at, np.uint64(out.ctypes.data) + at
        if tile:
            width = len(form) * LINE * 4 // x.itemsize  # bytes of a row of sums
            part = partial(_gather_tiles, indptr, len(indices), *addresses, indices, *strides, scale, form)
            work: Callable[[int, int], object] = partial(part, width, tile, len(x))
        else:
            index = np.uint64(indices.ctypes.data)
            work = partial(kernel or _gather_rows, indptr, len(indices), *addresses, index, *strides, scale, form)
        run_chunks(work, bounds, alone)
    return out


def _tile_rows(sources: int, targets: int, edges: int, lines: int) -> int:
    """Source rows per tile, or 0 where rows have too few edges for tiles to pay."""
    rows = TILE_BYTES // (LINE * min(lines, WIDEST))
    tiles = -(-sources // rows)
    return rows if tiles > 1 and edges >= TILE_EDGES * targets * tiles else 0


def may_tile(rows: int, entries: int, lines: int) -> bool:
    """Whether a square matrix goes by tiles for inputs of some width up to so many cache lines a row."""
    return any(_tile_rows(rows, rows, entries, k) for k in range(1, min(lines, WIDEST) + 1))


def count_classes(
    indptr: np.ndarray, indices: np.ndarray, scale: np.ndarray, classes: np.ndarray, like: np.ndarray
) -> np.ndarray:
    """`gather` of one-hot rows given as classes (n,), one byte or two each instead of a row; `like` (n, d) says form.

    A class of d stands for a row of zeros.
    """
    d = like.shape[1]
    classes = classes.astype(np.uint8 if d < 256 else np.uint16)
    out = padded(len(like), d, like.dtype)
    factor = np.float32(FULL if like.dtype == np.uint16 else 1)
    offset = np.float32(0.5 if like.dtype == np.uint16 else 0)  # rounds to nearest where the result is whole
    work = partial(_count_rows, indptr, indices, scale, classes, out, factor, offset)
    run_chunks(work, balanced(indptr), alone=len(indices) < SMALL)
    return out


@numba.njit(nogil=True, cache=True)
def _count_rows(
    indptr: Any, indices: Any, scale: Any, classes: Any, out: Any, factor: float, offset: float, lo: int, hi: int
) -> None:
    d = out.shape[1]
    counts = np.zeros(d + 1, np.uint32)
    for i in range(lo, hi):
        counts[:] = 0
        for p in range(indptr[i], indptr[i + 1]):
            counts[classes[indices[p]]] += 1
        for k in range(d):
            out[i, k] = np.float32(counts[k]) * (factor * scale[i]) + offset


def row_reducer(combine: str) -> Any:
    """A numba intrinsic for one row of sums: the vector loop with prefetch.

    It is called as (x, indices, start, end, last, stride, scale, out, form), addresses as uint64. `form` is a tuple of
    zeros, one per cache line of the row and of the values' type: a type of its own for every width, so that each is
    compiled, and cached on disk, apart. `combine` is 'add'; 'or', which only loads: the bound of benchmarks/hops.py;
    'into', which adds to float32 sums that wait at `out`; or 'out of', which takes waiting sums at `x` to the result.
    """

    def typed(
        context: Any,
        x: Any,
        indices: Any,
        start: Any,
        end: Any,
        last: Any,
        stride: Any,
        scale: Any,
        out: Any,
        form: Any,
    ) -> Any:
        u, i = types.uint64, types.int64
        emit = {types.float32: _Emit, types.int16: _EmitHalves, types.uint16: _EmitFixed}[form.dtype](
            form.count, combine
        )
        return types.void(u, u, i, i, i, u, types.float32, u, form), emit

    return intrinsic(typed)


class _Emit:
    """Writes the loop of one row for `lines` cache lines of float32 values."""

    per_line = 1  # vectors of sums
    zero = 0.0

    def __init__(self, lines: int, combine: str) -> None:
        self.lines, self.combine = lines, combine
        self.floats, self.integers = ir.VectorType(F32, 16), ir.VectorType(I32, 16)
        self.stored = self.summed = self.floats

    def __call__(self, context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        x, indices, start, end, last, stride, scale, out, _ = args
        vectors = self.lines * self.per_line
        total = [cgutils.alloca_once_value(builder, self._constant(self.floats, 0.0)) for _ in range(vectors)]
        if self.combine in ("into", "out of"):
            waiting = out if self.combine == "into" else x
            for k, whole in enumerate(total):
                builder.store(builder.load(_line(builder, waiting, k, self.floats), align=LINE), whole)
        if self.combine != "out of":
            self._sum(builder, x, indices, (start, end, last), stride, total)
        if self.combine == "into":
            for k, whole in enumerate(total):
                builder.store(builder.load(whole), _line(builder, out, k, self.floats), align=LINE)
            return context.get_dummy_value()
        factor = self._splat(builder, scale)
        for k in range(self.lines):
            scaled = [builder.fmul(builder.load(v), factor) for v in total[self.per_line * k : self.per_line * (k + 1)]]
            builder.store(self._packed(builder, scaled), _line(builder, out, k, self.stored), align=LINE)
        return context.get_dummy_value()

    def _sum(self, builder: ir.IRBuilder, x: Any, indices: Any, edges: Any, stride: Any, total: list[Any]) -> None:
        """Add the rows of edges start..end to `total`, a segment at a time."""
        start, end, last = edges
        prefetch = _prefetcher(builder)

        def row(p: Any) -> Any:  # address of the row of the p-th edge's neighbour
            j = builder.load(_line(builder, builder.add(indices, builder.shl(p, I64(2))), 0, I32))
            return builder.add(x, builder.mul(builder.zext(j, I64), stride))

        def least(a: Any, b: Any) -> Any:
            return builder.select(builder.icmp_signed("<", a, b), a, b)

        part = [cgutils.alloca_once(builder, self.summed) for _ in total]
        with cgutils.for_range_slice(builder, start, end, I64(SEGMENT), inc=True) as (segment, _):
            for acc in part:
                builder.store(self._constant(self.summed, self.zero), acc)
            stop = least(builder.add(segment, I64(SEGMENT)), end)
            with cgutils.for_range_slice(builder, segment, stop, I64(1), inc=True) as (p, _):
                if self.combine != "into":  # whose rows are in the nearest caches
                    far = row(least(builder.add(p, I64(AHEAD)), last))
                    for k in range(self.lines):
                        builder.call(prefetch, [_line(builder, far, k, ir.IntType(8)), I32(0), I32(3), I32(1)])
                near = row(p)
                for k in range(self.lines):
                    value = builder.load(_line(builder, near, k, self.stored), align=LINE)
                    self._add(builder, part[self.per_line * k : self.per_line * (k + 1)], value)
            for k in range(self.lines):
                sums = [builder.load(acc) for acc in part[self.per_line * k : self.per_line * (k + 1)]]
                for whole, value in zip(total[self.per_line * k :], self._as_floats(builder, sums), strict=False):
                    builder.store(builder.fadd(builder.load(whole), value), whole)

    def _add(self, builder: ir.IRBuilder, accs: list[Any], value: Any) -> None:
        """One line of values to its sums; 'or' does one operation a line, whatever the type."""
        if self.combine == "or":
            bits = [builder.bitcast(v, self.integers) for v in (builder.load(accs[0]), value)]
            return builder.store(builder.bitcast(builder.or_(*bits), self.summed), accs[0])
        add = builder.fadd if self.summed is self.floats else builder.add
        for acc, part in zip(accs, self._parts(builder, value), strict=True):
            builder.store(add(builder.load(acc), part), acc)
        return None

    def _parts(self, builder: ir.IRBuilder, value: Any) -> list[Any]:
        """A line as the vectors that are summed."""
        return [value]

    def _as_floats(self, builder: ir.IRBuilder, sums: list[Any]) -> list[Any]:
        """Sums of a line as vectors of float32."""
        return sums

    def _packed(self, builder: ir.IRBuilder, scaled: list[Any]) -> Any:
        """A line as it is stored."""
        return scaled[0]

    def _constant(self, kind: Any, value: float) -> Any:
        return ir.Constant(kind, [value] * 16)

    def _splat(self, builder: ir.IRBuilder, value: Any) -> Any:
        unset = ir.Constant(self.floats, ir.Undefined)
        return builder.shuffle_vector(
            builder.insert_element(unset, value, I32(0)), unset, self._constant(self.integers, 0)
        )


class _EmitFixed(_Emit):
    """The same for uint16 values, fixed point.

    A line is read as 16 pairs, high * 65536 + low. Two sums per line are kept, of the pairs and of the high halves; the
    low halves are the difference, exact modulo 2^32. That is cheaper than widening every value.
    """

    per_line = 2
    zero = 0

    def __init__(self, lines: int, combine: str) -> None:
        super().__init__(lines, combine)
        self.stored = self.summed = self.integers

    def _parts(self, builder: ir.IRBuilder, value: Any) -> list[Any]:
        return [value, builder.lshr(value, self._constant(self.integers, 16))]

    def _as_floats(self, builder: ir.IRBuilder, sums: list[Any]) -> list[Any]:
        """Those of low and of high halves."""
        pairs, high = sums
        low = builder.sub(pairs, builder.shl(high, self._constant(self.integers, 16)))
        return [builder.uitofp(v, self.floats) for v in (low, high)]

    def _packed(self, builder: ir.IRBuilder, scaled: list[Any]) -> Any:
        """Rounded to nearest."""
        half = self._constant(self.floats, 0.5)
        low, high = (builder.fptosi(builder.fadd(v, half), self.integers) for v in scaled)
        return builder.or_(low, builder.shl(high, self._constant(self.integers, 16)))


class _EmitHalves(_Emit):
    """The same for float16 values, all of them finite; sums are float32.

    A line is read as 16 pairs. The bits of a float16, moved to where float32 has its sign, exponent and mantissa, are
    that number times 2^-112, subnormal ones too: three operations on whole vectors, and sums are multiplied once.
    """

    per_line = 2

    def __init__(self, lines: int, combine: str) -> None:
        super().__init__(lines, combine)
        self.stored = self.integers

    def _parts(self, builder: ir.IRBuilder, value: Any) -> list[Any]:
        """Low halves and high ones."""
        places = self._constant(self.integers, 0x8FFFE000 - (1 << 32))  # sign, five bits, ten bits
        moved = [builder.shl(value, self._constant(self.integers, 16)), value]
        moved = [builder.and_(builder.ashr(v, self._constant(self.integers, 3)), places) for v in moved]
        return [builder.bitcast(v, self.floats) for v in moved]

    def _as_floats(self, builder: ir.IRBuilder, sums: list[Any]) -> list[Any]:
        return [builder.fmul(v, self._constant(self.floats, 2.0**EXPONENT)) for v in sums]

    def _packed(self, builder: ir.IRBuilder, scaled: list[Any]) -> Any:
        """Rounded to nearest, ties to even; infinite from 65,520 on."""

        def all_of(value: int) -> Any:
            return self._constant(self.integers, value)

        packed = []
        for v in scaled:
            bits = builder.bitcast(builder.fmul(v, self._constant(self.floats, 2.0**-EXPONENT)), self.integers)
            size = builder.and_(bits, all_of(0x7FFFFFFF))
            odd = builder.and_(builder.lshr(size, all_of(13)), all_of(1))
            short = builder.lshr(builder.add(builder.add(size, odd), all_of(0xFFF)), all_of(13))
            short = builder.select(builder.icmp_signed("<", short, all_of(0x7C00)), short, all_of(0x7C00))
            packed.append(builder.or_(short, builder.and_(builder.lshr(bits, all_of(16)), all_of(0x8000))))
        return builder.or_(packed[0], builder.shl(packed[1], all_of(16)))


@intrinsic
def prefetch(context: Any, address: Any) -> Any:
    """Ask for the cache line at an address (uint64)."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        builder.call(_prefetcher(builder), [_line(builder, args[0], 0, ir.IntType(8)), I32(0), I32(3), I32(1)])
        return context.get_dummy_value()

    return types.void(types.uint64), emit


def _prefetcher(builder: ir.IRBuilder) -> Any:
    """LLVM's prefetch instruction."""
    byte = ir.PointerType(ir.IntType(8))
    kind = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
    return builder.module.declare_intrinsic("llvm.prefetch", (byte,), kind)


def _line(builder: ir.IRBuilder, address: Any, k: int, kind: Any) -> Any:
    """Pointer to the k-th cache line from an address."""
    return builder.inttoptr(builder.add(address, I64(k * LINE)), ir.PointerType(kind))


_sum_row = row_reducer("add")
_sum_into = row_reducer("into")
_take_out = row_reducer("out of")


@numba.njit(nogil=True, cache=True)
def _gather_rows(
    indptr: Any,
    edges: int,
    x: int,
    out: int,
    indices: int,
    stride: int,
    out_stride: int,
    scale: Any,
    form: Any,
    lo: int,
    hi: int,
) -> None:
    for i in range(lo, hi):
        row = out + np.uint64(i) * out_stride
        _sum_row(x, indices, indptr[i], indptr[i + 1], edges - 1, stride, scale[i], row, form)


@numba.njit(nogil=True, cache=True)
def _gather_tiles(
    indptr: Any,
    edges: int,
    x: int,
    out: int,
    indices: Any,
    stride: int,
    out_stride: int,
    scale: Any,
    form: Any,
    width: int,
    tile: int,
    sources: int,
    lo: int,
    hi: int,
) -> None:
    """Rows lo..hi, tile after tile of sorted source rows; the last tile takes what is left, sorted or not."""
    room = np.zeros((hi - lo) * width + LINE, np.uint8)
    base, line = np.uint64(room.ctypes.data), np.uint64(LINE)
    sums = base + (line - base % line)
    at = indptr[lo:hi].copy()
    first = np.uint64(indices.ctypes.data)
    for limit in range(tile, sources + tile, tile):
        for i in range(hi - lo):
            if i + NEXT < hi - lo:
                soon = first + np.uint64(4 * at[i + NEXT])
                prefetch(soon)
                prefetch(soon + line)
                for k in range(0, width, LINE):
                    prefetch(sums + np.uint64((i + NEXT) * width + k))
            start, end = at[i], indptr[lo + i + 1]
            stop = start
            while stop < end and (indices[stop] < limit or limit >= sources):
                stop += 1
            if stop > start:
                _sum_into(x, first, start, stop, edges - 1, stride, scale[lo + i], sums + np.uint64(i * width), form)
                at[i] = stop
    for i in range(hi - lo):
        row = out + np.uint64(lo + i) * out_stride
        _take_out(sums + np.uint64(i * width), first, 0, 0, 0, stride, scale[lo + i], row, form)
    room[0] = 0  # numba frees an array after its last mention
