"""Pseudo labels Y: the true label on train nodes, softened predictions of the first GNN elsewhere."""

from __future__ import annotations

import numpy as np
import torch

from labeldeconv.task import Task


def pseudo_labels(
    task: Task, labels: np.ndarray, train: np.ndarray, logits: np.ndarray, temperature: float = 1.0
) -> np.ndarray:
    """Y (n, c) float32 from labels (n,) or (n, c), train node ids and logits (n, c).

    softmax(logits / temperature), or sigmoid for multi-label; entries missing on train nodes are predicted too. Labels
    of validation and test nodes are never read.
    """
    Y = task.probabilities(torch.from_numpy(np.array(logits, dtype=np.float32)), temperature).numpy()
    true = task.targets(np.asarray(labels[train]))
    Y[train] = np.where(np.isnan(true), Y[train], true)
    return Y
