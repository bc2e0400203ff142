"""The batch of a GNN that is fed by rows, over several ranks: every rank takes its share of the rows.

The nodes of a step are those that one process would take. A row goes through GAMLP, SAGN or an MLP by itself but for
BatchNorm, which takes mean and variance of the whole batch (`SharedBatchNorm`), and the loss, which divides by the
whole batch. So losses and gradients of the ranks add up to those of one process (`sum_gradients` of
training/global_batch.py), and all ranks make the same step. Logits are predicted by shares as well. Dropout is drawn by
each rank for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labeldeconv.encoders.tokens import ahead
from labeldeconv.gnns.base import GNN
from labeldeconv.gnns.norms import SmallBatchNorm
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.hop_blocks import RowBlock
from labeldeconv.propagation.hop_rows import shared_hop_features
from labeldeconv.stages import ranks
from labeldeconv.training.feed import Batch, RowFeed, shuffled


class SharedRowFeed(RowFeed):
    """Rows of hop features for this rank: its share of every batch, and of the nodes that are predicted.

    All ranks make the hop features, where each has its `block` of A-hat's rows; else rank 0 does.
    """

    def __init__(
        self,
        features: np.ndarray,
        adj: Adjacency,
        hops: int,
        batch_rows: int,
        folder: Path,
        device: torch.device,
        block: RowBlock | None = None,
    ) -> None:
        self.block = block
        super().__init__(features, adj, hops, batch_rows, folder, device)

    def batches(self, nodes: np.ndarray, generator: np.random.Generator) -> Iterator[Batch]:
        """The batches of one process, of which every rank reads its share."""
        wholes = list(shuffled(nodes, self.batch_rows, generator))
        shares = [whole[own_rows(len(whole))] for whole in wholes]
        read = map(self._keep, shares) if len(shares) == 1 else ahead(self._read, shares)
        for whole, (ids, x) in zip(wholes, read, strict=True):
            yield Batch(ids, partial(self._logits, ids=ids, x=x), whole)

    def predict(self, gnn: GNN, nodes: np.ndarray) -> Tensor:
        """Logits (m, c), of which every rank computes its share; all get all."""
        own = own_rows(len(nodes))
        part = super().predict(gnn, nodes[own]).float()
        every = part.new_zeros(len(nodes), part.shape[1])
        every[own] = part
        ranks.add_up(every)  # each row is of one rank, the others add zeros: exact
        return every

    def _propagated(self, features: np.ndarray, hops: int, folder: Path) -> np.ndarray:
        return shared_hop_features(features, self.adj, hops, folder, self.block)


def own_rows(count: int) -> slice:
    """Which of `count` rows are for this rank: as many as for any other, or one less."""
    size, rest = divmod(count, ranks.world())
    start = ranks.rank() * size + min(ranks.rank(), rest)
    return slice(start, start + size + (ranks.rank() < rest))


def share_norms(gnn: nn.Module) -> None:
    """Replace every BatchNorm inside a GNN in place by one over the rows of all ranks, with the same weights."""
    number = 0
    for parent in list(gnn.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.BatchNorm1d) and type(child) in (nn.BatchNorm1d, SmallBatchNorm):
                number += 1
                setattr(parent, name, SharedBatchNorm.of(child, number))


class SharedBatchNorm(nn.BatchNorm1d):
    """BatchNorm whose statistics in training are of the rows of all ranks; a batch of one row has the moving averages.

    torch's SyncBatchNorm trains on GPUs alone, and fails where a rank has no row.
    """

    number = 0

    @classmethod
    def of(cls, old: nn.BatchNorm1d, number: int) -> SharedBatchNorm:
        """One with the weights and moving averages of another one; `number` tells those of a GNN apart."""
        new = cls(old.num_features, old.eps, old.momentum, old.affine, old.track_running_stats)
        new.number, new.training = number, old.training
        new.weight, new.bias = old.weight, old.bias
        new.running_mean, new.running_var = old.running_mean, old.running_var
        new.num_batches_tracked = old.num_batches_tracked
        return new

    def forward(self, x: Tensor) -> Tensor:
        """(b, d) to (b, d); b differs from rank to rank and may be 0."""
        if not self.training:
            return super().forward(x)
        rows = x.float()
        with torch.no_grad():
            sums = torch.stack([rows.sum(0, dtype=torch.float64), _squares(rows)])  # (2, d)
            told = torch.cat([sums.flatten(), sums.new_tensor([len(rows)])])
            ranks.add_up(told)
            total = float(told[-1])
            mean, variance = told[:-1].view(2, -1) / total
            variance = (variance - mean.square()).clamp_min(0)
            if total == 1 and self.running_mean is not None and self.running_var is not None:
                mean, variance = self.running_mean.double(), self.running_var.double()
            else:
                self._move(mean, variance * total / max(1.0, total - 1))
        inverse = (variance + self.eps).rsqrt()
        out: Tensor = _Normalised.apply(rows, self.weight, self.bias, mean.float(), inverse.float(), total, self.number)
        return out.to(x.dtype)

    def _move(self, mean: Tensor, variance: Tensor) -> None:
        """Move the averages, as torch does, by the unbiased variance."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        by = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean), by)
        self.running_var.lerp_(variance.to(self.running_var), by)


def _squares(rows: Tensor) -> Tensor:
    """Sums (d,) of squares in float64, by the variance around the rows' own mean: no wide copy of the rows (b, d)."""
    if not len(rows):
        return rows.new_zeros(rows.shape[1], dtype=torch.float64)
    variance, mean = torch.var_mean(rows, 0, correction=0)
    return len(rows) * (variance.double() + mean.double().square())


class _Normalised(torch.autograd.Function):
    """weight (x - mean) inverse + bias; mean and inverse depend on the rows of all ranks, which backward follows."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        inverse: Tensor,
        total: float,
        number: int,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, inverse)
        ctx.total, ctx.number = total, number
        out = (x - mean) * inverse
        return out if weight is None or bias is None else out * weight + bias

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, inverse = ctx.saved_tensors
        hat, grad = (x - mean) * inverse, grads[0]
        own = torch.stack([grad.sum(0, dtype=torch.float64), (grad * hat).sum(0, dtype=torch.float64)])  # (2, d)
        told = torch.cat([own.flatten(), own.new_tensor([ctx.number])])
        ranks.add_up(told)
        if float(told[-1]) != ctx.number * ranks.world():
            raise RuntimeError(f"ranks are in backward of different BatchNorms; this one is in number {ctx.number}")
        of_shift, of_scale = (told[:-1].view(2, -1) / ctx.total).to(x.dtype)
        factor = inverse if weight is None else inverse * weight
        through = factor * (grad - of_shift - hat * of_scale) if ctx.total > 1 else factor * grad
        scale, shift = (None, None) if weight is None else (own[1].to(weight.dtype), own[0].to(weight.dtype))
        return through, scale, shift, None, None, None, None
