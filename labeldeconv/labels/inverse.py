"""Inverse labels Y(gamma) = sum_i gamma_i K_i (eqn:inv_label), mixed with Y as in eqn:implementation.

gamma = softmax(gamma') with gamma' = 0, so uniform at the start. The module stands alone; in any training loop:

    targets = InverseLabels(hop_labels(edges, Y, hops=2))
    optimizer.add_param_group({"params": targets.parameters(), "lr": 1e-2})
    loss = F.cross_entropy(head(encoder(batch)), targets(node_ids))

`InverseLabelLoss` is the same as a loss that owns its head, in the style of sentence-transformers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from labeldeconv.graph.task import Task
from labeldeconv.propagation.fixed_point import FULL


class InverseLabels(nn.Module):
    """Node ids to soft targets (1 - alpha) Y + alpha NORMALIZE(Y(gamma)). Owns gamma'.

    A torch tensor K becomes a buffer that moves with the module; a numpy array or memory map stays where it is, and
    only the rows of a batch are read and moved. Targets are on the device of gamma'; ids may be on any device.

    Args:
        hop_labels: K (n, h, c), in memory or memory-mapped, float or uint16 fixed point; K[:, 0] is Y.
        alpha: share of the inverse labels; 0 gives the plain pseudo labels of WO/LD.
        task: says what NORMALIZE is: a `Task`, or None for multi-class.
        gamma: gamma (h,), kept as it is; None starts uniform and learns, as in the paper.
    """

    hop_labels: np.ndarray | Tensor

    def __init__(
        self,
        hop_labels: np.ndarray | Tensor,
        alpha: float = 1.0,
        task: Task | None = None,
        gamma: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        if isinstance(hop_labels, Tensor):
            self.register_buffer("hop_labels", hop_labels, persistent=False)
        else:
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
        K = label_rows(self.hop_labels, ids, self.gamma_logits)  # (b, h, c)
        if self.alpha == 0.0:
            return K[:, 0]
        inverse = (self.gamma[:, None] * K).sum(1)  # (b, c); a row does not depend on its batch, to the bit
        return (1 - self.alpha) * K[:, 0] + self.alpha * self.task.normalize(inverse)


def label_rows(K: np.ndarray | Tensor, ids: np.ndarray | Tensor, like: Tensor) -> Tensor:
    """Rows (b, h, c) of K, float or fixed point, of the nodes `ids` (b,), in the type and on the device of `like`."""
    if isinstance(K, Tensor):
        rows, fixed_point = K[torch.as_tensor(ids).to(K.device)], K.dtype == torch.uint16
    else:
        chosen = ids.detach().cpu().numpy() if isinstance(ids, Tensor) else np.asarray(ids)
        rows, fixed_point = torch.from_numpy(K[chosen].astype(np.float32)), K.dtype == np.uint16
    rows = rows.to(like)
    return rows / FULL if fixed_point else rows


class InverseLabelLoss(nn.Module):
    """The loss of label deconvolution: l(head(features), Y(gamma) of the nodes). Owns gamma' and, if given, the head.

    Requires: hop labels K of all nodes, made once by `hop_labels`. Signal: texts and node numbers, no pairs. Relation:
    with alpha = 0 it is a softmax loss on the (pseudo) labels K[:, 0].

    Example:
        loss = InverseLabelLoss(hop_labels(edges, Y, hops=2), head=nn.Linear(384, 7))
        loss(model.encode(batch, convert_to_tensor=True), node_ids).backward()

    Args:
        hop_labels: K (n, h, c), as in `InverseLabels`.
        head: features (b, d) to logits (b, c); None where the features are logits already.
        alpha: as in `InverseLabels`.
        task: likewise.
        gamma: likewise.
    """

    def __init__(
        self,
        hop_labels: np.ndarray | Tensor,
        head: nn.Module | None = None,
        alpha: float = 1.0,
        task: Task | None = None,
        gamma: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.targets = InverseLabels(hop_labels, alpha, task, gamma)
        self.head = nn.Identity() if head is None else head

    @property
    def gamma(self) -> Tensor:
        """gamma (h,): positive and summing to 1."""
        return self.targets.gamma

    def forward(self, features: Tensor, ids: np.ndarray | Tensor) -> Tensor:
        """Mean loss of the nodes `ids` (b,) with features (b, d)."""
        logits = self.head(features).float()
        return self.targets.task.loss(logits, self.targets(ids).to(logits)).mean()
