"""Every metric against scikit-learn, with ties, classes that nobody has, and labels that are missing."""

import numpy as np
import pytest
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from labeldeconv.graph import metrics
from labeldeconv.graph.metrics import (
    average_precision,
    metric_score,
    metrics_of,
    regression_score,
    roc_auc,
    score_text,
    score_unit,
)

C = 4


def random_case(kind, ties, seed=0, m=120):
    """Logits (m, c), of few values where there are ties, and labels, some of them missing."""
    rng = np.random.default_rng(seed)
    logits = rng.integers(-2, 3, (m, C)).astype(np.float32) if ties else rng.normal(size=(m, C)).astype(np.float32)
    labels = rng.choice(C, m, p=[0.6, 0.25, 0.1, 0.05]) if kind == "multiclass" else rng.integers(0, 2, (m, C))
    return logits, np.where(rng.random(labels.shape) < 0.2, -1, labels)


def by_scikit_learn(name, logits, labels):
    """The metric of known labels alone; of multi-label ones column by column, but micro-F1, which pools them."""
    if labels.ndim == 1:
        known = labels >= 0
        z, y = logits[known].astype(np.float64), labels[known]
        p = (np.exp(z) / np.exp(z).sum(1, keepdims=True)).round(12)  # ties that rounding parted are ties
        ranked = {"roc-auc": roc_auc_score, "average-precision": average_precision_score}
        if name in ranked:
            return np.mean([ranked[name](y == k, p[:, k]) for k in range(C) if 0 < (y == k).sum() < len(y)])
        guess = p.argmax(1)
        return {
            "accuracy": lambda: accuracy_score(y, guess),
            "macro-f1": lambda: f1_score(y, guess, average="macro"),
            "micro-f1": lambda: f1_score(y, guess, average="micro"),
            "balanced-accuracy": lambda: balanced_accuracy_score(y, guess),
        }[name]()
    if name == "micro-f1":
        return f1_score(labels[labels >= 0], logits[labels >= 0] > 0)
    of = {
        "macro-f1": lambda y, z: f1_score(y, z > 0, zero_division=0.0),
        "roc-auc": roc_auc_score,
        "average-precision": average_precision_score,
    }[name]
    columns = [(y[y >= 0], z[y >= 0]) for y, z in zip(labels.T, logits.T, strict=True)]
    if name != "macro-f1":
        columns = [(y, z) for y, z in columns if 0 < y.sum() < len(y)]
    return np.mean([of(y, z) for y, z in columns])


CASES = [(kind, name) for kind in ("multiclass", "multilabel") for name in metrics_of(kind)]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_it_equals_scikit_learn(kind, name, ties):
    logits, labels = random_case(kind, ties)
    assert metric_score(name, kind, logits, labels) == pytest.approx(by_scikit_learn(name, logits, labels), abs=1e-12)


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_classes_that_no_node_has(kind, name):
    """A class that is predicted though nobody has it, one that is neither, and a label that all nodes have."""
    logits, labels = random_case(kind, False, seed=1)
    logits[:, 3] = -9
    if kind == "multiclass":
        labels = np.where(labels >= 2, 0, labels)
    else:
        labels[:, 2], labels[:, 3] = np.abs(labels[:, 2]) * 0 + 1, 0
    assert metric_score(name, kind, logits, labels) == pytest.approx(by_scikit_learn(name, logits, labels), abs=1e-12)


