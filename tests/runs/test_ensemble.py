"""Ensembles: the greedy choice by brute force, equal weights by hand, and runs that do not belong together."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from labeldeconv import fit, planted
from labeldeconv.errors import DataError
from labeldeconv.graph.task import Task
from labeldeconv.runs.ensemble import ensemble, greedy

QUICK = {"method": "pne", "encoder": "tiny", "gnn__epochs": 8}


@pytest.fixture(scope="module")
def graph():
    return planted(120, seed=0).graph


def test_greedy_takes_the_best_first_and_never_ends_below_it():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 60)
    P = rng.dirichlet(np.ones(3), (5, 60))
    P[:, np.arange(60), labels] += rng.random((5, 60))
    task = Task("multiclass", 3)
    alone = [task.score(p, labels) for p in P]
    assert greedy(P, labels, task, rounds=1) == [int(np.argmax(alone))]
    second = max(range(5), key=lambda i: task.score(P[[int(np.argmax(alone)), i]].mean(0), labels))
    kept = greedy(P, labels, task, rounds=2)
    assert kept in ([int(np.argmax(alone))], [int(np.argmax(alone)), second])
    many = task.score(P[greedy(P, labels, task)].mean(0), labels)
    pairs = max(task.score(P[list(pair)].mean(0), labels) for pair in itertools.combinations(range(5), 2))
    assert many >= max(alone)
    assert many >= pairs - 0.05


def test_complementary_runs_are_better_together():
    """Each of two runs knows half of the nodes, and is unsure of the others."""
    labels = np.arange(40) % 2
    P = np.full((2, 40, 2), 0.5)
    P[0, :20] = np.eye(2)[labels[:20]]
    P[1, 20:] = np.eye(2)[labels[20:]]
    P[:, :, 0] += 1e-3
    task = Task("multiclass", 2)
    assert sorted(set(greedy(P, labels, task))) == [0, 1]
    assert task.score(P[greedy(P, labels, task)].mean(0), labels) == 1.0


def test_scores_and_files(graph, tmp_path):
    runs = [fit(graph, seed=seed, out=tmp_path / f"r{seed}", **QUICK) for seed in range(3)]
    found = ensemble([run.run for run in runs], tmp_path / "out")
    assert found.val >= max(run.val for run in runs)
    assert found.best.val == max(run.val for run in runs)
    assert sum(member.weight for member in found.members) == pytest.approx(1)
    weights = {member.run: member.weight for member in found.members}
    softmax = [np.exp(run.logits) / np.exp(run.logits).sum(1, keepdims=True) for run in runs]
    mean = sum(weights.get(str(run.run), 0.0) * p for run, p in zip(runs, softmax, strict=True))
    test = graph.split.test
    assert found.test == pytest.approx((mean[test].argmax(1) == graph.labels[test]).mean())
    np.testing.assert_allclose(np.exp(np.load(tmp_path / "out" / "logits.npy")), mean, atol=1e-5)
    assert json.loads((tmp_path / "out" / "ensemble.json").read_text())["val"] == found.val


def test_test_labels_choose_nothing(graph, tmp_path):
    labels = graph.labels.copy()
    labels[graph.split.test] = (labels[graph.split.test] + 1) % graph.num_classes
    found = []
    for name, version in (("a", graph), ("b", replace(graph, labels=labels))):
        runs = [fit(version, seed=s, out=tmp_path / name / str(s), **QUICK).run for s in range(2)]
        found.append(ensemble(runs))
    assert [m.weight for m in found[0].members] == [m.weight for m in found[1].members]
    np.testing.assert_array_equal(found[0].logits, found[1].logits)


def test_runs_of_other_graphs_and_run_folders_are_refused(graph, tmp_path):
    one = fit(graph, out=tmp_path / "one", **QUICK).run
    other = fit(graph.resplit([0.3, 0.3], 1), out=tmp_path / "other", **QUICK).run
    with pytest.raises(DataError, match=r"other: not the same split as in .*one"):
        ensemble([one, other])
    with pytest.raises(DataError, match="another folder expected"):
        ensemble([one], one)
