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
    """True labels (n,) or (n, c), -1 where unknown: what FNE trains on."""

    labels: np.ndarray
    task: Task

    def build(self) -> TrueLabels:
        """Node ids to one-hot or multi-hot targets."""
        return TrueLabels(self.labels, self.task)


@dataclass(frozen=True, eq=False)
class SoftTargets:
    """(Pseudo) labels Y as they are: what GLEM's E-step trains on."""

    Y: Labels
    task: Task

    def build(self) -> InverseLabels:
        """Node ids to rows of Y."""
        return InverseLabels(self.Y.values[:, None], alpha=0.0, task=self.task)


@dataclass(frozen=True, eq=False)
class InverseTargets:
    """Inverse labels of K: what LD trains on; alpha = 0 is WO/LD. A given gamma (h,) is kept, None is learned."""

    K: HopLabels
    alpha: float
    task: Task
    gamma: Sequence[float] | None = None

    def build(self) -> InverseLabels:
        """Node ids to (1 - alpha) Y + alpha NORMALIZE(Y(gamma))."""
        return InverseLabels(self.K.values, self.alpha, self.task, self.gamma)


class TrueLabels(nn.Module):
    """Node ids (b,) to one-hot or multi-hot targets (b, c), NaN where a label is missing. Owns no parameters."""

    def __init__(self, labels: np.ndarray, task: Task) -> None:
        super().__init__()
        self.labels = labels
        self.task = task

    def forward(self, ids: np.ndarray) -> Tensor:
        """Targets (b, c) of the nodes."""
        return torch.from_numpy(self.task.targets(np.asarray(self.labels[ids])))
