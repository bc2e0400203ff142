import numpy as np
import pytest
import torch
import torch.nn.functional as F

from labeldeconv.errors import ConfigError
from labeldeconv.graph.task import Task


def test_targets_mark_missing_as_nan():
    one_hot = Task("multiclass", 3).targets(np.array([2, -1]))
    np.testing.assert_array_equal(one_hot, [[0, 0, 1], [np.nan] * 3])
    multi = Task("multilabel", 2).targets(np.array([[1, -1], [0, 1]], dtype=np.int8))
    np.testing.assert_array_equal(multi, [[1, np.nan], [0, 1]])


def test_frequency_counts_known_labels_only():
    labels = np.array([[1, -1], [0, -1], [0, 1]])
    np.testing.assert_allclose(Task("multilabel", 2).frequency(labels), [1.5 / 4, 1.5 / 2])
    np.testing.assert_allclose(Task("multiclass", 2).frequency(np.array([0, -1, 0])), [2.5 / 3, 0.5 / 3])


def test_multilabel_loss_skips_missing_entries():
    logits = torch.randn(2, 3)
    targets = torch.tensor([[1.0, float("nan"), 0.0], [float("nan")] * 3])
    loss = Task("multilabel", 3).loss(logits, targets)
    expected = F.binary_cross_entropy_with_logits(logits[0, [0, 2]], targets[0, [0, 2]])
    torch.testing.assert_close(loss[0], expected)
    assert loss[1] == 0


def test_scores():
    assert Task("multiclass", 2).score(np.array([[2.0, 1], [0, 1], [5, 1]]), np.array([0, 0, -1])) == 0.5
    multi = Task("multilabel", 2)
    logits, labels = np.array([[3.0, 0], [1, 0], [2, 0]]), np.array([[1, 1], [0, 1], [-1, 1]])
    assert multi.score(logits, labels) == 1.0  # the second label has one class only and does not count
    assert np.isnan(multi.score(logits, np.ones((3, 2), int)))
    assert (multi.metric, Task("multiclass", 2).metric) == ("mean ROC-AUC", "accuracy")


def test_normalize_of_an_empty_row_is_finite():
    assert torch.equal(Task("multiclass", 2).normalize(torch.zeros(1, 2)), torch.zeros(1, 2))


def test_the_metric_that_is_named_is_the_score():
    logits, labels = np.array([[2.0, 1], [2, 1], [2, 1], [0, 1]]), np.array([0, 0, 0, 0])
    task = Task("multiclass", 2, "balanced-accuracy")
    assert (task.metric, task.metric_name, task.score(logits, labels)) == (
        "balanced accuracy",
        "balanced-accuracy",
        0.75,
    )
    assert task.all_scores(logits, labels)["accuracy"] == 0.75
    assert set(Task("multilabel", 2).all_scores(logits, np.ones((4, 2)))) == {
        "macro-f1", "micro-f1", "average-precision", "roc-auc",
    }  # fmt: skip


def test_a_metric_that_the_labels_do_not_take_is_refused():
    with pytest.raises(ConfigError, match=r"metric 'accuracy': .*several labels per node; one of macro-f1, micro-f1"):
        Task("multilabel", 2, "accuracy")
    with pytest.raises(ConfigError, match="metric 'f1': the labels are one class per node"):
        Task("multiclass", 2, "f1")
