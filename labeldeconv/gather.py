"""Sums over neighbours' rows at the speed of memory: the kernel under `propagate` (K_{i+1} = A-hat K_i).

What makes it fast, in order: the rows of neighbours some edges ahead are prefetched; a row of sums stays in vector
registers; rows are padded to cache lines; indices are 32-bit; 1/degree multiplies once per row instead of once per
edge; threads take chunks with equally many edges. numba has neither vectors nor prefetch, so the inner loop is written
in its intermediate language, which LLVM lowers to whatever the machine has: no compiler is needed.

Values are float32, or uint16 fixed point (value * 65535) for labels in [0, 1]: half the memory traffic, exact integer
sums, one rounding of at most 7.7e-6 per hop. Every row is summed by one thread in CSR order: bit-equal whatever the
number of threads.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from labeldeconv.threads import balanced, run_chunks

LINE = 64  # bytes of a cache line, and of a vector here
FULL = 65535  # 1.0 in fixed point
WIDEST = 8  # cache lines of a row that are summed at a time
AHEAD = 16  # edges between prefetch and use
SEGMENT = 1024  # summed on its own before it joins the total: keeps float32 sums exact, integer sums from overflowing
I32, I64, F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
SMALL = 1 << 18  # additions below which a second thread costs more than it brings


def quantize(x: np.ndarray) -> np.ndarray:
    """Values in [0, 1] as uint16 fixed point."""
    return np.rint(np.asarray(x) * np.float32(FULL)).astype(np.uint16)


def dequantize(x: np.ndarray) -> np.ndarray:
    """Fixed point as float32; other types only change to float32."""
    return x.astype(np.float32) / FULL if x.dtype == np.uint16 else x.astype(np.float32, copy=False)


def padded(n: int, d: int, dtype: Any) -> np.ndarray:
    """Room for (n, d) values, every row on cache lines of its own; what fills up the lines is zero."""
    out, rest = _lines(n, d, dtype)
    rest[:] = 0
    return out


def _lines(n: int, d: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Uninitialised rows (n, d) and the rest of their cache lines.

    numpy asks the system for huge pages when it allocates without clearing, and random rows need them.
    """
    size = np.dtype(dtype).itemsize
    stride = -(-d * size // LINE) * LINE
    raw = np.empty(n * stride + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    rows = raw[start : start + n * stride].view(dtype).reshape(n, stride // size)
    return rows[:, :d], rows[:, d:]


def rows_aligned(x: np.ndarray) -> bool:
    """Whether `gather` can read x as it is: float32 or uint16, every row on cache lines of its own."""
    inside = x.strides[1] == x.itemsize and x.strides[0] % LINE == 0 and x.strides[0] >= x.shape[1] * x.itemsize
    return x.dtype in (np.float32, np.uint16) and inside and x.ctypes.data % LINE == 0


def gather(
    indptr: np.ndarray, indices: np.ndarray, scale: np.ndarray | None, x: np.ndarray, kernel: Any = None
) -> np.ndarray:
    """out[i] = scale[i] * sum of x[j] over indices[indptr[i]:indptr[i + 1]]: (t, d) for aligned x (s, d).

    float32 or uint16 in, the same out. uint16 needs scale = 1 / degree, so that results stay in range. What lies
    between the columns and the end of their last cache line is read and written along. `kernel` replaces the loop over
    rows, for benchmarks.
    """
    if not rows_aligned(x):
        raise ValueError("rows on cache lines of their own expected; `padded` makes them")
    kernel = kernel or _gather_rows
    t, d = len(indptr) - 1, x.shape[1]
    scale = np.ones(t, np.float32) if scale is None else np.ascontiguousarray(scale, dtype=np.float32)
    indices = np.ascontiguousarray(indices, dtype=np.int32)
    out, _ = _lines(t, d, x.dtype)
    lines = -(-d * x.itemsize // LINE)
    strides = np.uint64(x.strides[0]), np.uint64(out.strides[0])
    widest, bounds = _lines_in_cache(len(x)), balanced(indptr)
    for first in range(0, lines, widest):
        form = (x.dtype.type(0),) * min(widest, lines - first)
        at = np.uint64(first * LINE)
        addresses = np.uint64(x.ctypes.data) + at, np.uint64(out.ctypes.data) + at, np.uint64(indices.ctypes.data)
        part = partial(kernel, indptr, len(indices), *addresses, *strides, scale, form)
        run_chunks(part, bounds, alone=len(indices) * d < SMALL)
    return out


@cache
def _cache_bytes() -> int:
    """Size of the last-level cache; 32 MiB where the system does not tell."""
    try:
        sizes = [p.read_text().strip() for p in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    except OSError:
        sizes = []
    return max((int(size[:-1]) << 10 for size in sizes if size.endswith("K")), default=32 << 20)


def _lines_in_cache(n: int) -> int:
    """Cache lines per row to sum at a time: as many as keep the read columns in half the cache, if any do."""
    lines = _cache_bytes() // (2 * LINE * max(n, 1))
    return min(lines, WIDEST) or WIDEST


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
    compiled, and cached on disk, apart. `combine` 'or' only loads: the bound of benchmarks/hops.py.
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
        emit = _Emit("f4" if form.dtype == types.float32 else "u2", form.count, combine)
        return types.void(u, u, i, i, i, u, types.float32, u, form), emit

    return intrinsic(typed)


class _Emit:
    """Writes the loop of one row for `lines` cache lines of 'f4' or 'u2' values."""

    def __init__(self, kind: str, lines: int, combine: str) -> None:
        self.real, self.lines, self.combine = kind == "f4", lines, combine
        self.lanes = LINE // (4 if self.real else 2)
        self.floats, self.integers = ir.VectorType(F32, self.lanes), ir.VectorType(I32, self.lanes)
        self.stored = self.floats if self.real else ir.VectorType(ir.IntType(16), self.lanes)
        self.summed = self.floats if self.real else self.integers

    def __call__(self, context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        x, indices, start, end, last, stride, scale, out, _ = args
        byte = ir.PointerType(ir.IntType(8))
        prefetch_type = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", (byte,), prefetch_type)

        def line(address: Any, k: int, kind: Any) -> Any:  # pointer to the k-th cache line of a row
            return builder.inttoptr(builder.add(address, I64(k * LINE)), ir.PointerType(kind))

        def row(p: Any) -> Any:  # address of the row of the p-th edge's neighbour
            j = builder.load(line(builder.add(indices, builder.shl(p, I64(2))), 0, I32))
            return builder.add(x, builder.mul(builder.zext(j, I64), stride))

        def least(a: Any, b: Any) -> Any:
            return builder.select(builder.icmp_signed("<", a, b), a, b)

        total = [cgutils.alloca_once_value(builder, self._constant(self.floats, 0.0)) for _ in range(self.lines)]
        part = [cgutils.alloca_once(builder, self.summed) for _ in range(self.lines)]
        with cgutils.for_range_slice(builder, start, end, I64(SEGMENT), inc=True) as (segment, _):
            for acc in part:
                builder.store(self._constant(self.summed, 0.0 if self.real else 0), acc)
            stop = least(builder.add(segment, I64(SEGMENT)), end)
            with cgutils.for_range_slice(builder, segment, stop, I64(1), inc=True) as (p, _):
                far = row(least(builder.add(p, I64(AHEAD)), last))
                for k in range(self.lines):
                    builder.call(prefetch, [line(far, k, ir.IntType(8)), I32(0), I32(3), I32(1)])
                near = row(p)
                for k, acc in enumerate(part):
                    value = builder.load(line(near, k, self.stored), align=LINE)
                    builder.store(self._add(builder, builder.load(acc), value), acc)
            for acc, whole in zip(part, total, strict=True):
                value = builder.load(acc) if self.real else builder.uitofp(builder.load(acc), self.floats)
                builder.store(builder.fadd(builder.load(whole), value), whole)
        factor = self._splat(builder, scale)
        for k, whole in enumerate(total):
            value = builder.fmul(builder.load(whole), factor)
            if not self.real:  # round to nearest
                value = builder.fadd(value, self._constant(self.floats, 0.5))
                value = builder.trunc(builder.fptosi(value, self.integers), self.stored)
            builder.store(value, line(out, k, self.stored), align=LINE)
        return context.get_dummy_value()

    def _add(self, builder: ir.IRBuilder, old: Any, value: Any) -> Any:
        if not self.real:
            value = builder.zext(value, self.integers)
            return builder.or_(old, value) if self.combine == "or" else builder.add(old, value)
        if self.combine == "add":
            return builder.fadd(old, value)
        bits = builder.or_(builder.bitcast(old, self.integers), builder.bitcast(value, self.integers))
        return builder.bitcast(bits, self.floats)

    def _constant(self, kind: Any, value: float) -> Any:
        return ir.Constant(kind, [value] * self.lanes)

    def _splat(self, builder: ir.IRBuilder, value: Any) -> Any:
        unset = ir.Constant(self.floats, ir.Undefined)
        return builder.shuffle_vector(
            builder.insert_element(unset, value, I32(0)), unset, self._constant(self.integers, 0)
        )


_sum_row = row_reducer("add")


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
