"""The objective of the encoder phase: L(psi(F_B; theta), Y(gamma)_B) (eqn:obj_ld), over one batch of nodes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from labeldeconv.clock import Clock
from labeldeconv.encoders.base import Encoder
from labeldeconv.task import Task


class Objective(nn.Module):
    """Encoder, psi and targets, and the loss between them. A method is a choice of targets and of nodes.

    Args:
        encoder: tokens to features, beta.
        psi: features (b, d) to logits (b, c), theta.
        targets: node ids (b,) to soft labels (b, c); may own parameters (gamma').
        task: the loss l.
        dropout: on the features.
        pseudo_weight: None for one mean over the batch; else (1 - w) mean over gold + w mean over the others.
        gold: (n,) bool, the train nodes; needed for `pseudo_weight` only.
    """

    def __init__(
        self,
        encoder: Encoder,
        psi: nn.Module,
        targets: nn.Module,
        task: Task,
        dropout: float = 0.0,
        pseudo_weight: float | None = None,
        gold: np.ndarray | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.psi = psi
        self.targets = targets
        self.task = task
        self.dropout = nn.Dropout(dropout)
        self.pseudo_weight = pseudo_weight
        self.gold = gold
        self.clock = Clock()  # seconds by part of the step, booked by the training loop too

    def forward(self, ids: np.ndarray, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Loss of the nodes `ids` (b,) with tokens (b, t)."""
        features = self.encoder(input_ids, attention_mask)  # (b, d), line 8
        self.clock.lap("encoder")
        logits = self.psi(self.dropout(features)).float()  # (b, c)
        self.clock.lap("psi")
        targets = self.targets(ids).to(logits.device)  # (b, c), line 9
        self.clock.lap("targets")
        losses = self.task.loss(logits, targets)  # (b,)
        if self.pseudo_weight is None or self.gold is None:
            return losses.mean()
        gold = torch.from_numpy(self.gold[ids]).to(losses.device)
        w = self.pseudo_weight
        return (1 - w) * _mean(losses, gold) + w * _mean(losses, ~gold)


def _mean(losses: Tensor, chosen: Tensor) -> Tensor:
    """Mean over the chosen nodes; 0 where there are none."""
    return (losses * chosen).sum() / chosen.sum().clamp_min(1)
