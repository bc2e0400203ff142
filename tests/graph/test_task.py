import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score

from labeldeconv.graph.task import Task, roc_auc


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


@pytest.mark.parametrize("ties", [False, True])
def test_roc_auc_equals_scikit_learn(ties):
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 5, 200).astype(float) if ties else rng.normal(size=200)
    positive = rng.random(200) < 0.3
    assert roc_auc(scores, positive) == pytest.approx(roc_auc_score(positive, scores))


def test_scores():
    assert Task("multiclass", 2).score(np.array([[2.0, 1], [0, 1], [5, 1]]), np.array([0, 0, -1])) == 0.5
    multi = Task("multilabel", 2)
    logits, labels = np.array([[3.0, 0], [1, 0], [2, 0]]), np.array([[1, 1], [0, 1], [-1, 1]])
    assert multi.score(logits, labels) == 1.0  # the second label has one class only and does not count
    assert np.isnan(multi.score(logits, np.ones((3, 2), int)))
    assert (multi.metric, Task("multiclass", 2).metric) == ("mean ROC-AUC", "accuracy")


def test_normalize_of_an_empty_row_is_finite():
    assert torch.equal(Task("multiclass", 2).normalize(torch.zeros(1, 2)), torch.zeros(1, 2))
