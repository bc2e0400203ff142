"""X_GLEM: EM rounds, of which the best is kept whole; and what the published recipes set."""

import json
import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from labeldeconv import LabelDeconvolution, fit, planted
from labeldeconv.errors import ConfigError
from labeldeconv.graph.split import Split
from labeldeconv.methods import glem as module
from labeldeconv.methods.base import METHODS, Run
from labeldeconv.methods.glem import choose, label_input
from labeldeconv.runs.asked import resolve
from labeldeconv.runs.preparation import prepare
from labeldeconv.settings.reading import load_config

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5}


def manifest(tmp_path, stage):
    return json.loads((tmp_path / "cache" / stage / "stage.json").read_text())


@pytest.mark.parametrize("first", ["gnn", "encoder"])
def test_glem_takes_the_best_round_whole(graph, tmp_path, first):
    """Features, encoder, psi and GNN are of the round with the best validation score, whichever it is."""
    words = {"method": "glem", "glem__rounds": 3, "glem__first": first, "train__lr": 1e-3, **QUICK}
    result = fit(graph, out=tmp_path / "r", **words)
    rounds = [label for label in result.seconds if re.fullmatch(r"gnn \d", label) and label != "gnn 0"]
    values = {label: manifest(tmp_path, result.stages[label])["values"]["val"] for label in rounds}
    assert len(values) == 3
    best = max(values, key=values.__getitem__)
    assert result.val == values[best] == max(values.values())
    chosen = best.removeprefix("gnn ")
    kept = tmp_path / "cache" / result.stages[f"train {chosen}"]
    for mine, its in (
        ("encoder/model.safetensors", "encoder/model.safetensors"),
        ("psi.safetensors", "head.safetensors"),
    ):
        assert (result.run / mine).read_bytes() == (kept / its).read_bytes()
    np.testing.assert_array_equal(
        result.features, np.load(tmp_path / "cache" / result.stages[f"features {chosen}"] / "values.npy")
    )


def test_glem_keeps_an_earlier_round_that_is_better(graph, tmp_path, monkeypatch):
    """The second round is made worse than the first: everything must be of the first."""
    made = []

    def m_step(run, trained, Y, number, real=module._m_step):
        learned = real(run, trained, Y, number)
        made.append(learned)
        if number == 2:
            object.__setattr__(learned.gnn, "val", -1.0)
        return learned

    monkeypatch.setattr(module, "_m_step", m_step)
    result = fit(graph, method="glem", glem__rounds=2, train__lr=1e-3, out=tmp_path / "r", **QUICK)
    assert not np.array_equal(made[0].features.values, made[1].features.values)
    np.testing.assert_array_equal(result.features, made[0].features.values)
    own = (result.run / "encoder" / "model.safetensors").read_bytes()
    assert own == (made[0].encoder.encoder / "model.safetensors").read_bytes()


def test_glem_without_evaluation_nodes_to_label(graph, tmp_path):
    """With all pseudo ratios 0 the E-step is fine-tuning on gold alone."""
    result = fit(graph, method="glem", out=tmp_path / "g", glem__encoder_ratio=0.0, glem__gnn_ratio=0.0, **QUICK)
    fne = fit(graph, method="fne", out=tmp_path / "f", **QUICK)
    np.testing.assert_array_equal(result.features, fne.features)
    assert Split(graph.split.roles).train.size == 48


def cached(tmp_path, result, label, name):
    return np.load(tmp_path / "cache" / result.stages[label] / f"{name}.npy")


def test_label_input_puts_the_encoders_distribution_beside_its_features(graph, tmp_path):
    """By numpy from the stages before it: softmax(logits / 0.2) of every node, train nodes not excepted."""
    words = {"method": "glem", "glem__rounds": 1, **QUICK}
    result = fit(graph, glem__label_input=True, out=tmp_path / "r", **words)
    X, logits = cached(tmp_path, result, "features 1", "values"), cached(tmp_path, result, "predict 1", "logits")
    power = np.exp((logits - logits.max(1, keepdims=True)) / 0.2)
    read = cached(tmp_path, result, "label input 1", "values")
    assert read.shape == (80, 32 + 10)
    np.testing.assert_array_equal(read[:, :32], X)
    np.testing.assert_allclose(read[:, 32:], power / power.sum(1, keepdims=True), atol=1e-3)
    plain = fit(graph, out=tmp_path / "p", **words)
    np.testing.assert_array_equal(result.features, plain.features)  # X_GLEM is the encoder's
    assert result.stages["gnn 1"] != plain.stages["gnn 1"]
    assert "label input 1" not in plain.stages
    from safetensors.numpy import load_file

    shapes = {v.shape for v in load_file(result.run / "gnn.safetensors").values()}
    assert any(42 in shape for shape in shapes)
    assert not any(32 in shape for shape in shapes)


@dataclass
class Held:
    """An array as a stage's artefact."""

    values: np.ndarray
    logits: np.ndarray
    content_key: str = "k"


