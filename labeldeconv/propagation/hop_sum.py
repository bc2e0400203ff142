"""sum_i theta_i z_i over the hops of every node, differentiable, without a tensor over all hops: for GAMLP and SAGN.

The gradients of theta_i and z_i are taken in one pass over z_i and the gradient of the sum.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from labeldeconv.propagation.kernel.threads import CHUNKS, run_chunks

SMALL = 1 << 16  # values below which torch's own operations are as fast


def hop_sum(theta: Tensor, z: list[Tensor], training: bool) -> Tensor:
    """Weights theta (b, h) and h tensors z_i (b, d) to (b, d); outside training by torch, whose operations export."""
    whole = [theta, *z]
    if training and z[0].numel() >= SMALL and all(x.device.type == "cpu" and x.dtype == torch.float32 for x in whole):
        return _HopSum.apply(*whole)
    out = theta[:, :1] * z[0]
    for i in range(1, len(z)):
        out = out + theta[:, i : i + 1] * z[i]
    return out


class _HopSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, theta: Tensor, *z: Tensor) -> Tensor:
        ctx.save_for_backward(theta, *z)
        out = torch.empty_like(z[0], memory_format=torch.contiguous_format)
        for i, z_i in enumerate(z):
            _run(_add_hop, theta, z_i, out, i)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        theta, *z = ctx.saved_tensors
        grad = grads[0].contiguous()
        of_theta = torch.empty_like(theta, memory_format=torch.contiguous_format)
        of_z = [torch.empty_like(z_i, memory_format=torch.contiguous_format) for z_i in z]
        for i, z_i in enumerate(z):
            _run(_hop_gradient, theta, z_i, grad, i, of_theta, of_z[i])
        return of_theta, *of_z


def _run(kernel: Any, theta: Tensor, z: Tensor, other: Tensor, i: int, *out: Tensor) -> None:
    arrays = [x.detach().contiguous().numpy() for x in (theta, z, other)]
    work = partial(kernel, *arrays, i, *(x.numpy() for x in out))
    run_chunks(work, np.linspace(0, len(z), CHUNKS + 1).astype(np.int64))


@numba.njit(nogil=True, cache=True)
def _add_hop(theta: Any, z: Any, out: Any, i: int, lo: int, hi: int) -> None:
    for r in range(lo, hi):
        weight, row, target = theta[r, i], z[r], out[r]
        if i == 0:
            for j in range(len(row)):
                target[j] = weight * row[j]
        else:
            for j in range(len(row)):
                target[j] += weight * row[j]


@numba.njit(nogil=True, cache=True, fastmath=True)
def _hop_gradient(theta: Any, z: Any, grad: Any, i: int, of_theta: Any, of_z: Any, lo: int, hi: int) -> None:
    for r in range(lo, hi):
        weight, row, g, target = theta[r, i], z[r], grad[r], of_z[r]
        total = np.float32(0)
        for j in range(len(row)):
            total += g[j] * row[j]
        of_theta[r, i] = total
        for j in range(len(row)):
            target[j] = weight * g[j]
