"""The GNN loop: beats chance, reads the test at the best validation only, resumes exactly."""

import json

import numpy as np
import pytest
import torch
from conftest import random_edges

from labeldeconv.adjacency import Adjacency
from labeldeconv.config import GNNConfig
from labeldeconv.graph import Split
from labeldeconv.names import GNNS
from labeldeconv.task import Task
from labeldeconv.train.feed import make_feed
from labeldeconv.train.gnn import LOG, train_gnn

n, c = 120, 3
CPU = torch.device("cpu")
LABELS = np.arange(n) % c
SPLIT = Split.stratified(LABELS, seed=0)
FEATURES = np.eye(c, dtype=np.float32)[LABELS] + np.random.default_rng(0).normal(0, 0.5, (n, c)).astype(np.float32)


def train(name, folder, labels=LABELS, task=None, **settings):
    config = GNNConfig(name=name, hidden=16, **{"epochs": 30, "batch_rows": 20, "checkpoint_minutes": 0.0, **settings})
    torch.manual_seed(0)
    gnn = GNNS[name](c, c, layers=2, hidden=16, dropout=0.2)
    inside = random_edges(n // c, 200) * c + np.random.default_rng(1).integers(0, c, 200)  # edges within classes
    adj = Adjacency.from_edges(inside, n, config.adjacency)
    folder.mkdir(exist_ok=True)
    feed = make_feed(gnn, FEATURES, adj, config.batch_rows, folder, CPU)
    return train_gnn(gnn, feed, task or Task("multiclass", c), labels, SPLIT, config, 0, folder), gnn


@pytest.mark.parametrize("name", GNNS)
def test_learns(name, tmp_path):
    run, _ = train(name, tmp_path)
    assert run.test > 0.6
    rows = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert max(r["val"] for r in rows) == pytest.approx(run.val)
    assert rows[run.best_epoch - 1]["val"] == pytest.approx(run.val)


def test_test_labels_are_never_used(tmp_path):
    spoiled = LABELS.copy()
    spoiled[SPLIT.test] = 0
    a, b = train("gcn", tmp_path / "a")[0], train("gcn", tmp_path / "b", labels=spoiled)[0]
    np.testing.assert_array_equal(a.logits, b.logits)
    assert a.test != b.test


def test_early_stopping(tmp_path):
    run, _ = train("gcn", tmp_path, epochs=500, patience=5)
    assert run.epochs == run.best_epoch + 5


@pytest.mark.parametrize("name", GNNS)
def test_resumed_equals_straight(name, tmp_path, monkeypatch):
    import labeldeconv.train.gnn as loop

    straight, _ = train(name, tmp_path / "a")
    real, calls = loop._epoch, []

    def killed(*args):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(loop, "_epoch", killed)
    with pytest.raises(KeyboardInterrupt):
        train(name, tmp_path / "b")
    resumed, _ = train(name, tmp_path / "b")
    assert len(calls) < 9 + 30
    np.testing.assert_array_equal(straight.logits, resumed.logits)
    assert (tmp_path / "a" / LOG).read_text() == (tmp_path / "b" / LOG).read_text()


def test_multilabel_with_missing(tmp_path):
    labels = np.eye(c, dtype=np.int8)[LABELS]
    labels[::7, 1] = -1
    run, _ = train("gcn", tmp_path, labels=labels, task=Task("multilabel", c))
    assert run.test > 0.7
