"""Targets of the encoder phase, as arguments of a stage: each says what it is made of and can make its module.

A module of targets takes node ids (b,) and gives soft labels (b, c); it may own parameters (gamma').
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from labeldeconv.graph.task import Task
from labeldeconv.labels.hop_heads import HopHeads
from labeldeconv.labels.hops import HopLabels
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.labels.pseudo import Labels


class Targets(Protocol):
    """What an encoder is trained on."""

    @property
    def task(self) -> Task:
        """The task that the targets pose, which has the loss."""
        ...

    def build(self) -> nn.Module:
        """The module from node ids to targets."""
        ...


@dataclass(frozen=True, eq=False)
class TrueTargets:
    """True labels (n,) or (n, c), -1 where unknown: what FNE trains on. GLEM smooths them by `smoothing`."""

    labels: np.ndarray
    task: Task
    smoothing: float = 0.0

    def build(self) -> TrueLabels:
        """Node ids to one-hot or multi-hot targets."""
        return TrueLabels(self.labels, self.task, self.smoothing)


@dataclass(frozen=True, eq=False)
class SoftTargets:
    """(Pseudo) labels Y: what GLEM's E-step trains on; rows of the nodes `gold` (m,) are smoothed by `smoothing`."""

    Y: Labels
    task: Task
    smoothing: float = 0.0
    gold: np.ndarray | None = None

    def build(self) -> SoftLabelRows:
        """Node ids to rows of Y."""
        return SoftLabelRows(self.Y.values, self.task, self.smoothing, self.gold)


@dataclass(frozen=True, eq=False)
class InverseTargets:
    """Inverse labels of K: what LD trains on; alpha = 0 is WO/LD. A given gamma (h,) is kept, None is learned."""

    K: HopLabels
    alpha: float
    task: Task
    gamma: Sequence[float] | None = None

    @property
    def heads(self) -> int:
        """1: the hops are mixed into one target."""
        return 1

    def build(self) -> InverseLabels:
        """Node ids to (1 - alpha) Y + alpha NORMALIZE(Y(gamma))."""
        return InverseLabels(self.K.values, self.alpha, self.task, self.gamma)


@dataclass(frozen=True, eq=False)
class HopTargets:
    """Every K_i behind a head of its own (`labels.targets` 'hops').

    Args:
        K: hop labels, K_0 = Y first.
        task: of the labels.
        backward: hop labels against the edges of a directed graph, whose heads follow those of K; None for none.
        labels: (n,) or (n, c), -1 where unknown: head 0 learns these alone; None: it learns K_0 on all nodes.
        weights: of the heads, of which the ratios count; None: all equal.
    """

    K: HopLabels
    task: Task
    backward: HopLabels | None = None
    labels: np.ndarray | None = None
    weights: Sequence[float] | None = None

    @property
    def heads(self) -> int:
        """h: heads of all hops, of both directions where there are two."""
        return self.K.values.shape[1] + (0 if self.backward is None else self.backward.values.shape[1] - 1)

    def build(self) -> HopHeads:
        """The loss of the heads."""
        backward = None if self.backward is None else self.backward.values
        return HopHeads(self.K.values, self.task, backward, self.labels, self.weights)


class TrueLabels(nn.Module):
    """Node ids (b,) to one-hot or multi-hot targets (b, c), NaN where a label is missing. Owns no parameters."""

    def __init__(self, labels: np.ndarray, task: Task, smoothing: float = 0.0) -> None:
        super().__init__()
        self.labels = labels
        self.task = task
        self.smoothing = smoothing

    def forward(self, ids: np.ndarray) -> Tensor:
        """Targets (b, c) of the nodes."""
        return torch.from_numpy(smoothed(self.task.targets(np.asarray(self.labels[ids])), self.task, self.smoothing))


class SoftLabelRows(nn.Module):
    """Node ids (b,) to rows (b, c) of Y (n, c), those of the nodes `gold` (m,) smoothed. Owns no parameters."""

    def __init__(self, Y: np.ndarray, task: Task, smoothing: float = 0.0, gold: np.ndarray | None = None) -> None:
        super().__init__()
        self.Y = Y
        self.task = task
        self.smoothing = smoothing
        self.gold = np.zeros(len(Y), bool)
        self.gold[np.empty(0, int) if gold is None else gold] = True

    def forward(self, ids: np.ndarray) -> Tensor:
        """Targets (b, c) of the nodes."""
        rows = np.array(self.Y[ids], dtype=np.float32)
        chosen = self.gold[ids]
        rows[chosen] = smoothed(rows[chosen], self.task, self.smoothing)
        return torch.from_numpy(rows)


def smoothed(targets: np.ndarray, task: Task, smoothing: float) -> np.ndarray:
    """Label smoothing of targets (b, c): 1 - smoothing of each, the rest evenly over its outcomes, c or yes and no."""
    if smoothing == 0.0:
        return targets
    outcomes = task.num_classes if task.kind == "multiclass" else 2
    return ((1 - smoothing) * targets + smoothing / outcomes).astype(np.float32)
