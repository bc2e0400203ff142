"""Every setting there is changes the key of exactly the stages that read it, or changes nothing at all.

A run is made, one setting is changed, and the run is made again in the same cache. A stage is *first touched* by the
change if its key differs although none of the stages it came from does: those are the stages that read the setting
themselves, and they are named below for every setting. All stages behind them differ too, and no others.
"""

import itertools
import json
import re

import numpy as np
import pytest

from labeldeconv import fit, planted
from labeldeconv.settings.reading import setting_names
from labeldeconv.stages.stage import Session

SMALL = {
    "encoder.name": "tiny", "encoder.max_tokens": 16, "train.epochs": 1, "gnn.epochs": 2, "gnn.hidden": 8,
    "giant.coarsest": 2, "giant.cluster_size": 10, "joint.epochs": 1, "joint.batch_nodes": 16,
}  # fmt: skip
LD = {"method": "ld"}
HEADS = {"method": "ld-heads"}
FNE = {"method": "fne"}
PNE = {"method": "pne"}
GLEM = {"method": "glem", "glem.rounds": 1}
GIANT = {"method": "giant"}
SAGE = {"method": "joint-sage"}
GAS = {"method": "joint-gas"}
NEIGHBOURS = {**PNE, "gnn.batching": "neighbors"}
CLUSTERS = {**PNE, "gnn.batching": "clusters", "gnn.clusters": 4}
SAGN = {**PNE, "gnn.name": "sagn"}
SELF_TRAINING = {**PNE, "gnn.self_training.stages": 2}
CONSISTENT = {**SAGN, "gnn.consistency.weight": 0.5}
REUSE = {**PNE, "gnn.name": "revgat", "gnn.options": {"label_inputs": True, "heads": 1}}
AUTO = {**PNE, "gnn.name": "auto", "gnn.candidates": ["gcn", "mlp"]}
LORA = {**FNE, "encoder.lora_rank": 2}
TRAIN, GNN, FIRST = {"train"}, {"gnn"}, {"first gnn"}
# Setting: (settings of the run, new value, labels of the stages that read it).
READ = {
    "encoder.layers": (PNE, 1, {"encode"}),
    "encoder.pooling": (PNE, "first", {"encode"}),
    "encoder.normalize": (PNE, True, {"encode"}),
    "encoder.dim": (PNE, 8, {"encode"}),
    "encoder.prompt": (PNE, "passage: ", {"tokens"}),
    "encoder.max_tokens": (PNE, 8, {"tokens"}),
    "encoder.train_layers": ({**FNE, "encoder.train_layers": 2}, 1, {"trunk"}),
    "encoder.lora_rank": (FNE, 2, {"train"}),
    "encoder.weights": (LORA, "bfloat16", {"train"}),
    "encoder.lora_alpha": (LORA, 1.0, {"train"}),
    "encoder.lora_dropout": (LORA, 0.5, {"train"}),
    "encoder.lora_targets": (LORA, ["query"], {"train"}),
    "labels.hops": (LD, 1, {"hops"}),
    "labels.alpha": (LD, 0.5, TRAIN),
    "labels.temperature": (LD, 0.5, {"pseudo"}),
    "labels.targets": (LD, "hops", TRAIN),
    "labels.own": (HEADS, "all", TRAIN),
    "labels.hop_weights": (HEADS, [1.0, 0.5, 0.5], TRAIN),
    "labels.nodes": (LD, "train", TRAIN),
    "labels.pseudo_weight": (LD, 0.3, TRAIN),
    "labels.adjacency.normalization": (LD, "symmetric", {"hops"}),
    "labels.adjacency.self_loops": (LD, True, {"hops"}),
    "labels.adjacency.undirected": (LD, False, {"hops"}),
    "labels.store": (LD, "float32", {"hops"}),
    "train.epochs": (FNE, 2, TRAIN),
    "train.lr": (FNE, 1e-3, TRAIN),
    "train.psi_lr": (FNE, 1e-2, TRAIN),
    "train.gamma_lr": (LD, 1e-2, TRAIN),
    "train.weight_decay": (FNE, 0.1, TRAIN),
    "train.warmup": (FNE, 0.5, TRAIN),
    "train.clip": (FNE, 0.1, TRAIN),
    "train.dropout": (FNE, 0.5, TRAIN),
    "train.batch_nodes": (FNE, 8, TRAIN),
    "train.batch_tokens": (FNE, 64, TRAIN),
    "train.accumulate": (FNE, 2, TRAIN),
    "train.gradient_checkpointing": (FNE, True, TRAIN),
    "train.optimizer_states": (FNE, "8bit", TRAIN),
    "train.head": (FNE, "psi", TRAIN),
    "train.psi_norm": (LD, "layer", TRAIN),
    "gnn.name": (PNE, "gat", GNN),
    "gnn.race_minutes": (AUTO, 6.0, {"gnn race"}),
    "gnn.layers": (PNE, 1, GNN),
    "gnn.hidden": (PNE, 4, GNN),
    "gnn.dropout": (PNE, 0.1, GNN),
    "gnn.options": (PNE, {"norm": "none"}, GNN),
    "gnn.output_bias": (PNE, "fresh", GNN),
    "gnn.optimizer": (PNE, "adamw", GNN),
    "gnn.lr": (PNE, 0.1, GNN),
    "gnn.weight_decay": (PNE, 0.1, GNN),
    "gnn.warmup_epochs": (PNE, 1, GNN),
    "gnn.schedule": (PNE, "constant", GNN),
    "gnn.epochs": (PNE, 3, GNN),
    "gnn.patience": (PNE, 1, GNN),
    "gnn.eval_every": (PNE, 2, GNN),
    "gnn.batching": (PNE, "neighbors", GNN),
    "gnn.batch_nodes": (NEIGHBOURS, 8, GNN),
    "gnn.fanouts": (NEIGHBOURS, [3], GNN),
    "gnn.clusters": (CLUSTERS, 5, GNN),
    "gnn.clusters_per_batch": (CLUSTERS, 2, GNN),
    "gnn.batch_rows": (SAGN, 16, GNN),
    "gnn.self_training.stages": (PNE, 2, GNN),
    "gnn.self_training.threshold": (SELF_TRAINING, 0.1, GNN),
    "gnn.self_training.weight": (SELF_TRAINING, 0.5, GNN),
    "gnn.consistency.weight": (SAGN, 0.5, GNN),
    "gnn.consistency.predictions": (CONSISTENT, 3, GNN),
    "gnn.consistency.temperature": (CONSISTENT, 0.9, GNN),
    "gnn.consistency.distance": (CONSISTENT, "mse", GNN),
    "gnn.consistency.threshold": (CONSISTENT, 0.1, GNN),
    "gnn.consistency.final_threshold": (CONSISTENT, 0.1, GNN),
    "gnn.consistency.teacher_decay": (CONSISTENT, 0.5, GNN),
    "gnn.consistency.warmup_epochs": (CONSISTENT, 1, GNN),
    "gnn.label_reuse.shown": (REUSE, 0.2, GNN),
    "gnn.label_reuse.iterations": (REUSE, 0, GNN),
    "gnn.loss": (PNE, "log", GNN),
    "gnn.choose": (PNE, "loss", GNN),
    "gnn.adjacency.normalization": (PNE, "row", GNN),
    "gnn.adjacency.self_loops": (PNE, False, GNN),
    "gnn.adjacency.undirected": (PNE, False, GNN),
    "giant.ngram": (GIANT, 2, {"tree"}),
    "giant.negatives": (GIANT, 8, {"train nodes"}),
    "giant.epochs": (GIANT, 2, {"train 4"}),
    "giant.max_degree": (GIANT, 4, {"train 4"}),
    "glem.temperature": (GLEM, 0.9, {"pseudo 1"}),
    "glem.epochs": (GLEM, 2, {"train 1"}),
    "glem.pretrain_epochs": ({**GLEM, "glem.first": "encoder"}, 2, TRAIN),
    "glem.label_smoothing": (GLEM, 0.3, {"train 1"}),
    "glem.encoder_weight": (GLEM, 0.1, {"train 1"}),
    "glem.encoder_ratio": (GLEM, 0.3, {"train 1"}),
    "glem.gnn_ratio": (GLEM, 0.3, {"gnn 1"}),
    "glem.gnn_weight": (GLEM, 0.5, {"gnn 1"}),
    "joint.batch_nodes": (SAGE, 8, TRAIN),
    "joint.fanout": (SAGE, 2, TRAIN),
    "joint.epochs": (SAGE, 2, TRAIN),
    "joint.part_nodes": (GAS, 4, TRAIN),
    "joint.max_neighbors": (GAS, 1, TRAIN),
    "joint.chunk_nodes": (SAGE, 4, TRAIN),
    "joint.gnn_lr": (SAGE, 0.1, TRAIN),
    "metric": (PNE, "macro-f1", GNN),
    "regression_loss": ({**FNE, "data": "planted-regression:40"}, "huber", TRAIN),
    "class_weights": (FNE, "balanced", TRAIN),
    "seed": (PNE, 1, GNN),
}
# Settings that choose which stages there are, or how often: the run has other stages, and shares the rest.
CHOOSE = {
    "data": (PNE, "planted:50"),
    "data_seed": (PNE, 1),
    "split": (PNE, [0.4, 0.2]),
    "method": (PNE, "fne"),
    "setting": (FNE, "inductive"),
    "start": (FNE, "runs/earlier"),
    "encoder.name": (PNE, "unirep"),
    "encoder.adapt": (FNE, "giant"),
    "labels.gamma": (LD, "auto"),
    "labels.engine": (LD, "spark"),
    "labels.rounds": (LD, 2),
    "train.psi_init": ({**FNE, "train.head": "psi"}, "gnn"),
    "train.precision": ({**FNE, "train.precision": "float32"}, "bfloat16"),
    "gnn.inputs": (FNE, "both"),
    "gnn.candidates": (AUTO, ["mlp", "spegcn"]),
    "gnn.init": ({**FNE, "train.head": "psi"}, "psi"),
    "giant.coarsest": (GIANT, 1),
    "giant.finest": ({**GIANT, "giant.coarsest": 1, "giant.cluster_size": 1, "giant.step": 1}, 2),
    "giant.single_nodes": ({**GIANT, "giant.single_nodes": 0}, 40),
    "giant.step": ({**GIANT, "giant.coarsest": 1, "giant.cluster_size": 4}, 1),
    "giant.cluster_size": ({**GIANT, "giant.coarsest": 1, "giant.step": 1}, 4),
    "glem.rounds": (GLEM, 2),
    "glem.first": (GLEM, "encoder"),
    "glem.confident": (GLEM, 0.2),
    "glem.label_input": (GLEM, True),
    "glem.restart": ({**GLEM, "glem.rounds": 2}, False),
    "joint.gnn": (SAGE, "fresh"),
    "joint.gnn_epochs": (SAGE, 1),
}
# Settings that change nothing: not one byte of the result, and no key.
NOTHING = {
    "encoder.revision": (FNE, "main"),
    "device": (FNE, "cpu"),
    "log": (FNE, "tensorboard"),
    "max_memory": (FNE, "64GiB"),
    "labels.master": (LD, "local[2]"),
    "train.parallel": (FNE, "fsdp"),
    "train.checkpoint_minutes": (FNE, 0.0),
    "gnn.checkpoint_minutes": (FNE, 0.0),
}


