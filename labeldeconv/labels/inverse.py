"""Inverse labels Y(gamma) = sum_i gamma_i K_i (eqn:inv_label), mixed with Y as in eqn:implementation.

gamma = softmax(gamma') with gamma' = 0, so uniform at the start. The module stands alone; in any training loop:

    targets = InverseLabels(hop_labels(edges, Y, hops=2))
    optimizer.add_param_group({"params": targets.parameters(), "lr": 1e-2})
    loss = F.cross_entropy(head(encoder(batch)), targets(node_ids))
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from labeldeconv.gather import dequantize
from labeldeconv.task import Task


class InverseLabels(nn.Module):
    """Node ids to soft targets (1 - alpha) Y + alpha NORMALIZE(Y(gamma)). Owns gamma'.

    Args:
        hop_labels: K (n, h, c), in memory or memory-mapped, float or uint16 fixed point; K[:, 0] is Y.
        alpha: share of the inverse labels; 0 gives the plain pseudo labels of WO/LD.
        task: says what NORMALIZE is: a `Task`, or None for multi-class.
        gamma: gamma (h,), kept as it is; None starts uniform and learns, as in the paper.
    """

    def __init__(
        self,
        hop_labels: np.ndarray | Tensor,
        alpha: float = 1.0,
        task: Task | None = None,
        gamma: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.hop_labels = hop_labels
        self.alpha = alpha
        self.task = task or Task("multiclass", hop_labels.shape[2])
        start = torch.zeros(hop_labels.shape[1]) if gamma is None else torch.tensor(gamma).float().clamp_min(1e-6).log()
        self.gamma_logits = nn.Parameter(start, requires_grad=gamma is None)  # gamma'

    @property
    def gamma(self) -> Tensor:
        """gamma (h,): positive and summing to 1."""
        return self.gamma_logits.softmax(0)

    def forward(self, ids: np.ndarray | Tensor) -> Tensor:
        """Targets (b, c) of the nodes with ids (b,), differentiable in gamma'."""
        rows = self.hop_labels[np.asarray(ids)]  # (b, h, c)
        K = torch.as_tensor(dequantize(rows) if isinstance(rows, np.ndarray) else rows).to(self.gamma_logits)
        if self.alpha == 0.0:
            return K[:, 0]
        inverse = (self.gamma[:, None] * K).sum(1)  # (b, c); a row does not depend on its batch, to the bit
        return (1 - self.alpha) * K[:, 0] + self.alpha * self.task.normalize(inverse)
