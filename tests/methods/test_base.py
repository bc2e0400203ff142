"""Methods: what is known of them, own ones, and what none of them ever sees."""

import dataclasses

import numpy as np
import pytest
import torch

from labeldeconv import GNN, AttributedGraph, Cache, Learned, Method, Run, compare, fit, method, planted, session
from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.errors import ConfigError
from labeldeconv.labels.targets import TrueTargets
from labeldeconv.methods.base import METHODS, Work, method_named
from labeldeconv.propagation.adjacency import convolve
from labeldeconv.runs.asked import resolve
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.runs.preparation import prepare
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.settings.reading import load_config
from labeldeconv.training.encoder import LinearHead, PsiHead
from labeldeconv.training.steps import resolved_precision

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5}


def relabelled(graph, role):
    """The same graph with the labels of one part shifted by one class."""
    labels = graph.labels.copy()
    ids = graph.split.ids(role)
    labels[ids] = (labels[ids] + 1) % graph.num_classes
    return AttributedGraph(graph.texts, graph.edges, labels, graph.split, graph.class_names, graph.features)


@pytest.mark.parametrize("method", ["fne", "wo-ld", "ld", "glem", "giant"])
def test_features_do_not_depend_on_evaluation_labels(graph, tmp_path, method):
    """Labels of test nodes change nothing, not even a key; those of validation nodes only choose the best epoch."""
    quick = {**QUICK, "gnn__epochs": 3}
    a = fit(graph, method=method, out=tmp_path / "a", cache=tmp_path / "c1", **quick)
    b = fit(relabelled(graph, "test"), method=method, out=tmp_path / "b", cache=tmp_path / "c2", **quick)
    assert a.stages == b.stages
    np.testing.assert_array_equal(a.features, b.features)
    np.testing.assert_array_equal(a.logits, b.logits)


def test_everything_known_of_a_method_stands_with_it():
    known_first = ["given", "pne", "fne", "wo-ld", "ld", "ld-heads", "glem", "giant", "joint-gas", "joint-sage", "auto"]
    assert list(METHODS) == known_first
    for name, known in METHODS.items():
        assert known.name == name
        assert known.title
        assert known.summary.endswith(".")
        assert (known.complexity is None) == (name in ("given", "pne"))
    assert len({known.color for known in METHODS.values()}) == 11


@pytest.mark.parametrize(("name", "trained", "exports", "gnns"), [
    ("pne", 0, 1, 1), ("fne", 2 * 48, 1, 1), ("ld", 2 * 80, 2, 2), ("given", 0, 0, 1), ("glem", 2 * 2 * 80, 3, 3),
])  # fmt: skip
def test_work(graph, name, trained, exports, gnns):
    settings = load_config(None, {"train.epochs": 2})
    work = METHODS[name].work(graph, settings, 2)
    assert (work.trained, work.exports, work.gnns) == (trained, exports, gnns)


def test_an_own_method_is_registered_by_its_decorator(graph, tmp_path):
    @method("mine", title="X_MINE", color=9)
    def mine(run: Run) -> Learned:
        """Features of the untouched encoder, again."""
        X = run.features(None)
        return Learned(X, run.gnn(X))

    try:
        by_name = fit(graph, method="mine", out=tmp_path / "a", **QUICK)
        by_function = fit(graph, method=mine, out=tmp_path / "b", **QUICK)
        pne = fit(graph, method="pne", out=tmp_path / "c", **QUICK)
        np.testing.assert_array_equal(by_name.logits, pne.logits)
        np.testing.assert_array_equal(by_function.logits, pne.logits)
        assert METHODS["mine"].summary == "Features of the untouched encoder, again."
    finally:
        METHODS._members.pop("mine")