def test_no_setting_is_forgotten():
    assert sorted([*READ, *CHOOSE, *NOTHING]) == sorted(setting_names())


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def graph():
    return planted(40, seed=0, num_classes=4).graph


def run(graph, cache, out, settings):
    given = {name.replace(".", "__"): value for name, value in {**SMALL, **settings}.items()}
    data = given.pop("data", graph)
    return fit(data, out=out, cache=cache, **given)


def arguments(cache, stage):
    """The keys of the stages that a kept stage was made from."""
    held = json.loads((cache / stage / "stage.json").read_text())["arguments"]
    return set(re.findall(r'"content": "([0-9a-f]{24})"', json.dumps(held)))


@pytest.mark.parametrize("name", READ)
def test_it_changes_the_key_of_exactly_the_stages_that_read_it(name, graph, cache, tmp_path):
    if name in ("joint.part_nodes", "joint.max_neighbors") or "clusters" in name:
        pytest.importorskip("pymetis", reason="needs the extra metis")
    if name == "encoder.lora_rank":
        pytest.importorskip("peft", reason="needs the extra lora")
    base, value, expected = READ[name]
    kind = {"gnn.output_bias": "multilabel", "giant.ngram": "protein"}.get(name)
    data = graph if kind is None else planted(40, kind, seed=0, num_classes=4).graph
    before = run(data, cache, tmp_path / "a", base).stages
    after = run(data, cache, tmp_path / "b", {**base, name: value}).stages
    if name == "gnn.name":
        assert set(before) == set(after)
    changed = {label for label in before if before[label] != after[label]}
    keys = {before[label].partition("/")[2] for label in changed}
    first = {label for label in changed if not arguments(cache, before[label]) & keys}
    assert first == expected
    behind = {label for label in before if arguments(cache, before[label]) & keys}
    assert changed == first | behind


