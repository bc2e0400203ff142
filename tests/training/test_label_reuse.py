"""Label reuse: no node is taught the label it reads, no label of an evaluation node is read, and it helps."""

import numpy as np
import pytest
import torch

from labeldeconv.errors import ConfigError
from labeldeconv.gnns.revgat import RevGAT
from labeldeconv.graph.split import Split
from labeldeconv.graph.task import Task
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import GNNConfig, LabelReuseConfig
from labeldeconv.stages.stage import Folder
from labeldeconv.training import gnn as loop
from labeldeconv.training.feed import make_feed
from labeldeconv.training.gnn import train_gnn
from labeldeconv.training.label_reuse import LabelReuse
from tests.samples import random_edges

n, d, c = 60, 5, 3
LABELS = np.arange(n) % c
SPLIT = Split.stratified(LABELS, seed=0)
TASK = Task("multiclass", c)
FEATURES = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
INSIDE = random_edges(n // c, 60) * c + np.random.default_rng(1).integers(0, c, 60)  # edges within classes


def make(folder, batching="full", label_inputs=True, **settings):
    config = GNNConfig(name="revgat", batching=batching, epochs=3, lr=0.01, checkpoint_minutes=0.0, **settings)
    torch.manual_seed(0)
    model = RevGAT(d, c, hidden=8, heads=1, dropout=0.1, edge_dropout=0.0, label_inputs=label_inputs)
    folder.mkdir(exist_ok=True)
    adj = Adjacency.from_edges(INSIDE, n, config.adjacency)
    return model, make_feed(model, FEATURES, adj, config, folder, torch.device("cpu")), config


def train(folder, labels=LABELS, **settings):
    model, feed, config = make(folder, **settings)
    return train_gnn(model, feed, TASK, labels, SPLIT, config, 0, Folder(folder)), model


def test_inputs_are_shown_labels_and_predictions_of_the_others(tmp_path):
    model, feed, _ = make(tmp_path)
    model.eval()
    shown = SPLIT.train[::2]
    for iterations in range(3):
        LabelReuse(TASK, LABELS, SPLIT.train, LabelReuseConfig(iterations=iterations)).show(model, feed, shown)
        by_hand = torch.zeros(n, c)
        by_hand[shown] = torch.eye(c)[LABELS[shown]]
        others = np.setdiff1d(np.arange(n), shown)
        with torch.no_grad():
            for _ in range(iterations):
                by_hand[others] = model(torch.from_numpy(FEATURES), feed.adj, by_hand).softmax(-1)[others]
        np.testing.assert_allclose(feed.label_inputs, by_hand, atol=1e-6)


def test_no_node_is_taught_the_label_it_reads(tmp_path, monkeypatch):
    """Whatever the label of a node that the loss counts, what every node reads is the same."""
    seen = []
    real = loop.Supervision.loss

    def loss(self, logits, ids, whole=None):
        seen.append((ids, feed.label_inputs.copy()))
        return real(self, logits, ids, whole)

    monkeypatch.setattr(loop.Supervision, "loss", loss)
    model, feed, config = make(tmp_path)
    train_gnn(model, feed, TASK, LABELS, SPLIT, config, 0, Folder(tmp_path))
    assert len(seen) == 3
    assert len({tuple(ids) for ids, _ in seen}) == 3  # drawn anew
    whole = np.eye(c, dtype=np.float32)[LABELS]
    for ids, inputs in seen:
        shown = np.setdiff1d(SPLIT.train, ids)
        assert 0 < len(ids) < len(SPLIT.train)
        assert np.isin(ids, SPLIT.train).all()
        np.testing.assert_array_equal(inputs[shown], whole[shown])
        others = np.setdiff1d(np.arange(n), shown)
        assert (inputs[others].max(1) < 1).all()  # predictions
    first, inputs = seen[0]
    spoiled = LABELS.copy()
    spoiled[first] = (spoiled[first] + 1) % c
    seen.clear()
    model, feed, config = make(tmp_path / "b")
    train_gnn(model, feed, TASK, spoiled, SPLIT, config, 0, Folder(tmp_path / "b"))
    np.testing.assert_array_equal(seen[0][1], inputs)


@pytest.mark.parametrize("choose", ["score", "loss"])
def test_labels_of_evaluation_nodes_are_never_read(choose, tmp_path):
    """Test labels change nothing; validation labels only which epoch is kept, so nothing after a single one."""
    spoiled = LABELS.copy()
    spoiled[SPLIT.test] = 0
    a, b = (train(tmp_path / name, labels, choose=choose)[0] for name, labels in (("a", LABELS), ("b", spoiled)))
    np.testing.assert_array_equal(a.logits, b.logits)
    spoiled[SPLIT.val] = (LABELS[SPLIT.val] + 1) % c
    logits = []
    for name, labels in (("c", LABELS), ("d", spoiled)):
        model, feed, config = make(tmp_path / name, choose=choose)
        config = config.model_copy(update={"epochs": 1})
        logits.append(train_gnn(model, feed, TASK, labels, SPLIT, config, 0, Folder(tmp_path / name)).logits)
    np.testing.assert_array_equal(*logits)
    with pytest.raises(AssertionError, match="train nodes only"):
        LabelReuse(TASK, LABELS, SPLIT.train, LabelReuseConfig()).show(model, feed, SPLIT.val[:1])


def test_one_train_node_is_always_hidden(tmp_path):
    model, feed, _ = make(tmp_path)
    reuse = LabelReuse(TASK, LABELS, SPLIT.train[:2], LabelReuseConfig(shown=0.99, iterations=0))
    for seed in range(20):
        left = reuse.hide(model, feed, SPLIT.train[:2], np.random.default_rng(seed))
        assert len(left) >= 1
        assert feed.label_inputs[left].sum() == 0


def test_labels_of_neighbours_help_where_features_say_nothing(tmp_path):
    """Features that are noise, three of four edges within a class: labels shown at the neighbours tell it."""
    rng, labels, scores = np.random.default_rng(0), np.arange(400) % c, []
    split, source = Split.stratified(labels, seed=0), rng.integers(0, 400, 2000)
    near = (source + c * rng.integers(1, 133, 2000)) % 399  # 399 = 3 * 133: the same class
    adj = Adjacency.from_edges(
        np.stack([source, np.where(rng.random(2000) < 0.75, near, rng.integers(0, 400, 2000))]), 400
    )
    for reads in (False, True):
        config = GNNConfig(name="revgat", epochs=30, lr=0.01)
        torch.manual_seed(0)
        model = RevGAT(d, c, hidden=8, heads=1, dropout=0.1, edge_dropout=0.0, label_inputs=reads)
        noise = rng.normal(size=(400, d)).astype(np.float32)
        feed = make_feed(model, noise, adj, config, tmp_path, torch.device("cpu"))
        run = train_gnn(model, feed, TASK, labels, split, config, 0, Folder(tmp_path))
        scores.append(TASK.score(run.logits[split.test], labels[split.test]))
    assert scores[1] > scores[0] + 0.1  # 0.76 against 0.57


def test_only_the_whole_graph_serves(tmp_path):
    with pytest.raises(ConfigError, match=r"gnn.batching 'neighbors': RevGAT reads labels; 'full' expected"):
        make(tmp_path, batching="neighbors")
