"""The node explorer's data where labels are numbers: values in the unit of the labels, and how far predictions are off.

How far is one number per node and method, so that nodes can be sorted by it: |predicted - true| in standard deviations
of the train nodes' labels, averaged over the targets whose number is known.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from labeldeconv.graph.task import RegressionTask
from labeldeconv.report.source import Entry

TARGETS = 5  # of a node that are shown


def decimals(std: float) -> int:
    """Decimals at which numbers of a standard deviation are shown: a hundredth of it can be seen, whole numbers too."""
    return max(0, 2 - math.floor(math.log10(std)))


def rounded(values: np.ndarray, task: RegressionTask) -> list[Any]:
    """Values (c,) of the targets that are shown, rounded to their decimals; NaN stays."""
    return [round(float(v), decimals(s)) for v, s in zip(values[:TARGETS], task.std, strict=False)]


def mean_prediction(task: RegressionTask, entry: Entry, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Predicted numbers of nodes (m,) in the unit of the labels: mean and spread over the entry's seeds, (m, c) each.

    The spread is the sample standard deviation, as in the tables of scores; it is 0 of one seed.
    """
    values = np.stack([task.values(run.logits[nodes]) for run in entry.runs])  # (seeds, m, c)
    spread = values.std(0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:])
    return values.mean(0), spread


def far_off(task: RegressionTask, predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How far predictions (m, c) are from labels (m, c), in standard deviations (m,); NaN where no number is known."""
    error = np.abs(predicted - labels) / np.array(task.std)
    known = ~np.isnan(error)
    return np.where(known.any(1), np.nansum(error, 1) / np.maximum(known.sum(1), 1), np.nan)


def number_predictions(
    task: RegressionTask, entries: list[Entry], nodes: np.ndarray, labels: np.ndarray
) -> list[list[Any]]:
    """Per node (m,) and entry: [numbers, their spreads over seeds, how far they are from labels (m, c)]."""
    out: list[list[Any]] = [[] for _ in nodes]
    for entry in entries:
        mean, spread = mean_prediction(task, entry, nodes)
        far = far_off(task, mean, labels)
        for i in range(len(nodes)):
            spreads = rounded(spread[i], task) if len(entry.runs) > 1 else []
            out[i].append([rounded(mean[i], task), spreads, round(float(far[i]), 4)])
    return out


def number_slices(task: RegressionTask, values: np.ndarray, labels: np.ndarray) -> list[list[list[Any]]]:
    """Per node and shown target the numbers by slice, from values (m, slices, c) in standard units.

    The first slice is that of the true labels (m, c), which are taken as they are: float32 would round some otherwise.
    """
    numbers = task.values(values)
    numbers[:, 0] = labels
    return [np.array([rounded(row, task) for row in node]).T.tolist() for node in numbers]


def known_numbers(task: RegressionTask, label: np.ndarray) -> list[Any] | None:
    """The true numbers (c,) of a node; None where none is known."""
    return None if np.isnan(label).all() else rounded(label, task)


def unit_of(task: RegressionTask) -> list[list[float]]:
    """Mean, standard deviation and decimals of the targets that are shown."""
    mean, std = task.mean[:TARGETS], task.std[:TARGETS]
    return [[float(f"{v:.6g}") for v in mean], [float(f"{v:.6g}") for v in std], [decimals(s) for s in std]]
