"""Hop heads: every hop label K_i = A-hat^i Y behind a head of its own, where inverse labels mix them.

A node at distance i of v tells v's label through E[K_i | its text]. The conditional mean is linear,
E[sum_i gamma_i K_i | x] = sum_i gamma_i E[K_i | x], so features that hold every E[K_i | x] hold the inverse labels of
every gamma, signed or not, as a linear function: gamma need not be known (docs/hop-heads.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from labeldeconv.errors import ConfigError
from labeldeconv.graph.missing import labelled
from labeldeconv.graph.task import Task
from labeldeconv.labels.inverse import label_rows


class HopHeads(nn.Module):
    """Logits (b, h c) of h heads and node ids to a loss: the mean over heads of each head's mean over nodes.

    Args:
        hop_labels: K (n, N + 1, c), in memory or memory-mapped, float or uint16 fixed point; K[:, 0] is Y.
        task: says what the loss is.
        backward: the same against the edges of a directed graph; its hop 0, which is Y again, has no head.
        labels: true labels (n,) or (n, c), missing where unknown: head 0 learns these alone, and each counts as much
            more as they are fewer than the nodes, so that all heads weigh the same. None: head 0 learns K_0 on all
            nodes.
        weights: of the heads (h,), of which the ratios count; None: all equal.
    """

    scale: Tensor  # (h,): what the loss of a head counts

    def __init__(
        self,
        hop_labels: np.ndarray,
        task: Task,
        backward: np.ndarray | None = None,
        labels: np.ndarray | None = None,
        weights: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.hop_labels, self.backward_labels, self.task, self.labels = hop_labels, backward, task, labels
        heads = hop_labels.shape[1] + (0 if backward is None else backward.shape[1] - 1)
        given = shares_of_heads(weights, heads)
        shares = np.ones(heads)  # of the nodes that a head is trained on
        if labels is not None:
            shares[0] = max(1, int(labelled(labels).sum())) / len(labels)
        self.register_buffer("scale", torch.tensor(given / shares).float(), persistent=False)

    def targets(self, ids: np.ndarray) -> Tensor:
        """Soft labels (b, h, c) of all heads, NaN where head 0 has none."""
        rows = [label_rows(self.hop_labels, ids, self.scale)]
        if self.backward_labels is not None:
            rows.append(label_rows(self.backward_labels, ids, self.scale)[:, 1:])
        K = torch.cat(rows, 1)
        if self.labels is not None:
            K[:, 0] = torch.from_numpy(self.task.targets(np.asarray(self.labels[ids]))).to(K)
        return K

    def forward(self, logits: Tensor, ids: np.ndarray) -> Tensor:
        """Loss per node (b,) of logits (b, h c); its mean over the nodes is the objective."""
        targets = self.targets(ids).to(logits.device)
        if self.task.kind == "multiclass":
            targets = targets.nan_to_num()  # a row of zeros has no loss
        losses = self.task.loss(logits.unflatten(1, targets.shape[1:]), targets)  # (b, h)
        return (losses * self.scale.to(losses)).sum(1)


def shares_of_heads(weights: Sequence[float] | None, heads: int) -> np.ndarray:
    """What each of the heads counts (h,), in sum 1: by its weight, or all alike; a `ConfigError` if they do not fit."""
    given = np.ones(heads) if weights is None else np.asarray(weights, dtype=np.float64)
    if len(given) != heads or not given.sum() > 0:
        told = None if weights is None else list(weights)
        raise ConfigError(f"labels.hop_weights: {heads} weights, not all 0, expected, one per head, got {told}")
    return given / given.sum()
