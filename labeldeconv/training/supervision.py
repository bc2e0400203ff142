"""What a GNN is taught: true labels of the train nodes, and soft labels of others where somebody gives them.

Multi-stage self-training (SAGN's SLE, the reliable-label utilisation of GAMLP): from the second stage on, the confident
predictions of the best GNN so far are such soft labels, and feed the label branch together with the train labels. As in
GAMLP, the loss of such a node counts as much as its largest probability says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from labeldeconv.graph.split import Split
from labeldeconv.graph.task import Task
from labeldeconv.propagation.adjacency import Adjacency, propagate
from labeldeconv.settings.models import SelfTrainingConfig

Loss = Literal["cross-entropy", "log"]
EPSILON = 1 - math.log(2)  # of Bag of Tricks and RevGAT's code


def node_losses(task: Task, logits: Tensor, targets: Tensor, kind: Loss) -> Tensor:
    """The loss (b,) of every node: its cross entropy l, or log(e + l) - log(e), which is 0 at l = 0 too."""
    losses = task.loss(logits, targets)
    return losses if kind == "cross-entropy" else (EPSILON + losses).log() - math.log(EPSILON)


@dataclass(frozen=True, eq=False)
class SoftLabels:
    """Soft labels `targets` (n, c) of the nodes `ids` (m,).

    Args:
        weight: of their mean loss beside the mean loss on true labels.
        confidence: where given, (n,): the loss of node i then counts weight * confidence[i] beside 1 of a train node,
            in one mean over both.
    """

    targets: np.ndarray
    ids: np.ndarray
    weight: float
    confidence: np.ndarray | None = None


def confident(task: Task, logits: np.ndarray, split: Split, config: SelfTrainingConfig) -> SoftLabels:
    """Predictions (n, c) of the nodes off the train set whose largest probability exceeds the threshold."""
    targets = task.probabilities(torch.from_numpy(logits)).numpy()
    confidence = targets.max(1)
    sure = (confidence > config.threshold) & (split.roles != 0)
    return SoftLabels(targets, np.flatnonzero(sure), config.weight, confidence)


@dataclass(frozen=True, eq=False)
class Supervision:
    """The loss of a GNN: mean over train nodes, plus weight times the mean over softly labelled ones.

    With confidences it is GAMLP's: (sum over train nodes + weight * sum over the others of confidence * loss) / b.
    """

    task: Task
    labels: np.ndarray
    train: np.ndarray
    soft: SoftLabels | None = None
    kind: Loss = "cross-entropy"

    @property
    def nodes(self) -> np.ndarray:
        """All nodes that are taught."""
        return self.train if self.soft is None else np.concatenate([self.train, self.soft.ids])

    def loss(self, logits: Tensor, ids: np.ndarray, whole: np.ndarray | None = None) -> Tensor:
        """Scalar loss of logits (b, c) of the nodes `ids` (b,).

        Where these are a share of the nodes `whole` of a batch, their part of its loss: parts of all shares add up.
        """
        whole = ids if whole is None else whole
        part = len(ids) / max(1, len(whole))
        true = self.task.targets(self.labels[ids])
        if self.soft is None:
            return _part(node_losses(self.task, logits, torch.from_numpy(true).to(logits.device), self.kind), part)
        gold = np.isin(ids, self.train)
        targets = torch.from_numpy(np.where(gold[:, None], true, self.soft.targets[ids])).to(logits.device)
        losses = node_losses(self.task, logits, targets, self.kind)
        if self.soft.confidence is not None:
            counts = np.where(gold, 1.0, self.soft.weight * self.soft.confidence[ids]).astype(np.float32)
            return _part(losses * torch.from_numpy(counts).to(losses.device), part)
        chosen, true_ones = torch.from_numpy(gold).to(losses.device), int(np.isin(whole, self.train).sum())
        parts = (chosen, true_ones), (~chosen, len(whole) - true_ones)
        means = [(losses * nodes).sum() / max(1, count) for nodes, count in parts]
        return means[0] + self.soft.weight * means[1]

    def label_inputs(self, adj: Adjacency, hops: int) -> np.ndarray | None:
        """A-hat^hops Y (n, c) of the labels that are taught, zero elsewhere; None for a GNN without a label branch.

        A node's own label is part of its input where a walk of `hops` leads back; the authors' 9 hops thin it out.
        """
        if hops == 0:
            return None
        Y = self.taught_labels()
        for propagated in propagate(adj, Y, hops):
            Y = propagated
        return Y

    def taught_labels(self) -> np.ndarray:
        """The labels that are taught (n, c), zero elsewhere."""
        Y = np.zeros((len(self.labels), self.task.num_classes), dtype=np.float32)
        if self.soft is not None:
            Y[self.soft.ids] = self.soft.targets[self.soft.ids]
        Y[self.train] = np.nan_to_num(self.task.targets(self.labels[self.train]))
        return Y


def _part(losses: Tensor, part: float) -> Tensor:
    """What nodes with these losses (b,), a `part` of their batch, bring to its mean."""
    return losses.mean() * part if len(losses) else losses.sum()