@pytest.mark.parametrize("name", ["macro-f1", "micro-f1", "roc-auc", "average-precision"])
def test_whole_tables_equal_the_averages_of_scikit_learn(name):
    """Nothing missing: its own averages over labels and classes are the same numbers."""
    rng = np.random.default_rng(3)
    logits, many, one = rng.normal(size=(90, C)), rng.integers(0, 2, (90, C)), rng.integers(0, C, 90)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    multilabel = {
        "macro-f1": lambda: f1_score(many, logits > 0, average="macro"),
        "micro-f1": lambda: f1_score(many, logits > 0, average="micro"),
        "roc-auc": lambda: roc_auc_score(many, logits),
        "average-precision": lambda: average_precision_score(many, logits),
    }
    multiclass = {
        "macro-f1": lambda: f1_score(one, logits.argmax(1), average="macro"),
        "micro-f1": lambda: f1_score(one, logits.argmax(1), average="micro"),
        "roc-auc": lambda: roc_auc_score(one, p, multi_class="ovr"),
        "average-precision": lambda: average_precision_score(one, p),
    }
    assert metric_score(name, "multilabel", logits, many) == pytest.approx(multilabel[name]())
    assert metric_score(name, "multiclass", logits, one) == pytest.approx(multiclass[name]())


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_nothing_to_score(kind, name):
    logits, labels = random_case(kind, False)
    assert np.isnan(metric_score(name, kind, logits, np.full_like(labels, -1)))
    assert np.isnan(metric_score(name, kind, logits[:0], labels[:0]))


def test_rows_in_blocks_are_the_same(monkeypatch):
    logits, labels = random_case("multiclass", False)
    whole = metric_score("roc-auc", "multiclass", logits * 300, labels)
    monkeypatch.setattr(metrics, "ROWS", 7)
    assert metric_score("roc-auc", "multiclass", logits * 300, labels) == whole


@pytest.mark.parametrize("ties", [False, True])
def test_roc_auc_equals_scikit_learn(ties):
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 5, 200).astype(float) if ties else rng.normal(size=200)
    positive = rng.random(200) < 0.3
    assert roc_auc(scores, positive) == pytest.approx(roc_auc_score(positive, scores))


def test_average_precision_by_hand():
    """Thresholds 3, 2 (two nodes), 1: precision 1, 2/3, 2/4, of which recall gains 1/2, 1/2, 0."""
    assert average_precision(np.array([3.0, 2, 2, 1]), np.array([True, True, False, False])) == pytest.approx(5 / 6)


REGRESSION = {"r2": r2_score, "mae": mean_absolute_error, "rmse": root_mean_squared_error}


@pytest.mark.parametrize("name", metrics_of("regression"))
def test_scores_of_numbers_are_those_of_scikit_learn(name):
    rng = np.random.default_rng(0)
    truth = rng.normal(50, 20, (90, 3))
    predicted = truth + rng.normal(1, 15, (90, 3))
    of = REGRESSION[name]
    assert regression_score(name, predicted, truth) == pytest.approx(of(truth, predicted), rel=1e-12)
    truth[rng.random(truth.shape) < 0.3] = np.nan  # each target by the nodes whose number is known
    columns = [(y[~np.isnan(y)], z[~np.isnan(y)]) for y, z in zip(truth.T, predicted.T, strict=True)]
    assert regression_score(name, predicted, truth) == pytest.approx(np.mean([of(*column) for column in columns]))


def test_targets_that_cannot_be_scored_are_left_out():
    truth, predicted = np.array([[1.0, 4.0], [2.0, 4.0], [4.0, np.nan]]), np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 0.0]])
    assert regression_score("r2", predicted, truth) == pytest.approx(r2_score(truth[:, 0], predicted[:, 0]))
    assert regression_score("mae", predicted, truth) == pytest.approx((1 / 3 + 1) / 2)
    assert np.isnan(regression_score("r2", predicted[:, 1:], truth[:, 1:]))
    assert np.isnan(regression_score("mae", predicted[:0], truth[:0]))


def test_shares_are_shown_in_percent_and_numbers_as_they_are():
    shown = [score_text("accuracy", 0.12345), score_text("R2", -0.12345), score_text("MAE", 1234.5678)]
    assert shown == ["12.35", "-0.1235", "1235"]
    assert [score_text("R2", None), score_text("accuracy", float("nan"))] == ["-", "-"]
    assert [score_unit("accuracy"), score_unit("MAE")] == [" (%)", ""]
