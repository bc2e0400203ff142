"""The lead of one prediction over another: exact for means, near the bootstrap for all metrics, silent if unknown."""

import numpy as np
import pytest

from labeldeconv.graph.lead import FEWEST, GROUPS, Judged, Lead, lead_text
from labeldeconv.graph.metrics import METRICS
from labeldeconv.graph.task import Task, task_of_kind

C = 4
ALL = [(kind, metric) for kind, metrics in METRICS.items() for metric in metrics]


def predictions(kind, m, seed=0):
    """Labels and two predictions of them (m, c), the second with less noise."""
    rng = np.random.default_rng(seed)
    if kind == "multiclass":
        labels = rng.integers(0, C, m)
        signal = np.eye(C)[labels]
    elif kind == "multilabel":
        labels = rng.integers(0, 2, (m, C))
        signal = labels - 0.5
    else:
        labels = signal = rng.normal(size=(m, C))
    shared = rng.normal(size=signal.shape)
    worse, better = (signal + 0.7 * shared + noise * rng.normal(size=signal.shape) for noise in (0.8, 0.6))
    return labels, worse, better


@pytest.mark.parametrize(("kind", "metric"), [("multiclass", "accuracy"), ("regression", "mae")])
def test_a_mean_has_the_standard_error_of_paired_differences(kind, metric):
    labels, worse, better = predictions(kind, GROUPS)
    task = task_of_kind(kind, C, metric)
    if kind == "multiclass":
        each = (better.argmax(1) == labels) - 1.0 * (worse.argmax(1) == labels)
    else:
        each = (np.abs(worse - labels) - np.abs(better - labels)).mean(1)
    found = Judged.of(task, better, labels).lead_over(Judged.of(task, worse, labels))
    assert found.lead == pytest.approx(each.mean())
    assert found.standard_error == pytest.approx(each.std(ddof=1) / np.sqrt(len(each)))


@pytest.mark.parametrize(("kind", "metric"), ALL)
def test_every_metric_has_about_the_error_of_the_paired_bootstrap(kind, metric):
    m = 400
    labels, worse, better = predictions(kind, m)
    task = task_of_kind(kind, C, metric)
    found = Judged.of(task, better, labels).lead_over(Judged.of(task, worse, labels))
    assert found.lead > 0  # also where a lower score is better
    rng, leads = np.random.default_rng(1), []
    for _ in range(300):
        ids = rng.integers(0, m, m)
        leads.append(task.rank(task.score(better[ids], labels[ids])) - task.rank(task.score(worse[ids], labels[ids])))
    assert found.standard_error == pytest.approx(np.std(leads), rel=0.35)
    back = Judged.of(task, worse, labels).lead_over(Judged.of(task, better, labels))
    assert (back.lead, back.standard_error) == (-found.lead, found.standard_error)


@pytest.mark.parametrize("m", [FEWEST, 11, 37, GROUPS, 51, 120])
def test_one_node_makes_no_clear_lead_and_two_do(m):
    task, labels, right = Task("multiclass", 2), np.zeros(m, dtype=np.int64), np.tile([1.0, 0.0], (m, 1))

    def judged(*wrong):
        logits = right.copy()
        logits[list(wrong)] = [0.0, 1.0]
        return Judged.of(task, logits, labels)

    best = judged()
    for node in range(m):
        lead = best.lead_over(judged(node))
        assert lead.lead == pytest.approx(1 / m)
        assert lead.standard_error == pytest.approx(1 / m, rel=0.01)
        assert not lead.is_clear
    assert best.lead_over(judged(3, m - 1)).is_clear
    assert not judged(3, m - 1).lead_over(best).is_clear
    assert not best.lead_over(best).is_clear


def test_what_has_no_score_leads_nothing():
    task = Task("multiclass", 2, "roc-auc")
    m = 40
    logits = np.random.default_rng(0).normal(size=(m, 2))
    labels = np.zeros(m, dtype=np.int64)
    found = Judged.of(task, logits, labels).lead_over(Judged.of(task, -logits, labels))
    assert found == Lead(None, None)  # one class
    assert not found.is_clear
    labels[7] = 1
    perfect = np.eye(2)[labels]
    found = Judged.of(task, perfect, labels).lead_over(Judged.of(task, -perfect, labels))
    assert found == Lead(1.0, None)  # no second class without node 7
    assert not found.is_clear


def test_few_nodes_say_nothing_and_nodes_without_a_label_do_not_count():
    m = FEWEST + 5
    labels = np.zeros(m, dtype=np.int64)
    good, bad = np.tile([1.0, 0.0], (m, 1)), np.tile([0.0, 1.0], (m, 1))
    task = Task("multiclass", 2)
    assert Judged.of(task, good, labels).lead_over(Judged.of(task, bad, labels)) == Lead(1.0, 0.0)
    labels[FEWEST - 1 :] = -1
    found = Judged.of(task, good, labels).lead_over(Judged.of(task, bad, labels))
    assert found == Lead(1.0, None)
    assert not found.is_clear
    labels[:] = -1
    assert Judged.of(task, good, labels).lead_over(Judged.of(task, bad, labels)) == Lead(None, None)


def test_a_lead_in_words():
    assert lead_text("accuracy", Lead(0.0123, 0.004)) == "+1.23 ± 0.40"
    assert lead_text("MAE", Lead(-2.0, None)) == "-2 ± ?"
    assert lead_text("R2", Lead(None, None)) == "? ± ?"
