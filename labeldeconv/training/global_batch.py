"""The global batch of a training step over several ranks: every rank encodes its share, and all see all features.

The nodes of a step are those that one process would take. Each rank sends its share of their attributes, even by
tokens, through the encoder. The features of all ranks are put together in the batch's order before psi, so that psi,
its BatchNorm, the targets and the loss are those of the whole batch, on every rank alike. A gradient of the loss with
respect to the features is therefore whole on every rank; each takes that of its own rows back through the encoder, and
the sum over the ranks is the encoder's gradient (`sum_gradients`). psi and the loss cost every rank the same again,
which is little beside the encoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labeldeconv.encoders.base import Encoder
from labeldeconv.stages import ranks
from labeldeconv.training.sharding import is_shard


@dataclass(frozen=True)
class Share:
    """What one rank encodes of a batch.

    Args:
        places: (p,) of its attributes among those of the batch.
        total: attributes of the batch, u.
        seed: of the batch: dropout in psi is drawn alike on all ranks, dropout in the encoder is each rank's own.
    """

    places: Tensor
    total: int
    seed: tuple[int, ...]

    def features(self, encoder: Encoder, inputs: tuple[Tensor, ...]) -> Tensor:
        """Features (u, d) of the whole batch, of which this rank encodes those of its `inputs`."""
        device = next(encoder.parameters()).device
        torch.manual_seed(mixed_seed(*self.seed, 1 + ranks.rank()))
        own = encoder(*inputs).float()[: len(self.places)]  # also for none: ranks with shards run it together
        every: Tensor = _Gathered.apply(own, self.places.to(device), self.total)
        torch.manual_seed(mixed_seed(*self.seed, 0))
        return every


def share_of(lengths: np.ndarray, seed: tuple[int, ...], world: int, rank: int) -> Share:
    """The share of a rank in attributes of these lengths (u,): of similar length, and as many tokens as any other.

    Sorted by length and cut at equal sums, so that little is padded: a rank has few long ones, another many short ones.
    """
    order = np.argsort(-lengths, kind="stable")
    sums = np.cumsum(lengths[order])
    middle = sums - lengths[order] / 2  # an attribute belongs where its middle lies
    owner = np.minimum(middle * world // max(1, sums[-1] if len(sums) else 1), world - 1).astype(np.int64)
    return Share(torch.from_numpy(order[owner == rank]), len(lengths), seed)


def sum_gradients(encoder: nn.Module, others: nn.Module | None = None) -> None:
    """Replace the encoder's gradients by their sum over the ranks, in one exchange; those of `others` are alike.

    Gradients of others are averaged, so that ranks on different hardware do not drift apart; sparse ones, of GIANT's
    rows, are left alone, and so are shards, whose gradients are sums already. A weight without a gradient on any rank
    keeps none: AdamW would let it decay.
    """
    inside = {id(p) for p in encoder.parameters()}
    mine = [p for p in encoder.parameters() if p.requires_grad and not is_shard(p)]
    outside = [p for p in others.parameters() if id(p) not in inside] if others is not None else []
    alike = [p for p in outside if p.grad is not None and not p.grad.is_sparse]
    device = next(encoder.parameters()).device
    there = torch.tensor([float(p.grad is not None) for p in mine], device=device)
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in mine]
    parts += [p.grad / ranks.world() for p in alike if p.grad is not None]
    flat = torch.cat([there, *(part.flatten().float() for part in parts)])
    ranks.add_up(flat)
    held = flat[: len(mine)].tolist()
    rows = flat[len(mine) :].split([part.numel() for part in parts])
    for parameter, row, count in zip([*mine, *alike], rows, [*held, *(1.0 for _ in alike)], strict=True):
        parameter.grad = row.view_as(parameter).to(parameter.dtype) if count else None


class _Gathered(torch.autograd.Function):
    """Rows (p, d) of every rank in one tensor (u, d); backward takes the rows of this rank."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, places: Tensor, total: int) -> Tensor:
        ctx.save_for_backward(places)
        every = own.new_zeros(total, own.shape[1])
        every[places] = own
        ranks.add_up(every)  # each row is of one rank, the others add zeros: exact
        return every

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (places,) = ctx.saved_tensors
        return gradients[0][places], None, None


def mixed_seed(*numbers: int) -> int:
    """A seed for torch from several whole numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
