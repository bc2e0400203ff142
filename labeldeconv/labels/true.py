"""True labels as targets: what FNE trains the encoder on."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from labeldeconv.task import Task


class TrueLabels(nn.Module):
    """Node ids (b,) to one-hot or multi-hot targets (b, c), NaN where a label is missing. Owns no parameters."""

    def __init__(self, labels: np.ndarray, task: Task) -> None:
        super().__init__()
        self.labels = labels
        self.task = task

    def forward(self, ids: np.ndarray) -> Tensor:
        """Targets (b, c) of the nodes."""
        return torch.from_numpy(self.task.targets(np.asarray(self.labels[ids])))
