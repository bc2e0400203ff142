import numpy as np
import pytest
import torch
import torch.nn.functional as F

from labeldeconv.errors import ConfigError
from labeldeconv.graph.task import Task, class_weights


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


W = (0.5, 2.0, 3.0)


def test_weighted_losses_are_torch_s():
    torch.manual_seed(0)
    logits, soft = torch.randn(5, 3), torch.rand(5, 3).softmax(1)
    one = Task("multiclass", 3, weights=W)
    hard = torch.from_numpy(one.targets(np.array([0, 1, 2, 2, 1])))
    for targets in (soft, hard):
        expected = torch.nn.CrossEntropyLoss(weight=torch.tensor(W), reduction="none")(logits, targets)
        torch.testing.assert_close(one.loss(logits, targets), expected)
    many = (torch.rand(5, 3) < 0.5).float()
    expected = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(W), reduction="none")(logits, many)
    torch.testing.assert_close(Task("multilabel", 3, weights=W).loss(logits, many), expected.mean(1))
    many[0, 1] = float("nan")
    torch.testing.assert_close(Task("multilabel", 3, weights=W).loss(logits, many)[0], expected[0, [0, 2]].mean())


@pytest.mark.parametrize("asked", ["balanced", [1.0, 8.0, 2.0]])
def test_the_mean_over_train_nodes_is_torch_s_weighted_mean(asked):
    torch.manual_seed(0)
    labels = np.array([0, 0, 0, 0, 1, 2, 2, -1])
    w = class_weights("multiclass", 3, labels, asked)
    given = [7 / (3 * k) for k in (4, 1, 2)] if asked == "balanced" else asked
    if asked == "balanced":
        np.testing.assert_allclose(w, given)
    logits, known = torch.randn(8, 3), labels >= 0
    task = Task("multiclass", 3, weights=w)
    mean = task.loss(logits[known], torch.from_numpy(task.targets(labels[known]))).mean()
    torch.testing.assert_close(
        mean, F.cross_entropy(logits[known], torch.from_numpy(labels[known]), torch.tensor(given))
    )


def test_class_weights():
    assert class_weights("multiclass", 3, np.array([0, 1]), "none") is None
    assert class_weights("multiclass", 3, np.array([0, 0, 0, 1]), "balanced")[2] == 1.0  # no train node has it
    many = np.array([[1, 1, 0], [0, 1, 0], [0, -1, 0]])
    assert class_weights("multilabel", 3, many, "balanced") == (2.0, 1.0, 1.0)
    assert class_weights("multilabel", 3, many, [1.0, 2.0, 3.0]) == (1.0, 2.0, 3.0)
    with pytest.raises(ConfigError, match="class_weights: 3 weights expected, one per class, got 2"):
        class_weights("multiclass", 3, np.array([0, 1]), [1.0, 2.0])
