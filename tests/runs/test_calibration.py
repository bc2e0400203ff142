"""Temperatures: hand-computed errors, a temperature that is known, and no prediction changed."""

import numpy as np
import pytest

from labeldeconv import Split, Task
from labeldeconv.runs.calibration import calibration, calibration_error, fitted_temperature

TWO = Task("multiclass", 2)


def test_the_error_of_four_nodes():
    """Confidences 0.9, 0.9, 0.6, 0.6; right are the first and the third: |1.8 - 1| / 4 + |1.2 - 1| / 4."""
    logits = np.log([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.4, 0.6]])
    labels = np.array([0, 1, 1, 0])
    assert calibration_error(TWO, logits, labels) == pytest.approx(0.25)
    assert calibration_error(TWO, np.vstack([logits, [9, 0]]), np.append(labels, -1)) == pytest.approx(0.25)
    assert np.isnan(calibration_error(TWO, logits, np.full(4, -1)))


def test_the_error_of_labels():
    """p = 0.8, 0.8 with one present, and 0.5 unknown: |1.6 - 1| / 2."""
    logits = np.log([[4.0, 4.0, 1.0]])
    assert calibration_error(Task("multilabel", 3), logits, np.array([[1, 0, -1]])) == pytest.approx(0.3)


@pytest.mark.parametrize("kind", ["multiclass", "multilabel"])
def test_the_temperature_of_logits_that_are_three_times_too_sure(kind):
    rng = np.random.default_rng(0)
    task, z = Task(kind, 4), rng.normal(size=(20000, 4)) * 1.5
    if kind == "multiclass":
        p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
        labels = (p.cumsum(1) > rng.random((len(p), 1))).argmax(1)
    else:
        labels = (rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(np.int8)
    assert fitted_temperature(task, 3 * z, labels) == pytest.approx(3, rel=0.05)
    split = Split(np.arange(len(z)) % 2 + 1)
    told = calibration(task, 3 * z, labels, split)
    for role in ("ece_val", "ece_test"):
        assert told[role]["before"] > 0.1
        assert told[role]["after"] < 0.02
    assert set(told) == {"temperature", "ece_val", "ece_test"}


def test_without_validation_labels_nothing_is_scaled():
    logits, labels = np.zeros((3, 2)), np.array([0, 1, 0])
    told = calibration(TWO, logits, labels, Split.from_ids(3, np.array([0]), np.empty(0, int), np.array([1, 2])))
    assert told["temperature"] == 1.0
    assert told["ece_val"] == {"before": None, "after": None}
    assert told["ece_test"]["before"] == told["ece_test"]["after"] == 0.0
