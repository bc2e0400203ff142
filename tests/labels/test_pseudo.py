import numpy as np

from labeldeconv.labels.pseudo import pseudo_labels
from labeldeconv.task import Task


def test_one_hot_on_train_softened_elsewhere():
    logits = np.array([[0.0, 2], [1, 0], [3, 0]])
    Y = pseudo_labels(Task("multiclass", 2), np.array([0, 1, 1]), np.array([0]), logits, temperature=0.5)
    np.testing.assert_array_equal(Y[0], [1, 0])
    for row, z in zip(Y[1:], logits[1:] / 0.5, strict=True):
        np.testing.assert_allclose(row, np.exp(z) / np.exp(z).sum(), rtol=1e-6)


def test_labels_off_train_are_never_read():
    logits, train = np.random.default_rng(0).normal(size=(5, 3)), np.array([0, 2])
    labels = np.array([0, 1, 2, 1, 0])
    hidden = np.where(np.isin(np.arange(5), train), labels, -1)
    task = Task("multiclass", 3)
    np.testing.assert_array_equal(
        pseudo_labels(task, labels, train, logits), pseudo_labels(task, hidden, train, logits)
    )


def test_multilabel_fills_missing_train_entries():
    labels = np.array([[1, -1], [-1, -1]], dtype=np.int8)
    Y = pseudo_labels(Task("multilabel", 2), labels, np.array([0]), np.zeros((2, 2)))
    np.testing.assert_allclose(Y, [[1, 0.5], [0.5, 0.5]])
