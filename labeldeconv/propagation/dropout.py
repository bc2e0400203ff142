"""Dropout without a stored mask, alone or behind BatchNorm and activation: a hash says which values stay.

torch draws a mask on a CPU with one generator, value by value: 15 ns each, and for the inputs of SAGN as long as its
linear maps. Here a hash of the value's place and of one key per call is computed in vector registers while the values
are copied, and once more in backward. The key comes from torch's generator, so a seed gives the same draws whatever the
number of threads. It stands in one file, because numba's cache asks whether the file of a kernel has changed, and no
other.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numba
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labeldeconv.propagation.kernel.threads import CHUNKS, run_chunks

SMALL = 1 << 16  # values below which torch's own operations are as fast
BLOCK = 128  # rows whose sums are taken together: a block of 512 columns stays in a core's cache


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """x (b, d) with a random share p of its values zero and the others divided by 1 - p; x itself outside training."""
    if not draws_here(x, p, training):
        return F.dropout(x, p, training)
    return _Dropout.apply(x, p, draw_key())


def hops_first(x: Tensor, p: float, training: bool) -> Tensor:
    """Rows of hop features (b, h, d) under dropout as (h, b, d), every hop a matrix of its own without gaps.

    Outside training, and where torch draws, a view.
    """
    if not draws_here(x, p, training) or x.requires_grad:
        return F.dropout(x, p, training).transpose(0, 1)
    b, h, d = x.shape
    out = torch.empty(h, b, d)
    x = x if x.transpose(0, 1).is_contiguous() else x.contiguous()
    flat = x.transpose(0, 1).reshape(-1) if x.transpose(0, 1).is_contiguous() else x.view(-1)
    steps = np.array(x.stride()[:2], np.int64)
    rows = partial(_drop_hops, flat.numpy(), steps, out.numpy(), *drawing(p, draw_key()))
    run_chunks(rows, np.linspace(0, b, CHUNKS + 1).astype(np.int64))
    return out


def draws_here(x: Tensor, p: float, training: bool) -> bool:
    """Whether dropout of x is this module's work: in training, on a CPU, in float32, of many values."""
    return training and 0.0 < p < 1.0 and x.device.type == "cpu" and x.dtype == torch.float32 and x.numel() >= SMALL


def draw_key() -> int:
    """A key for one call, from torch's generator."""
    return int(torch.randint(1 << 62, ()))


def drawing(p: float, key: int) -> tuple[np.uint64, np.uint32, np.float32]:
    """What kernels are told: the key, the least hash of a value that stays, and what such a value is multiplied by."""
    return np.uint64(key), np.uint32(min(round(p * 2**32), 2**32 - 1)), np.float32(1.0 / (1.0 - p))


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, key: int) -> Tensor:
        ctx.p, ctx.key = p, key
        return _dropped(x, p, key)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _dropped(grads[0], ctx.p, ctx.key), None, None


def _dropped(x: Tensor, p: float, key: int) -> Tensor:
    rows = x.detach().contiguous().view(-1, x.shape[-1])
    out = torch.empty_like(rows)
    work = partial(_drop, rows.numpy(), out.numpy(), *drawing(p, key))
    run_chunks(work, np.linspace(0, len(rows), CHUNKS + 1).astype(np.int64))
    return out.view(x.shape)


@numba.njit(nogil=True, cache=True, inline="always")
def row_key(key: Any, row: Any) -> Any:
    """64 random bits of a row (splitmix64)."""
    z = key + np.uint64(row) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@numba.njit(nogil=True, cache=True, inline="always")
def hash_of(first: Any, second: Any, column: Any) -> Any:
    """32 random bits of a column, given the halves of its row's key ('lowbias32' by C. Wellons)."""
    v = np.uint32(np.uint32(column) * np.uint32(0x9E3779B9) + first)
    v = np.uint32(v ^ (v >> np.uint32(16)))
    v = np.uint32(v * np.uint32(0x7FEB352D))
    v = np.uint32(v ^ (v >> np.uint32(15)))
    v = np.uint32(v * np.uint32(0x846CA68B))
    return np.uint32(np.uint32(v ^ (v >> np.uint32(16))) ^ second)


@numba.njit(nogil=True, cache=True)
def _drop(x: Any, out: Any, key: Any, least: Any, scale: Any, lo: int, hi: int) -> None:
    d = x.shape[1]
    for i in range(lo, hi):
        bits = row_key(key, i)
        first, second = np.uint32(bits), np.uint32(bits >> np.uint64(32))
        for j in range(d):
            kept = hash_of(first, second, j) >= least
            out[i, j] = x[i, j] * scale if kept else np.float32(0)


@numba.njit(nogil=True, cache=True)
def _drop_hops(flat: Any, steps: Any, out: Any, key: Any, least: Any, scale: Any, lo: int, hi: int) -> None:
    h, _, d = out.shape
    for k in range(h):
        for i in range(lo, hi):
            bits = row_key(key, i * h + k)
            first, second = np.uint32(bits), np.uint32(bits >> np.uint64(32))
            row, target = flat[i * steps[0] + k * steps[1] :], out[k, i]
            for j in range(d):
                kept = hash_of(first, second, j) >= least
                target[j] = row[j] * scale if kept else np.float32(0)