def test_label_input_of_a_multilabel_task_is_a_sigmoid(monkeypatch):
    monkeypatch.setattr(module, "ROWS", 7)  # 60 nodes in nine blocks
    graph = planted(60, "multilabel", seed=0, num_classes=4).graph
    rng = np.random.default_rng(0)
    held = Held(rng.normal(size=(60, 3)).astype(np.float16), rng.normal(size=(60, 4)).astype(np.float32))
    made = label_input(held, held, graph, 0.5)
    np.testing.assert_array_equal(made.values[:, :3], held.values)
    np.testing.assert_allclose(made.values[:, 3:], 1 / (1 + np.exp(-2 * held.logits)), atol=1e-3)
    assert (made.encoder_nodes, made.seconds) == (0, 0.0)  # nothing was encoded for it


def test_label_inputs_of_another_graph_are_refused(graph, tmp_path):
    settings = {"glem.label_input": True, "glem.rounds": 1, "train.epochs": 1, "gnn.epochs": 2}
    model = LabelDeconvolution("glem", "tiny", "gcn", settings=settings, out=tmp_path / "m").fit(graph)
    with pytest.raises(ConfigError, match=r"glem\.label_input false expected"):
        model.predict(planted(60, seed=3).graph)


@pytest.mark.parametrize("first", ["gnn", "encoder"])
def test_epochs_of_its_own(graph, tmp_path, first):
    """As published: other numbers of passes in pre-training and in the E-step than in train.epochs."""
    words = {**QUICK, "glem__first": first, "glem__rounds": 1, "train__epochs": 3}
    own = fit(graph, method="glem", glem__epochs=2, glem__pretrain_epochs=4, out=tmp_path / "a", **words)
    same = fit(graph, method="glem", out=tmp_path / "b", **words)
    assert own.encoder_nodes_by_stage["train 1"] == 2 * 80
    assert same.encoder_nodes_by_stage["train 1"] == 3 * 80
    if first == "encoder":
        assert own.encoder_nodes_by_stage["train"] == 4 * 48
        assert same.encoder_nodes_by_stage["train"] == 3 * 48
    given = {"glem.first": first, "glem.rounds": 1, "train.epochs": 3, "glem.epochs": 2, "glem.pretrain_epochs": 4}
    config = load_config(None, given)
    told = METHODS["glem"].work(graph, config, 2)
    assert told.trained == sum(count for label, count in own.encoder_nodes_by_stage.items() if "train" in label)
    assert METHODS["glem"].epochs(config) == 2


def test_smoothing_reaches_gold_alone_in_both_phases(graph, tmp_path, monkeypatch):
    """Targets that the encoder phase gets, by hand: (1 - 0.3) one-hot + 0.3 / c on train nodes, Y elsewhere."""
    given, real = {}, Run.train

    def train(self, targets, nodes, **words):
        given[words.get("label", "train")] = targets.build()(np.arange(80)).numpy()
        return real(self, targets, nodes, **words)

    monkeypatch.setattr(Run, "train", train)
    words = {"method": "glem", "glem__first": "encoder", "glem__rounds": 1, **QUICK}
    result = fit(graph, glem__label_smoothing=0.3, out=tmp_path / "r", **words)
    train_nodes, others = graph.split.train, np.flatnonzero(graph.split.roles > 0)
    hot = torch.nn.functional.one_hot(torch.from_numpy(graph.labels[train_nodes]).long(), 10).numpy()
    for label in ("train", "train 1"):
        np.testing.assert_allclose(given[label][train_nodes], 0.7 * hot + 0.03, atol=1e-6)
    Y = cached(tmp_path, result, "pseudo 1", "values")
    np.testing.assert_array_equal(given["train 1"][others], Y[others])
    np.testing.assert_array_equal(Y[train_nodes], hot)  # gold itself stays what it is


def test_the_most_confident_are_chosen(graph):
    given = {"encoder.name": "tiny", "glem.confident": 0.25}
    run = prepare(resolve(load_config(None, given)), graph)
    others = np.flatnonzero(graph.split.roles > 0)
    Y = np.full((80, 10), 0.1, np.float32)
    Y[others, 0] += np.linspace(0, 0.5, len(others), dtype=np.float32)
    kept = others[-8:]  # a quarter of 32
    np.testing.assert_array_equal(choose(run, Held(Y, Y), 1.0), kept)
    few = choose(run, Held(Y, Y), 4 / 48)
    assert len(few) == 4
    assert set(few) < set(kept)


