"""Calibrated probabilities: one temperature for all logits, fitted on the validation nodes (Guo et al., ICML 2017).

softmax(z / T), or sigmoid, keeps every prediction and makes its probability mean what it says. The expected calibration
error is the mean distance between confidence and accuracy over 15 bins of equal width; T is fitted on the validation
nodes, so the error on the test nodes is the honest one of the two.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from labeldeconv.graph.split import Split
from labeldeconv.graph.task import Task

BINS = 15
ROWS = 1 << 16  # nodes at a time
RANGE = (0.05, 20.0)  # of temperatures; a GNN that is never wrong on the validation nodes would ask for 0


def calibration(task: Task, logits: np.ndarray, labels: np.ndarray, split: Split) -> dict[str, Any]:
    """What result.json says of calibration: T, and the error before and after on validation and test nodes.

    Logits (n, c) and labels (n,) or (n, c) are of all nodes; an error without any labelled node is None.
    """
    temperature = fitted_temperature(task, logits[split.val], labels[split.val])
    told: dict[str, Any] = {"temperature": round(temperature, 6)}
    for role in ("val", "test"):
        nodes = split.ids(role)
        found = [calibration_error(task, logits[nodes], labels[nodes], t) for t in (1.0, temperature)]
        told[f"ece_{role}"] = dict(zip(("before", "after"), map(_plain, found), strict=True))
    return told


def fitted_temperature(task: Task, logits: np.ndarray, labels: np.ndarray) -> float:
    """T with the least cross entropy of softmax(logits / T), or sigmoid, (m, c) against labels; 1 without labels.

    It is 1 where labels are numbers, too.
    """
    if task.kind == "regression":
        return 1.0
    known = labels >= 0 if labels.ndim == 1 else (labels >= 0).any(1)
    if not known.any():
        return 1.0
    z = torch.from_numpy(np.array(logits[known], dtype=np.float64))
    targets = torch.from_numpy(task.targets(labels[known]).astype(np.float64))

    def loss(log_temperature: float) -> float:
        return float(task.loss(z / math.exp(log_temperature), targets).mean())

    found = minimize_scalar(loss, bounds=tuple(map(math.log, RANGE)), method="bounded", options={"xatol": 1e-4})
    return math.exp(float(found.x))


def calibration_error(task: Task, logits: np.ndarray, labels: np.ndarray, temperature: float = 1.0) -> float:
    """Expected calibration error of logits (m, c) at a temperature; NaN where no label is known.

    Multi-class: of the largest probability, against whether that class is right. Multi-label: of every known label's
    probability, against whether the node has it.
    """
    confident, rightly = [], []
    for lo in range(0, len(logits), ROWS):  # float64 of all would take more memory than the training did
        part, truth = logits[lo : lo + ROWS], labels[lo : lo + ROWS]
        p = task.probabilities(torch.from_numpy(np.array(part, dtype=np.float64)), temperature).numpy()
        known = truth >= 0
        if task.kind == "multiclass":
            confident.append(p[known].max(1, initial=0.0))
            rightly.append(p[known].argmax(1) == truth[known])
        else:
            confident.append(p[known])
            rightly.append(truth[known] > 0)
    if not sum(map(len, confident)):
        return float("nan")
    confidence, right = np.concatenate(confident), np.concatenate(rightly)
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(place, confidence - right, minlength=BINS)
    return float(np.abs(gaps).sum() / len(confidence))


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 6)