def activated(
    x: Tensor, norm: nn.BatchNorm1d | None, slope: Tensor | None, p: float, added: Tensor | None = None
) -> Tensor:
    """dropout(activation(norm(x) + added)) of x (b, d) in training, where `activates_here`; averages of `norm` move.

    As operations of torch these write ten tensors; here it is two trips through memory forward and two backward, for
    which nothing but the inputs is kept. Sums over rows are taken block by block and put together in float64, so
    results do not depend on the number of threads.

    Args:
        x: what a linear map gives.
        norm: with its scale and shift; None for none.
        slope: of PReLU, one for all columns (1,); None: ReLU.
        p: share of the values that are dropped.
        added: a residual (b, d).
    """
    weights = (None, None) if norm is None else (norm.weight, norm.bias)
    if norm is not None and norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
    return _Activated.apply(x, added, *weights, slope, p, draw_key() if p else 0, norm)


def activates_here(x: Tensor, norm: nn.BatchNorm1d | None) -> bool:
    """Whether `activated` can do it: in training, many values of float32 on a CPU, and moving averages."""
    usual = norm is None or (norm.momentum is not None and norm.affine and norm.track_running_stats)
    narrow = x.dtype != torch.float32 or (norm is not None and norm.weight.dtype != torch.float32)
    return usual and not narrow and x.ndim == 2 and x.device.type == "cpu" and x.numel() >= SMALL


