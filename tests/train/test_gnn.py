"""The GNN loop: beats chance with every feed, reads the test at the best validation only, resumes exactly."""

import json

import numpy as np
import pytest
import torch
from conftest import random_edges

from labeldeconv.adjacency import Adjacency
from labeldeconv.config import ConsistencyConfig, GNNConfig, SelfTrainingConfig
from labeldeconv.errors import ConfigError
from labeldeconv.names import GNNS
from labeldeconv.split import Split
from labeldeconv.task import Task
from labeldeconv.train.feed import make_feed
from labeldeconv.train.gnn import LOG, _set_rate, _weight_decay, train_gnn
from labeldeconv.train.self_training import SoftLabels

n, c = 120, 3
CPU = torch.device("cpu")
LABELS = np.arange(n) % c
SPLIT = Split.stratified(LABELS, seed=0)
FEATURES = np.eye(c, dtype=np.float32)[LABELS] + np.random.default_rng(0).normal(0, 0.5, (n, c)).astype(np.float32)
SELF = {"self_training": SelfTrainingConfig(stages=3, threshold=0.6)}
SCR = {"consistency": ConsistencyConfig(weight=0.5, threshold=0.6, final_threshold=0.4, warmup_epochs=2)}


def train(name, folder, labels=LABELS, task=None, soft=None, options=None, **settings):
    settings = {"epochs": 30, "batch_rows": 20, "batch_nodes": 20, "clusters": 6, "clusters_per_batch": 2, **settings}
    config = GNNConfig(name=name, hidden=16, checkpoint_minutes=0.0, **settings)
    torch.manual_seed(0)
    gnn = GNNS[name](c, c, layers=2, hidden=16, dropout=0.2, **(options or {}))
    inside = random_edges(n // c, 200) * c + np.random.default_rng(1).integers(0, c, 200)  # edges within classes
    adj = Adjacency.from_edges(inside, n, config.adjacency)
    folder.mkdir(exist_ok=True)
    feed = make_feed(gnn, FEATURES, adj, config, folder, CPU)
    return train_gnn(gnn, feed, task or Task("multiclass", c), labels, SPLIT, config, 0, folder, soft), gnn


@pytest.mark.parametrize("name", GNNS)
def test_learns(name, tmp_path):
    run, _ = train(name, tmp_path)
    assert run.test > 0.6
    rows = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert max(r["val"] for r in rows) == pytest.approx(run.val)
    assert rows[run.best_epoch - 1]["val"] == pytest.approx(run.val)


@pytest.mark.parametrize("batching", ["neighbors", "clusters"])
@pytest.mark.parametrize("name", [name for name in GNNS if GNNS[name].feed == "graph"])
def test_learns_from_parts_of_the_graph(name, batching, tmp_path):
    if batching == "clusters":
        pytest.importorskip("pymetis")
    run, _ = train(name, tmp_path, batching=batching, epochs=12, fanouts=[3])
    assert run.test > 0.6
    assert not list(tmp_path.glob("*.tmp.npy"))


def test_test_labels_are_never_used(tmp_path):
    spoiled = LABELS.copy()
    spoiled[SPLIT.test] = 0
    for settings in ({}, SELF | SCR):
        a = train("gcn", tmp_path / "a", epochs=8, **settings)[0]
        b = train("gcn", tmp_path / "b", epochs=8, labels=spoiled, **settings)[0]
        np.testing.assert_array_equal(a.logits, b.logits)
        assert a.test != b.test
        for folder in ("a", "b"):
            (tmp_path / folder / "checkpoint.safetensors").unlink()


def test_early_stopping(tmp_path):
    run, _ = train("gcn", tmp_path, epochs=500, patience=5)
    assert run.epochs == run.best_epoch + 5


def test_evaluating_every_third_epoch(tmp_path):
    train("gcn", tmp_path, epochs=10, eval_every=3)
    rows = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert [r["epoch"] for r in rows] == [3, 6, 9, 10]


RESUMED = {
    **{name: (name, {}) for name in GNNS},
    "neighbors": ("gcn", {"batching": "neighbors", "fanouts": [3]}),
    "self-training": ("gamlp", {"epochs": 5, "options": {"label_hops": 2}, **SELF}),
    "consistency": ("sagn", SCR),
    "rmsprop": ("gcn", {"optimizer": "rmsprop", "schedule": "linear", "warmup_epochs": 3}),
}


@pytest.mark.parametrize("case", RESUMED)
def test_resumed_equals_straight(case, tmp_path, monkeypatch):
    import labeldeconv.train.gnn as loop

    name, settings = RESUMED[case]
    settings = {"epochs": 15, **settings}
    straight, _ = train(name, tmp_path / "a", **settings)
    real, calls = loop._epoch, []

    def killed(*args):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(loop, "_epoch", killed)
    with pytest.raises(KeyboardInterrupt):
        train(name, tmp_path / "b", **settings)
    resumed, _ = train(name, tmp_path / "b", **settings)
    assert len(calls) < 9 + straight.epochs
    np.testing.assert_array_equal(straight.logits, resumed.logits)
    assert (tmp_path / "a" / LOG).read_text() == (tmp_path / "b" / LOG).read_text()


def test_multilabel_with_missing(tmp_path):
    labels = np.eye(c, dtype=np.int8)[LABELS]
    labels[::7, 1] = -1
    run, _ = train("gcn", tmp_path, labels=labels, task=Task("multilabel", c))
    assert run.test > 0.7
    with pytest.raises(ConfigError, match=r"gnn.self_training: .* multi-class"):
        train("gcn", tmp_path, labels=labels, task=Task("multilabel", c), **SELF)


def test_self_training_has_stages_and_leaves_nothing_behind(tmp_path):
    run, _ = train("sagn", tmp_path, epochs=5, options={"label_hops": 2}, **SELF)
    rows = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert {r["stage"] for r in rows} == {0, 1, 2}
    assert run.epochs == 15
    assert run.test > 0.6
    assert not list(tmp_path.glob("stage-*.npy"))


def test_soft_labels_teach(tmp_path):
    """A GNN taught wrong soft labels on all other nodes with a large weight follows them."""
    others = np.flatnonzero(SPLIT.roles != 0)
    wrong = np.eye(c, dtype=np.float32)[(LABELS + 1) % c]
    run, _ = train("spegcn", tmp_path, soft=SoftLabels(wrong, others, weight=50.0), patience=100)
    straight, _ = train("spegcn", tmp_path / "b")
    assert run.test < straight.test


@pytest.mark.parametrize(
    ("given", "kind", "expected"),
    [(None, "multiclass", 5e-4), (None, "multilabel", 0.0), (0.1, "multilabel", 0.1), (0.0, "multiclass", 0.0)],
)
def test_weight_decay_unless_set_suits_the_task(given, kind, expected):
    assert _weight_decay(GNNConfig(weight_decay=given), Task(kind, 3)) == expected


def test_learning_rate_schedule():
    config = GNNConfig(lr=1.0, epochs=10, warmup_epochs=2, schedule="linear")
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
    rates = []
    for epoch in (1, 2, 6, 10):
        _set_rate(optimizer, config, epoch)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.5, 0.9, 0.5, 0.1])
