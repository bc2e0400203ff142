"""Precision: a part of a GNN without a kernel for bfloat16 computes in float32 and gives back the type it was given.

So every GNN runs under `torch.autocast`, with features of any precision and with weights in bfloat16. The kernels of
`propagation` know float32 and float64 only, and torch 2.13 multiplies no sparse matrix in bfloat16 either.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor

from labeldeconv.propagation.adjacency import Adjacency, convolve

NARROW = (torch.bfloat16, torch.float16)


def in_float32(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """function(*inputs) outside autocast, narrow inputs in float32; the result has the type of the last input."""
    kind = inputs[-1].device.type
    with torch.autocast(kind, enabled=False) if _knows_autocast(kind) else nullcontext():
        out = function(*(x.float() if x.dtype in NARROW else x for x in inputs))
    return out.to(inputs[-1].dtype)


def convolved(h: Tensor, adj: Adjacency) -> Tensor:
    """A-hat h (t, .) of h (s, .) in any precision."""
    return in_float32(partial(convolve, adj), h)


def _knows_autocast(kind: str) -> bool:
    """Whether a type of device has autocast at all."""
    try:
        return bool(torch.amp.is_autocast_available(kind))
    except RuntimeError:  # torch has never heard of it
        return False