def test_a_method_of_a_users_module(graph, tmp_path, monkeypatch):
    (tmp_path / "my_methods.py").write_text(
        "from labeldeconv import Learned, method\n\n\n@method('mine')\ndef mine(run):\n"
        "    X = run.features(None)\n    return Learned(X, run.gnn(X))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        result = fit(graph, method="my_methods:mine", out=tmp_path / "r", **QUICK)
        assert result.settings["method"] == "my_methods:mine"
    finally:
        METHODS._members.pop("mine", None)


def test_names():
    assert isinstance(method_named("ld"), Method)
    with pytest.raises(ConfigError, match="did you mean 'ld'"):
        method_named("lld")
    with pytest.raises(ConfigError, match="a name or a function from Run to Learned expected, got int"):
        method_named(3)


def test_a_run_is_frozen(graph):
    run = prepare(resolve(load_config(None, {"data": graph.name, "encoder.name": "tiny"})), graph)
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.graph = None
    assert not run.inductive
    assert run.hops == 2
    assert run.settings.train.precision == "auto"
    assert run.training.precision == resolved_precision("auto", torch.device("cpu"))


def test_one_precision_of_its_own_or_of_the_device_is_one_key(graph, tmp_path):
    first = fit(graph, method="fne", out=tmp_path / "a", **QUICK)
    same = prepare(resolve(load_config(None, {"encoder.name": "tiny"})), graph).training.precision
    second = fit(graph, method="fne", train__precision=same, out=tmp_path / "b", **QUICK)
    assert first.stages == second.stages


@pytest.mark.parametrize(
    ("method", "settings", "trainings"),
    [
        ("giant", {"giant__coarsest": 2, "giant__cluster_size": 10}, 3),
        ("glem", {"glem__rounds": 1, "glem__first": "encoder", "glem__restart": False}, 2),
        ("fne", {"encoder__adapt": "giant", "giant__coarsest": 2, "giant__cluster_size": 10}, 4),
    ],
    ids=["giant", "glem", "adapt"],
)
def test_only_adapters_train_through_a_whole_run(graph, tmp_path, method, settings, trainings):
    """Linear maps of the encoder that a run ends with have moved by a matrix of low rank, and nothing else has."""
    pytest.importorskip("peft", reason="needs the extra lora")
    rank = 1
    settings = {**QUICK, "train__lr": 1e-2, "gnn__epochs": 2, **settings}
    fit(graph, method=method, out=tmp_path / "run", cache=tmp_path / "cache", encoder__lora_rank=rank, **settings)
    end = load_encoder(EncoderConfig(name=str(RunDirectory.open(tmp_path / "run").encoder))).state_dict()
    start = load_encoder(EncoderConfig(name="tiny")).state_dict()
    assert end.keys() == start.keys()
    ranks = {k: int(torch.linalg.matrix_rank(end[k] - v, atol=1e-5)) for k, v in start.items() if v.ndim == 2}
    moved = {k for k, v in start.items() if not torch.equal(v, end[k])}
    assert moved
    assert not [k for k in moved if "embeddings" in k or not k.endswith("weight") or start[k].ndim != 2]
    assert 1 < max(ranks.values()) <= trainings * rank  # more than one training has left its adapter


class OneConvolution(GNN):
    """A GNN of a user that calls the kernel as it is, with no thought of precisions."""

    feed = "graph"

    def __init__(self, in_dim, out_dim, *, layers=1, hidden=0, dropout=0.0):
        super().__init__(in_dim, out_dim)
        self.linear = torch.nn.Linear(in_dim, out_dim)

    hops = 1

    def forward(self, x, adj):
        return self.linear(convolve(adj, x))


def test_an_own_gnn_that_convolves_runs_in_bfloat16(graph, tmp_path):
    """All of LD: both GNNs, and psi, which is forward with I, behind an encoder under autocast."""
    runs = {
        precision: fit(
            graph, method="ld", gnn=OneConvolution, out=tmp_path / precision, cache=tmp_path / "cache",
            train__precision=precision, **QUICK
        )
        for precision in ("bfloat16", "float32")
    }  # fmt: skip
    assert np.isfinite(runs["bfloat16"].logits).all()
    assert not np.array_equal(runs["bfloat16"].features, runs["float32"].features)
    np.testing.assert_allclose(runs["bfloat16"].features, runs["float32"].features, atol=0.2)


def a_run(graph, **given):
    words = {"encoder.name": "tiny", "gnn.epochs": 1, "train.epochs": 1}
    return prepare(resolve(load_config(None, {**words, **{k.replace("__", "."): v for k, v in given.items()}})), graph)


def test_words_of_a_run_follow_the_settings(graph, tmp_path):
    with session(Cache(tmp_path / "cache")):
        run = a_run(graph, labels__hops=5, train__psi_init="gnn")
        assert run.hops == 5
        assert (run.inductive, run.all_labelled) == (False, False)
        assert isinstance(run.label_head(), LinearHead)
        head = a_run(graph, train__head="psi").label_head()
        assert isinstance(head, PsiHead)
        assert head.start is None
        assert a_run(graph, train__head="psi", train__psi_init="gnn").label_head().start is not None
    inside = a_run(graph, setting="inductive")
    assert (inside.inductive, inside.all_labelled) == (True, True)
    assert inside.graph.num_nodes == 48


def test_gold_nodes_are_told_apart_only_where_their_share_is_set(graph, tmp_path, monkeypatch):
    """The arguments of the stages behind Run.train and Run.gnn."""
    from labeldeconv.methods import base

    calls = []

    class Spy:
        def __init__(self, real):
            self.real = real

        def called(self, label):
            return lambda *arguments: calls.append((label, arguments)) or self.real.called(label)(*arguments)

    monkeypatch.setattr(base, "train", Spy(base.train))
    monkeypatch.setattr(base, "gnn", Spy(base.gnn))
    from labeldeconv.labels.targets import TrueTargets

    with session(Cache(tmp_path / "cache")):
        run = a_run(graph, gnn__init="psi", train__head="psi")
        targets = TrueTargets(graph.train_labels, run.task)
        plain = run.train(targets, graph.split.train)
        run.train(targets, graph.split.train, pseudo_weight=0.25, epochs=2, label="weighted")
        (_, first), (label, second) = calls
        assert (first[5].epochs, *first[7:9]) == (1, None, None)
        assert (label, second[5].epochs, second[7]) == ("weighted", 2, 0.25)
        np.testing.assert_array_equal(np.flatnonzero(second[8]), graph.split.train)
        calls.clear()
        X = run.features(plain)
        run.last_gnn(X, plain)
        run.first_gnn(X)
        (_, last), (label, first) = calls
        assert (last[5], last[6], last[8]) == (False, None, plain)  # the inductive setting, edge features, the start
        assert (label, first[5], first[8]) == ("first gnn", False, None)


def test_what_a_method_is_unless_it_says_otherwise(graph):
    def plain(run):
        """Nothing. And more."""

    known = method_named(plain)
    assert (known.name, known.learn, known.title, known.trained_on, known.nodes) == ("plain", plain, "", "-", "-")
    assert (known.complexity, known.adapts, known.color, known.needs(None)) == (None, True, 9, None)
    settings = load_config(None, {"train.epochs": 7})
    assert known.work(graph, settings, 2) == Work(0, 1, 1)
    assert known.epochs(settings) == 7


TRUNK = {**QUICK, "encoder__train_layers": 1, "gnn__epochs": 2, "train__lr": 1e-2}


def test_methods_and_seeds_share_the_states_of_a_frozen_trunk(graph, tmp_path):
    place = {"out": tmp_path / "run", "cache": tmp_path / "cache"}
    runs = [fit(graph, method=name, seed=seed, **place, **TRUNK) for name, seed in (("fne", 0), ("ld", 0), ("ld", 1))]
    assert len({run.stages["trunk"] for run in runs}) == 1
    assert "trunk" not in runs[0].cached
    assert all("trunk" in run.cached for run in runs[1:])
    assert "trunk of all" not in runs[0].stages
    whole = fit(graph, method="fne", out=tmp_path / "whole", cache=tmp_path / "cache", **QUICK)
    assert "trunk" not in whole.stages
    assert whole.stages["train"] != runs[0].stages["train"]


def test_features_of_a_frozen_trunk_are_those_of_the_saved_encoder(graph, tmp_path):
    result = fit(graph, method="fne", out=tmp_path / "run", cache=tmp_path / "cache", **TRUNK)
    saved = fit(graph, method="pne", out=tmp_path / "again", **{**QUICK, "encoder": str(tmp_path / "run" / "encoder")})
    np.testing.assert_allclose(result.features, saved.features, atol=1e-2)
    start = fit(graph, method="pne", out=tmp_path / "pne", **QUICK)
    assert np.abs(start.features - saved.features).max() > 2e-2


def test_the_states_of_an_inductive_run_are_of_train_nodes_and_then_of_all(graph, tmp_path):
    result = fit(graph, method="fne", setting="inductive", out=tmp_path / "run", cache=tmp_path / "cache", **TRUNK)
    assert {"trunk", "trunk of all"} <= set(result.stages)
    assert result.stages["trunk"] != result.stages["trunk of all"]
    rows = np.load(tmp_path / "cache" / result.stages["trunk"] / "starts.npy")
    assert len(rows) == len(graph.split.train)


def test_an_adapted_encoder_has_states_of_its_own(graph, tmp_path):
    """All layers learn the neighbourhoods; the trunk of the encoder that comes out is a stage of that encoder."""
    quick = {**TRUNK, "giant__coarsest": 2, "giant__cluster_size": 20, "giant__single_nodes": 0}
    place = {"out": tmp_path / "run", "cache": tmp_path / "cache"}
    adapted = fit(graph, method="fne", encoder__adapt="giant", **place, **quick)
    plain = fit(graph, method="fne", **place, **quick)
    assert adapted.stages["trunk"] != plain.stages["trunk"]
    assert "train" in adapted.stages
    whole = fit(graph, method="fne", encoder__adapt="giant", **place, **{**quick, "encoder__train_layers": 2})
    assert "train 4" in whole.cached  # the neighbourhoods are learned by all layers, whatever trains behind


@pytest.mark.parametrize("restart", [True, False])
def test_glem_and_giant_go_on_from_the_states_of_the_first_encoder(graph, tmp_path, restart):
    """Phases that start from one another leave the trunk as it is: one stage serves them all."""
    glem = {"method": "glem", "glem__rounds": 2, "glem__restart": restart}
    giant = {"method": "giant", "giant__coarsest": 2, "giant__cluster_size": 20}
    for name, settings in (("glem", glem), ("giant", giant)):
        result = fit(graph, out=tmp_path / name, cache=tmp_path / "cache", **settings, **TRUNK)
        assert [label for label in result.stages if "trunk" in label] == ["trunk"]
        assert len([label for label in result.stages if label.startswith("train")]) >= 2


def test_a_phase_that_trained_all_layers_has_a_trunk_of_its_own(graph, tmp_path):
    def two_phases(run: Run) -> Learned:
        """A whole encoder first, its last layer then."""
        targets = TrueTargets(run.graph.train_labels, run.task)
        number = run.settings.encoder.model_copy(update={"train_layers": None})
        whole = dataclasses.replace(run, settings=run.settings.model_copy(update={"encoder": number}))
        first = whole.train(targets, run.graph.split.train, label="train all")
        second = run.train(targets, run.graph.split.train, start=first)
        assert first.trunk is None
        assert second.trunk is not None
        assert not run.has_first_trunk(second)
        X = run.features(second)
        return Learned(X, run.gnn(X), encoder=second)

    result = fit(graph, method=two_phases, out=tmp_path / "run", cache=tmp_path / "cache", **TRUNK)
    saved = fit(graph, method="pne", out=tmp_path / "again", **{**QUICK, "encoder": str(tmp_path / "run" / "encoder")})
    np.testing.assert_allclose(result.features, saved.features, atol=1e-2)


@pytest.mark.parametrize("name", ["joint-sage", "joint-gas"])
def test_joint_training_takes_no_frozen_trunk(graph, tmp_path, name):
    with pytest.raises(ConfigError, match=r"encoder.train_layers: joint training trains the whole encoder.*got 1"):
        fit(graph, method=name, out=tmp_path / "run", cache=tmp_path / "cache", **TRUNK)


def test_an_encoder_that_cannot_be_split_is_refused_before_anything_runs(graph, family, tmp_path):
    quick = {**TRUNK, "encoder": family("t5")}
    with pytest.raises(ConfigError, match=r"encoder.train_layers: T5EncoderModel cannot be split"):
        fit(graph, method="ld", out=tmp_path / "run", cache=tmp_path / "cache", **quick)
    assert not (tmp_path / "cache" / "features").exists()
    assert fit(graph, method="pne", out=tmp_path / "run", cache=tmp_path / "cache", **quick).test >= 0
    with pytest.raises(ConfigError, match=r"encoder.train_layers: T5EncoderModel cannot be split"):
        compare(graph, methods=["pne", "ld"], gnns=["gcn"], seeds=1, out=tmp_path / "compared", **quick)


def test_outputs_start_at_the_frequencies_of_multilabel_tasks(graph):
    """logit of (ones + 0.5) / (known + 1), by numpy; a multi-class task and 'fresh' leave the layer's own start."""
    multi = planted(80, "multilabel", seed=0, num_classes=4).graph
    labels = multi.labels[multi.split.train]
    share = ((labels == 1).sum(0) + 0.5) / ((labels >= 0).sum(0) + 1)
    np.testing.assert_allclose(a_run(multi).output_bias, np.log(share / (1 - share)), rtol=1e-4)
    assert a_run(multi, gnn__output_bias="fresh").output_bias is None
    assert a_run(graph).output_bias is None