class _Activated(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        added: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        slope: Tensor | None,
        p: float,
        key: int,
        norm: nn.BatchNorm1d | None,
    ) -> Tensor:
        rows = x.contiguous().numpy()
        n, d = rows.shape
        factor, shift = np.ones(d), np.zeros(d)
        if norm is not None and weight is not None and bias is not None:
            mean, variance = _moments(rows)
            _move_averages(norm, mean, variance * (n / max(n - 1, 1)))  # as torch does, of the unbiased variance
            ctx.mean, ctx.inverse = mean, 1.0 / np.sqrt(variance + norm.eps)
            factor = weight.numpy() * ctx.inverse
            shift = bias.numpy() - mean * factor
        tilt = np.float32(0.0 if slope is None else float(slope))
        how = (factor.astype(np.float32), shift.astype(np.float32), tilt, *drawing(p, key))
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        run_chunks(partial(_apply, rows, _residual(added, d), out.numpy(), *how), _rows(n))
        ctx.save_for_backward(x, added)
        ctx.how, ctx.normalised, ctx.learned = how, norm is not None, slope is not None
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, added = ctx.saved_tensors
        rows, grad = x.contiguous().numpy(), grads[0].contiguous().numpy()
        n, d = rows.shape
        inputs = rows, grad, _residual(added, d)
        a, b, scale, shift, slope = np.zeros(d), np.zeros(d), None, None, None
        if ctx.normalised or ctx.learned:
            blocks = -(-n // BLOCK)
            sums = np.zeros((3, blocks, d), np.float32)
            mean = ctx.mean.astype(np.float32) if ctx.normalised else np.zeros(d, np.float32)
            run_chunks(partial(_gradient_sums, *inputs, mean, *ctx.how, ctx.learned, sums), _bounds(blocks))
            of_shift, of_product, of_slope = sums.sum(1, dtype=np.float64)  # (d,) each
            slope = torch.tensor([of_slope.sum()], dtype=torch.float32) if ctx.learned else None
            if ctx.normalised:  # dx = factor (du - mean of du - x-hat mean of du x-hat), as factor du + a x + b
                of_scale = of_product * ctx.inverse
                factor = ctx.how[0].astype(np.float64)
                a = -factor * ctx.inverse * of_scale / n
                b = -factor * of_shift / n - a * ctx.mean
                scale, shift = (torch.from_numpy(v.astype(np.float32)) for v in (of_scale, of_shift))
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        of_added = torch.empty_like(out) if added is not None else out[:0]
        line = (a.astype(np.float32), b.astype(np.float32))
        run_chunks(partial(_gradient, *inputs, *ctx.how, *line, out.numpy(), of_added.numpy()), _rows(n))
        return out, of_added if added is not None else None, scale, shift, slope, None, None, None


def _move_averages(norm: nn.BatchNorm1d, mean: np.ndarray, variance: np.ndarray) -> None:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.momentum is not None
    norm.running_mean.lerp_(torch.from_numpy(mean).float(), norm.momentum)
    norm.running_var.lerp_(torch.from_numpy(variance).float(), norm.momentum)


def _residual(added: Tensor | None, d: int) -> np.ndarray:
    """The residual (b, d), or one row of zeros that serves all."""
    return np.zeros((1, d), np.float32) if added is None else added.contiguous().numpy()


def _moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and biased variance (d,) float64 of the columns of x (b, d)."""
    n, d = x.shape
    blocks = -(-n // BLOCK)
    means, squares = np.zeros((2, blocks, d), np.float32)
    run_chunks(partial(_block_moments, x, means, squares), _bounds(blocks))
    counts = np.full((blocks, 1), BLOCK, np.float64)
    counts[-1] = n - BLOCK * (blocks - 1)
    mean = (counts * means).sum(0) / n
    return mean, (squares.sum(0, dtype=np.float64) + (counts * (means - mean) ** 2).sum(0)) / n


def _rows(n: int) -> np.ndarray:
    return np.linspace(0, n, CHUNKS + 1).astype(np.int64)


def _bounds(blocks: int) -> np.ndarray:
    return np.unique(np.linspace(0, blocks, CHUNKS + 1).astype(np.int64))


@numba.njit(nogil=True, cache=True)
def _block_moments(x: Any, means: Any, squares: Any, lo: int, hi: int) -> None:
    n, d = x.shape
    for block in range(lo, hi):
        start, end = block * BLOCK, min(n, (block + 1) * BLOCK)
        mean, square = means[block], squares[block]
        for i in range(start, end):
            row = x[i]
            for j in range(d):
                mean[j] += row[j]
        for j in range(d):
            mean[j] /= np.float32(end - start)
        for i in range(start, end):
            row = x[i]
            for j in range(d):
                off = row[j] - mean[j]
                square[j] += off * off


@numba.njit(nogil=True, cache=True)
def _apply(
    x: Any,
    added: Any,
    out: Any,
    factor: Any,
    shift: Any,
    slope: Any,
    key: Any,
    least: Any,
    scale: Any,
    lo: int,
    hi: int,
) -> None:
    d = x.shape[1]
    for i in range(lo, hi):
        bits = row_key(key, i)
        first, second = np.uint32(bits), np.uint32(bits >> np.uint64(32))
        row, target, more = x[i], out[i], added[i if len(added) > 1 else 0]
        for j in range(d):
            u = row[j] * factor[j] + shift[j] + more[j]
            u = u if u > 0 else u * slope
            target[j] = u * scale if hash_of(first, second, j) >= least else np.float32(0)


@numba.njit(nogil=True, cache=True)
def _of_input(
    row: Any, grad: Any, more: Any, factor: Any, shift: Any, slope: Any, first: Any, second: Any, least: Any,
    scale: Any, out: Any,
) -> None:  # fmt: skip
    """The gradient (d,) before the activation, of a row. A loop per thing written: LLVM vectorises no larger ones."""
    for j in range(len(row)):
        tilted = grad[j] if row[j] * factor[j] + shift[j] + more[j] > 0 else grad[j] * slope
        out[j] = tilted * scale if hash_of(first, second, j) >= least else np.float32(0)


@numba.njit(nogil=True, cache=True)
def _gradient_sums(
    x: Any, grad: Any, added: Any, mean: Any, factor: Any, shift: Any, slope: Any, key: Any, least: Any, scale: Any,
    learned: bool, sums: Any, lo: int, hi: int,
) -> None:  # fmt: skip
    """Sums over the rows of a block: of du, of du (x - mean), and of the gradient of the slope."""
    n, d = x.shape
    du = np.empty(d, np.float32)
    for block in range(lo, hi):
        of_shift, of_product, of_slope = sums[0, block], sums[1, block], sums[2, block]
        for i in range(block * BLOCK, min(n, (block + 1) * BLOCK)):
            bits = row_key(key, i)
            first, second = np.uint32(bits), np.uint32(bits >> np.uint64(32))
            row, more = x[i], added[i if len(added) > 1 else 0]
            _of_input(row, grad[i], more, factor, shift, slope, first, second, least, scale, du)
            for j in range(d):
                of_shift[j] += du[j]
            for j in range(d):
                of_product[j] += du[j] * (row[j] - mean[j])
            if learned:
                _of_input(row, grad[i], more, factor, shift, np.float32(1), first, second, least, scale, du)
                for j in range(d):
                    u = row[j] * factor[j] + shift[j] + more[j]
                    of_slope[j] += np.float32(0) if u > 0 else du[j] * u


@numba.njit(nogil=True, cache=True)
def _gradient(
    x: Any, grad: Any, added: Any, factor: Any, shift: Any, slope: Any, key: Any, least: Any, scale: Any, a: Any,
    b: Any, out: Any, of_added: Any, lo: int, hi: int,
) -> None:  # fmt: skip
    d = x.shape[1]
    for i in range(lo, hi):
        bits = row_key(key, i)
        first, second = np.uint32(bits), np.uint32(bits >> np.uint64(32))
        row, target, more = x[i], out[i], added[i if len(added) > 1 else 0]
        _of_input(row, grad[i], more, factor, shift, slope, first, second, least, scale, target)
        if len(of_added):
            of_added[i] = target
        for j in range(d):
            target[j] = target[j] * factor[j]
        for j in range(d):
            target[j] += a[j] * row[j] + b[j]