def test_the_first_token_can_be_pooled(graph, tmp_path):
    """GLEM's encoders give the first token's vector, after training too."""
    words = {"method": "glem", "glem__rounds": 1, "encoder__pooling": "first", **QUICK}
    result = fit(graph, out=tmp_path / "r", **words)
    from transformers import AutoModel

    from labeldeconv.encoders.pretrained import load_encoder
    from labeldeconv.settings.models import EncoderConfig

    ids = torch.tensor([load_encoder(EncoderConfig(name="tiny")).tokenize([graph.texts[5]], 256)[0]])
    with torch.inference_mode():
        hidden = AutoModel.from_pretrained(result.run / "encoder").eval()(input_ids=ids).last_hidden_state[0, 0]
    np.testing.assert_allclose(result.features[5], hidden.numpy(), atol=2e-3)


def test_multilabel_nodes_far_from_a_half_are_the_confident_ones():
    """Predictions say yes and no by turns, ever more surely: only the distance from 0.5 grows."""
    graph = planted(60, "multilabel", seed=0, num_classes=4).graph
    run = prepare(resolve(load_config(None, {"encoder.name": "tiny", "glem.confident": 0.25})), graph)
    others = np.flatnonzero(graph.split.roles > 0)
    Y = np.full((60, 4), 0.5, np.float32)
    sure = np.linspace(0, 0.4, len(others), dtype=np.float32) * np.resize([1, -1], len(others))
    Y[others] += sure[:, None]
    np.testing.assert_array_equal(choose(run, Held(Y, Y), 1.0), others[-round(0.25 * len(others)) :])


@pytest.mark.parametrize(("given", "trained"), [
    ({}, 3 * 2 * 80),  # 48 train nodes and as many others, of which there are but 32
    ({"glem.encoder_ratio": 0.25}, 3 * 2 * (48 + 12)),
    ({"glem.encoder_ratio": 0.25, "glem.first": "encoder", "glem.pretrain_epochs": 4}, 3 * 2 * 60 + 4 * 48),
    ({"glem.encoder_ratio": 0.25, "glem.first": "encoder", "glem.epochs": 1}, 3 * 60 + 2 * 48),
])  # fmt: skip
def test_work_by_hand(graph, given, trained):
    work = METHODS["glem"].work(graph, load_config(None, {"glem.rounds": 3, "train.epochs": 2, **given}), 2)
    assert (work.trained, work.exports, work.gnns) == (trained, 4, 4)


def told(monkeypatch):
    """What Run.train and Run.gnn are called with, by the label of the stage; both still do their work."""
    calls, train, gnn = {}, Run.train, Run.gnn

    def trained(self, targets, nodes, **words):
        calls[words["label"]] = {**words, "nodes": nodes, "gold": targets.gold}
        calls[words["label"]]["made"] = train(self, targets, nodes, **words)
        return calls[words["label"]]["made"]

    def taught(self, X, **words):
        calls[words["label"]] = words
        return gnn(self, X, **words)

    monkeypatch.setattr(Run, "train", trained)
    monkeypatch.setattr(Run, "gnn", taught)
    return calls


def test_what_both_steps_are_given(graph, tmp_path, monkeypatch):
    """48 train nodes: a quarter as many others for the encoder, half as many for the GNN, 4 times gold."""
    calls = told(monkeypatch)
    words = {"encoder_ratio": 0.25, "encoder_weight": 0.3, "gnn_ratio": 0.5, "gnn_weight": 0.8, "restart": False}
    fit(graph, method="glem", out=tmp_path / "r", **{f"glem__{k}": v for k, v in words.items()}, **QUICK)
    assert list(calls) == ["train 1", "gnn 1", "train 2", "gnn 2"]
    for number in (1, 2):
        nodes = calls[f"train {number}"]["nodes"]
        assert (np.diff(nodes) > 0).all()
        assert (len(nodes), set(graph.split.train) <= set(nodes)) == (48 + 12, True)
        assert calls[f"train {number}"]["pseudo_weight"] == 0.3
        assert calls[f"train {number}"]["gold"] is None  # nothing to be smoothed
        given = calls[f"gnn {number}"]["taught"]
        assert (len(given.ids), given.weight) == (24, pytest.approx(4.0))
        assert (graph.split.roles[given.ids] > 0).all()
    assert calls["train 1"]["start"] is None
    assert calls["train 2"]["start"] is calls["train 1"]["made"]


@pytest.mark.parametrize(("weight", "ratio", "expected"), [(1.0, 0.5, 1e6), (0.0, 0.5, None), (0.5, 0.0, None)])
def test_weights_of_the_m_step_at_its_ends(graph, tmp_path, monkeypatch, weight, ratio, expected):
    calls = told(monkeypatch)
    words = {"glem__gnn_weight": weight, "glem__gnn_ratio": ratio, "glem__rounds": 1, "glem__encoder_ratio": 0.0}
    fit(graph, method="glem", glem__label_smoothing=0.1, out=tmp_path / "r", **words, **QUICK)
    given = calls["gnn 1"]["taught"]
    assert given is None if expected is None else given.weight == pytest.approx(expected, rel=1e-3)
    assert calls["train 1"]["pseudo_weight"] is None  # no pseudo label is among them
    np.testing.assert_array_equal(calls["train 1"]["gold"], graph.split.train)