@pytest.mark.parametrize("name", CHOOSE)
def test_it_changes_which_stages_there_are(name, graph, cache, tmp_path):
    base, value = CHOOSE[name]
    if name == "labels.engine":
        pytest.skip("make test-spark tries it: tests/labels/test_hop_tables.py")
    if name == "encoder.name":
        value = _another_encoder(tmp_path / "encoder")
    if name == "start":
        value = str(run(graph, cache, tmp_path / "earlier", base).run)
    if name in ("data", "data_seed"):
        base = {**base, "data": "planted:40"}
    before = run(graph, cache, tmp_path / "a", base).stages
    after = run(graph, cache, tmp_path / "b", {**base, name: value}).stages
    assert set(after.values()) - set(before.values())


@pytest.mark.parametrize("name", NOTHING)
def test_it_changes_nothing(name, graph, cache, tmp_path):
    if name == "log":
        pytest.importorskip("tensorboard", reason="extra 'tensorboard' is not installed")
    base, value = NOTHING[name]
    before = run(graph, cache, tmp_path / "a", base)
    recalled = run(graph, cache, tmp_path / "b", {**base, name: value})
    assert recalled.stages == before.stages
    anew = run(graph, tmp_path / "empty", tmp_path / "c", {**base, name: value})
    assert anew.stages == before.stages
    np.testing.assert_array_equal(anew.features, before.features)
    np.testing.assert_array_equal(anew.logits, before.logits)


