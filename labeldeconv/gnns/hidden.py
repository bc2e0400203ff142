"""What stands between two linear maps: dropout(activation(norm(x))), in the kernels of `propagation` where they fit.

psi takes torch's own operations, `plainly`: behind an encoder there are a few rows, and nothing to gain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import MLP
from torch_geometric.nn import BatchNorm as WrappedBatchNorm

from labeldeconv.gnns.norms import SmallBatchNorm
from labeldeconv.propagation.dropout import activated, activates_here

Between = Callable[..., Tensor]  # `plainly` or `at_once`


def plainly(
    x: Tensor, norm: nn.Module | None, activation: nn.Module, p: float, training: bool, added: Tensor | None = None
) -> Tensor:
    """dropout(activation(norm(x) + added)) of x (b, d), by torch; `p` is the share that is dropped in training."""
    h = x if norm is None else norm(x)
    return F.dropout(activation(h if added is None else h + added), p, training)


def at_once(
    x: Tensor, norm: nn.Module | None, activation: nn.Module, p: float, training: bool, added: Tensor | None = None
) -> Tensor:
    """The same in one kernel, for many rows in training under BatchNorm, or none, with ReLU or PReLU of one slope."""
    inner: Any = norm.module if isinstance(norm, WrappedBatchNorm) else norm
    known = isinstance(activation, nn.ReLU) or (isinstance(activation, nn.PReLU) and activation.num_parameters == 1)
    usual = inner is None or (type(inner) in (nn.BatchNorm1d, SmallBatchNorm) and inner.training)
    if training and known and usual and activates_here(x, inner):
        return activated(x, inner, activation.weight if isinstance(activation, nn.PReLU) else None, p, added)
    return plainly(x, norm, activation, p, training, added)


def through(mlp: MLP, x: Tensor) -> Tensor:
    """An MLP of PyG without an activation behind its last map: (b, d) to (b, c)."""
    if not mlp.training:
        return mlp(x)
    for linear, norm, p in zip(mlp.lins, mlp.norms, mlp.dropout, strict=False):
        x = at_once(linear(x), norm, mlp.act, p, training=True)
    return mlp.lins[-1](x)
