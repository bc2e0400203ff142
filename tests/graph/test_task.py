import numpy as np
import pytest
import torch
import torch.nn.functional as F

from labeldeconv.errors import ConfigError
from labeldeconv.graph.task import RegressionTask, Task, class_weights, task_of_kind


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


TRAIN = np.array([[1.0, 10.0], [3.0, np.nan], [np.nan, np.nan], [5.0, 30.0]])


def test_numbers_are_targets_in_standard_units_of_the_train_nodes():
    task = RegressionTask.on(TRAIN, None, "mse")
    assert (task.mean, task.std) == ((3.0, 20.0), (pytest.approx((8 / 3) ** 0.5), 10.0))
    targets = task.targets(np.array([[3.0, 0.0], [np.nan, 20.0]]))
    np.testing.assert_allclose(targets, [[0, -2], [np.nan, 0]])
    assert targets.dtype == np.float32
    np.testing.assert_allclose(task.values(task.targets(TRAIN)), TRAIN, rtol=1e-6)
    np.testing.assert_allclose(task.score(task.targets(TRAIN), TRAIN), 1.0)


def test_a_target_without_a_spread_or_without_numbers_keeps_its_unit():
    task = RegressionTask.on(np.array([[7.0, np.nan], [7.0, np.nan]]), None, "mse")
    assert (task.mean, task.std) == ((7.0, 0.0), (1.0, 1.0))


def test_large_numbers_close_together_lose_no_digits():
    stamps = 1.7e9 + np.arange(5.0)[:, None]
    targets = RegressionTask.on(stamps, None, "mse").targets(stamps)
    np.testing.assert_allclose(targets[:, 0], (np.arange(5) - 2) / 2**0.5, rtol=1e-6)


@pytest.mark.parametrize("loss", ["mse", "huber"])
def test_losses_of_numbers_skip_missing_targets(loss):
    logits = torch.tensor([[0.5, -3.0, 9.0], [1.0, 1.0, 1.0]], requires_grad=True)
    targets = torch.tensor([[0.0, 1.0, float("nan")], [float("nan")] * 3])
    found = RegressionTask("regression", 3, loss_name=loss).loss(logits, targets)
    far = 16.0 if loss == "mse" else 2 * (4 - 0.5)  # twice Huber's loss: near 0 it is the squared error
    torch.testing.assert_close(found, torch.tensor([(0.25 + far) / 2, 0.0]))
    found.sum().backward()
    assert logits.grad.isfinite().all()
    assert (logits.grad[1] == 0).all()


def test_an_error_is_better_when_it_is_lower():
    by_error, by_r2 = (RegressionTask("regression", 1, name) for name in ("mae", "r2"))
    assert (by_error.higher_is_better, by_r2.higher_is_better, Task("multiclass", 2).higher_is_better) == (
        False,
        True,
        True,
    )
    assert by_error.rank(1.0) > by_error.rank(2.0) > by_error.rank(float("nan")) == by_error.rank(None)
    assert by_r2.rank(-1.0) < by_r2.rank(0.5)
    assert (by_error.metric, by_r2.metric) == ("MAE", "R2")
    assert sorted(by_error.all_scores(np.zeros((2, 1)), np.ones((2, 1)))) == ["mae", "r2", "rmse"]


def test_metrics_and_weights_of_classes_are_refused_for_numbers():
    with pytest.raises(ConfigError, match="metric 'accuracy': the labels are numbers; one of r2, mae, rmse expected"):
        RegressionTask("regression", 1, "accuracy")
    with pytest.raises(ConfigError, match="metric 'mae': the labels are one class per node"):
        Task("multiclass", 3, "mae")
    with pytest.raises(ConfigError, match="class_weights: the labels are numbers"):
        class_weights("regression", 1, TRAIN, "balanced")


def test_a_task_without_labels_is_in_standard_units():
    task = task_of_kind("regression", 2)
    x = torch.tensor([[1.0, -2.0]])
    assert (task.probabilities(x, 0.2) == x).all()
    assert (task.normalize(x) == x).all()
    np.testing.assert_array_equal(task.values(x.numpy()), x.numpy())
    assert type(task_of_kind("multilabel", 2)) is Task
