"""The GNN loop: beats chance with every feed, keeps the best validation epoch, never sees a test label, resumes."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch_geometric.nn import GraphSAGE

from labeldeconv.errors import ConfigError
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.gnns.base import GNNS
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.task import Task
from labeldeconv.graph.texts import Texts
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import ConsistencyConfig, GNNConfig, SelfTrainingConfig
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.stage import Folder, session
from labeldeconv.training import gnn as loop
from labeldeconv.training.features import given
from labeldeconv.training.feed import make_feed
from labeldeconv.training.gnn import LOG, _set_rate, _weight_decay, gnn, output_start, train_gnn
from labeldeconv.training.supervision import SoftLabels
from tests.samples import interrupt, random_edges

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
    model = GNNS[name](c, c, layers=2, hidden=16, dropout=0.2, **(options or {}))
    inside = random_edges(n // c, 200) * c + np.random.default_rng(1).integers(0, c, 200)  # edges within classes
    adj = Adjacency.from_edges(inside, n, config.adjacency)
    folder.mkdir(exist_ok=True)
    feed = make_feed(model, FEATURES, adj, config, folder, CPU)
    task = task or Task("multiclass", c)
    return train_gnn(model, feed, task, labels, SPLIT, config, 0, Folder(folder), soft), model


def score_on_test(run, labels=LABELS, kind="multiclass"):
    """The loop sees no test label and so gives no test score."""
    return Task(kind, c).score(run.logits[SPLIT.test], labels[SPLIT.test])


@pytest.mark.parametrize("name", GNNS)
def test_learns(name, tmp_path):
    run, _ = train(name, tmp_path)
    assert score_on_test(run) > 0.6
    rows = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert max(r["val"] for r in rows) == pytest.approx(run.val)
    assert rows[run.best_epoch - 1]["val"] == pytest.approx(run.val)


@pytest.mark.parametrize("batching", ["neighbors", "clusters"])
@pytest.mark.parametrize("name", [name for name in GNNS if GNNS[name].feed == "graph"])
def test_learns_from_parts_of_the_graph(name, batching, tmp_path):
    if batching == "clusters":
        pytest.importorskip("pymetis")
    run, _ = train(name, tmp_path, batching=batching, epochs=12, fanouts=[3])
    assert score_on_test(run) > 0.6
    assert not list(tmp_path.glob("*.tmp.npy"))


def test_test_labels_are_never_used(tmp_path):
    spoiled = LABELS.copy()
    spoiled[SPLIT.test] = 0
    for number, settings in enumerate(({}, SELF | SCR)):
        a = train("gcn", tmp_path / f"a{number}", epochs=8, **settings)[0]
        b = train("gcn", tmp_path / f"b{number}", epochs=8, labels=spoiled, **settings)[0]
        np.testing.assert_array_equal(a.logits, b.logits)
        assert score_on_test(a) != score_on_test(b, spoiled)


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
    "label reuse": ("revgat", {"options": {"label_inputs": True}, "loss": "log", "choose": "loss"}),
    "rmsprop": ("gcn", {"optimizer": "rmsprop", "schedule": "linear", "warmup_epochs": 3}),
}


@pytest.mark.parametrize("case", RESUMED)
def test_resumed_equals_straight(case, tmp_path, monkeypatch):
    name, settings = RESUMED[case]
    settings = {"epochs": 15, **settings}
    straight, _ = train(name, tmp_path / "a", **settings)
    calls = interrupt(monkeypatch, loop, "_epoch", 9)
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
    assert score_on_test(run, labels, "multilabel") > 0.7
    with pytest.raises(ConfigError, match=r"gnn.self_training: .* multi-class"):
        train("gcn", tmp_path, labels=labels, task=Task("multilabel", c), **SELF)


def test_self_training_has_stages_and_leaves_nothing_behind(tmp_path):
    run, _ = train("sagn", tmp_path, epochs=5, options={"label_hops": 2}, **SELF)
    rows = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert {r["stage"] for r in rows} == {0, 1, 2}
    assert run.epochs == 15
    assert score_on_test(run) > 0.6


def test_self_training_killed_at_its_end_goes_on(tmp_path, monkeypatch):
    """Its files go at once and last: a kill between two deletions once made a stage that never resumed."""
    straight, _ = train("gcn", tmp_path / "a", epochs=5, **SELF)
    real = loop.save_file

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "save_file", killed)
    with pytest.raises(KeyboardInterrupt):
        train("gcn", tmp_path / "b", epochs=5, **SELF)
    monkeypatch.setattr(loop, "save_file", real)
    resumed, _ = train("gcn", tmp_path / "b", epochs=5, **SELF)
    np.testing.assert_array_equal(straight.logits, resumed.logits)


def test_damaged_pseudo_labels_of_a_stage_are_never_taught(tmp_path, monkeypatch, caplog):
    straight, _ = train("gcn", tmp_path / "a", epochs=5, **SELF)
    logits = np.load(tmp_path / "a" / "stage-0.npy")
    logits[0] += 1
    np.save(tmp_path / "a" / "stage-0.npy", logits)
    again, _ = train("gcn", tmp_path / "a", epochs=5, **SELF)
    np.testing.assert_array_equal(straight.logits, again.logits)
    assert "stage-0.npy has another content than when it was written); this stage starts again" in caplog.text


def test_nothing_of_an_unfinished_attempt_stays_in_the_cache(graph, tmp_path):
    config = GNNConfig(hidden=8, epochs=3, checkpoint_minutes=0.0, **SELF)
    with session(Cache(tmp_path)):
        made = gnn(given(FEATURES), graph, Architecture.of(config), config, 0).made
    assert sorted(p.name for p in made.path.iterdir()) == [
        "epochs.jsonl",
        "gnn.safetensors",
        "logits.npy",
        "stage.json",
    ]


def test_soft_labels_teach(tmp_path):
    """A GNN taught wrong soft labels on all other nodes with a large weight follows them."""
    others = np.flatnonzero(SPLIT.roles != 0)
    wrong = np.eye(c, dtype=np.float32)[(LABELS + 1) % c]
    run, _ = train("spegcn", tmp_path, soft=SoftLabels(wrong, others, weight=50.0), patience=100)
    straight, _ = train("spegcn", tmp_path / "b")
    assert score_on_test(run) < score_on_test(straight)


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


def test_the_best_weights_are_kept(tmp_path):
    """Logits, score and file are those of the best epoch, not of the last."""
    run, model = train("gcn", tmp_path, epochs=40, lr=0.3, schedule="constant")
    assert run.best_epoch < 40
    saved = load_file(run.weights)
    assert all(torch.equal(v, saved[k]) for k, v in model.state_dict().items())
    assert Task("multiclass", c).score(run.logits[SPLIT.val], LABELS[SPLIT.val]) == run.val
    rows = [json.loads(line) for line in run.log.read_text().splitlines()]
    assert run.val == max(row["val"] for row in rows)


def test_the_epoch_of_the_lowest_validation_loss(tmp_path):
    """`choose = "loss"` keeps another epoch than the score does, and its logits have the lowest loss."""
    wrong = LABELS.copy()
    wrong[SPLIT.val[::2]] = (wrong[SPLIT.val[::2]] + 1) % c  # where half is wrong, being sure costs
    by_score, _ = train("gcn", tmp_path / "a", wrong)
    by_loss, _ = train("gcn", tmp_path / "b", wrong, choose="loss")
    losses = []
    for run in (by_score, by_loss):
        targets = torch.from_numpy(Task("multiclass", c).targets(wrong[SPLIT.val]))
        losses.append(float(Task("multiclass", c).loss(torch.from_numpy(run.logits[SPLIT.val]), targets).mean()))
    assert by_score.best_epoch != by_loss.best_epoch
    assert losses[1] < losses[0]
    assert by_loss.val <= by_score.val


def test_start_of_outputs():
    """Of three known train labels one is positive: logit((1 + 1/2) / (3 + 1)); multi-class ones start anyhow."""
    labels = np.array([[1], [0], [0], [-1]], np.int8)
    found = output_start(Task("multilabel", 1), labels, "frequency")
    np.testing.assert_allclose(found, [np.log(0.375 / 0.625)], rtol=1e-5)
    assert output_start(Task("multilabel", 1), labels, "fresh") is None
    assert output_start(Task("multiclass", 3), np.array([0, 1]), "frequency") is None


@pytest.fixture
def graph():
    inside = random_edges(n // c, 200) * c + np.random.default_rng(1).integers(0, c, 200)
    texts = Texts.from_strings(["x"] * n)
    return AttributedGraph(texts, inside, LABELS, SPLIT, list("abc"), edge_features=np.ones((200, 2), np.float32))


def settings(**changes):
    return GNNConfig(**{"hidden": 16, "epochs": 4, **changes})


def test_stage_equals_the_loop(graph, tmp_path):
    config = settings()
    X = given(FEATURES)
    run = gnn(X, graph, Architecture.of(config), config, 3)
    torch.manual_seed(3)
    model = Architecture.of(config).build(c, c)
    feed = make_feed(model, FEATURES, Adjacency.from_edges(graph.edges, n, config.adjacency), config, tmp_path, CPU)
    expected = train_gnn(model, feed, Task.of(graph), LABELS, SPLIT, config, 3, Folder(tmp_path))
    np.testing.assert_array_equal(run.logits, expected.logits)
    assert (run.val, run.best_epoch, run.epochs) == (expected.val, expected.best_epoch, expected.epochs)
    assert sorted(p.name for p in run.made.path.iterdir()) == [LOG, "gnn.safetensors", "logits.npy", "stage.json"]


def test_key_sees_what_is_read_and_no_test_label(graph):
    config = settings()
    X, architecture = given(FEATURES), Architecture.of(config)
    key = gnn.key(X, graph, architecture, config, 0)
    spoiled = LABELS.copy()
    spoiled[SPLIT.test] = 0
    assert key == gnn.key(X, replace(graph, labels=spoiled), architecture, config, 0)
    assert key == gnn.key(X, replace(graph, texts=Texts.from_strings(["y"] * n)), architecture, config, 0)
    assert key == gnn.key(X, graph, architecture, settings(checkpoint_minutes=9.0), 0)
    assert key == gnn.key(X, graph, architecture, config, 0, device=torch.device("meta"))
    spoiled[SPLIT.val] = 0
    others = [
        gnn.key(given(FEATURES + 1), graph, architecture, config, 0),
        gnn.key(X, replace(graph, labels=spoiled), architecture, config, 0),
        gnn.key(X, replace(graph, edges=graph.edges[:, 1:], edge_features=None), architecture, config, 0),
        gnn.key(X, graph, Architecture.of(settings(hidden=17)), config, 0),
        gnn.key(X, graph, architecture, settings(lr=0.1), 0),
        gnn.key(X, graph, architecture, config, 1),
        gnn.key(X, graph, architecture, config, 0, inductive=True),
    ]
    assert len({key, *others}) == len(others) + 1


@pytest.mark.parametrize("kind", [GraphSAGE, GraphSAGE(c, 8, 2, c)])
def test_a_module_of_pyg_is_trained(graph, kind):
    config = settings(epochs=30)
    run = gnn(given(FEATURES), graph, Architecture.of(config, kind), config, 0)
    assert score_on_test(run) > 0.6


def test_settings_that_a_gnn_cannot_take_are_named_by_the_stage(graph):
    """A stage sees only the settings it declares; its messages must do with those."""
    config = settings(batching="neighbors")
    with pytest.raises(ConfigError, match=r"gnn.batching 'neighbors': PyGModule has no steps\(\)"):
        gnn(given(FEATURES), graph, Architecture.of(config, GraphSAGE), config, 0)
    config = settings(batching="neighbors", fanouts=[1, 2, 3])
    with pytest.raises(ConfigError, match=r"gnn.fanouts: 1 or 2 numbers expected for GCN, got \[1, 2, 3\]"):
        gnn(given(FEATURES), graph, Architecture.of(config), config, 0)


def test_edge_features_are_asked_for(graph):
    config = settings(name="gat", options={"edge_dim": 2, "heads": 1})
    X, architecture = given(FEATURES), Architecture.of(config)
    run = gnn(X, graph, architecture, config, 0, edges=graph)
    other = replace(graph, edge_features=np.random.default_rng(0).random((200, 2)).astype(np.float32))
    assert not np.array_equal(run.logits, gnn(X, other, architecture, config, 0, edges=other).logits)
    for edges, got in ((None, "none"), (replace(graph, edge_features=np.ones((200, 3))), r"shape \(200, 3\)")):
        with pytest.raises(ConfigError, match=rf"gnn.options.edge_dim 2: .* expected in the data, got {got}"):
            gnn(X, graph, architecture, config, 0, edges=edges)


def test_inductive_training_sees_no_edge_of_another_node(graph):
    config = settings(epochs=1, eval_every=1)
    X, architecture = given(FEATURES), Architecture.of(config)
    touched = np.isin(graph.edges, SPLIT.train).all(0)
    moved = graph.edges.copy()
    moved[:, ~touched] = SPLIT.test[0]
    other = replace(graph, edges=moved)
    weights = [load_file(gnn(X, g, architecture, config, 0, inductive=True).weights) for g in (graph, other)]
    assert all(torch.equal(v, weights[1][k]) for k, v in weights[0].items())
    seen = [load_file(gnn(X, g, architecture, config, 0).weights) for g in (graph, other)]
    assert not all(torch.equal(v, seen[1][k]) for k, v in seen[0].items())
    config = settings(**SCR)
    with pytest.raises(ConfigError, match="setting 'inductive': GCN with label inputs, consistency or self-training"):
        gnn(X, graph, architecture, config, 0, inductive=True)
    config = settings(name="revgat", layers=3, options={"label_inputs": True})
    with pytest.raises(ConfigError, match="setting 'inductive': RevGAT with label inputs"):
        gnn(X, graph, Architecture.of(config), config, 0, inductive=True)