def test_what_stands_in_a_key_is_read(graph, tmp_path, monkeypatch):
    """No key is too wide: every setting that a stage declares is read by it in some run."""
    reads: dict[str, set[str]] = {}
    real = Session.account

    def account(self, label, artefact, read):
        reads.setdefault(artefact.made.stage, set()).update(read)
        return real(self, label, artefact, read)

    monkeypatch.setattr(Session, "account", account)
    for number, base in enumerate((LD, GLEM, GIANT, SAGE, GAS, NEIGHBOURS, CLUSTERS, SELF_TRAINING, CONSISTENT, REUSE)):
        run(graph, tmp_path / f"cache{number}", tmp_path / "run", base)
    from labeldeconv.labels.hops import hops
    from labeldeconv.training.encoder import train
    from labeldeconv.training.gnn import gnn
    from labeldeconv.training.joint import joint

    for made in (hops, train, gnn, joint):
        for parameter in itertools.islice(made._signature.parameters, 1, None):
            declared = {name for mark in made._marks(parameter) for name in getattr(mark, "names", ())}
            seen = {name.split(".")[1] for name in reads[made.name] if name.startswith(f"{parameter}.")}
            assert declared <= seen | {"edge_features"}, f"{made.name}: {parameter}"  # of GNNs that read edges only


def _another_encoder(folder):
    """The tiny encoder's own folder with one other weight."""
    import torch

    from labeldeconv.encoders.pretrained import load_encoder
    from labeldeconv.settings.models import EncoderConfig

    encoder = load_encoder(EncoderConfig(name="tiny"))
    with torch.no_grad():
        next(encoder.parameters()).add_(1.0)
    encoder.save(folder)
    return str(folder)
