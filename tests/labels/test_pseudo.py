"""(Pseudo) labels: true on train nodes, predicted elsewhere; as a stage, labels of others cannot be read."""

import warnings
from dataclasses import dataclass, replace

import numpy as np

from labeldeconv.graph.split import Split
from labeldeconv.graph.task import Task
from labeldeconv.labels.pseudo import pseudo, pseudo_labels


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


@dataclass
class Predicted:
    """Predictions as a stage takes them: with a key."""

    logits: np.ndarray
    content_key: str


def test_stage_equals_the_function(small_graph):
    logits = np.random.default_rng(0).normal(size=(6, 3))
    Y = pseudo(Predicted(logits, "a"), small_graph, 0.7)
    expected = pseudo_labels(Task("multiclass", 3), small_graph.labels, small_graph.split.train, logits, 0.7)
    np.testing.assert_array_equal(Y.values, expected)
    assert Y.content_key != pseudo(Predicted(logits, "b"), small_graph, 0.7).content_key
    assert Y.content_key != pseudo(Predicted(logits, "a"), small_graph, 0.8).content_key


def test_labels_of_other_nodes_are_in_no_key(small_graph):
    labels = small_graph.labels.copy()
    labels[3:] = 0
    predicted = Predicted(np.zeros((6, 3)), "a")
    assert pseudo.key(predicted, small_graph) == pseudo.key(predicted, replace(small_graph, labels=labels))
    labels[0] = 1
    assert pseudo.key(predicted, small_graph) != pseudo.key(predicted, replace(small_graph, labels=labels))


def test_without_predictions_missing_entries_are_the_mean_of_the_others(small_graph):
    """Column 0 is 1, 1, 0 where known, so 2/3; column 1 is known nowhere, so 0."""
    labels = np.array([[1, -1], [1, -1], [0, -1], [-1, -1], [-1, -1], [-1, -1]], np.int8)
    graph = replace(small_graph, labels=labels, class_names=["a", "b"], split=Split(np.zeros(6, np.int8)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of an empty column
        Y = pseudo(None, graph)
    np.testing.assert_allclose(Y.values, [[1, 0], [1, 0], [0, 0], [2 / 3, 0], [2 / 3, 0], [2 / 3, 0]], rtol=1e-6)


def test_temperature_is_one_unless_given(small_graph):
    """softmax of the logits themselves, by numpy."""
    logits = np.array([[0.0, 2, 1]] * 6)
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    made = pseudo_labels(Task("multiclass", 3), small_graph.labels, small_graph.split.train, logits)
    np.testing.assert_allclose(made[3:], expected[3:], rtol=1e-6)
    np.testing.assert_array_equal(pseudo(Predicted(logits, "a"), small_graph).values, made)
