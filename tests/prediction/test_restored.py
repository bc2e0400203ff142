"""What a run directory holds is enough: encoder, psi and GNN come back as they were, without the cache."""

import json
import shutil
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from labeldeconv import RunDirectory, fit, planted
from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.prediction.pushed import PushedRun
from labeldeconv.prediction.restored import (
    GNNInputs,
    TextFeatures,
    check_imports,
    psi_logits_of,
    restored_graph_model,
    restored_psi,
)
from labeldeconv.registry import trusting
from labeldeconv.settings.models import Config, EncoderConfig
from labeldeconv.sharing.onnx_export import export_onnx
from labeldeconv.sharing.repository import write_repository
from tests.encoders.families import save_family

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 3, "gnn__hidden": 8, "encoder__max_tokens": 16}
RUNS = {
    "ld": {"method": "ld"},
    "heads": {"method": "ld-heads"},
    "auto": {"method": "auto"},
    "trunk": {"method": "fne", "encoder__train_layers": 1},
    "layer-norm": {"method": "ld", "train__psi_norm": "layer"},
    "cut": {"method": "fne", "encoder__layers": 1},
    "lora": {"method": "fne", "encoder__lora_rank": 2},
    "pne": {"method": "pne"},
    "pne-adapted": {"method": "pne", "encoder__adapt": "giant", "giant__coarsest": 1},
    "joint": {"method": "joint-sage", "joint__epochs": 1},
    "glem-label-input": {"method": "glem", "glem__rounds": 1, "glem__label_input": True},
    "glem-label-branch": {"method": "glem", "glem__rounds": 1, "gnn": "sagn", "gnn__options": {"label_hops": 2}},
    "self-training": {
        "method": "pne",
        "gnn": "sagn",
        "gnn__options": {"label_hops": 2},
        "gnn__self_training__stages": 2,
        "gnn__self_training__threshold": 0.1,
    },
    "inductive": {"method": "ld", "setting": "inductive"},
    "label-inputs": {"method": "pne", "gnn": "revgat", "gnn__options": {"label_inputs": True, "heads": 1}},
    "both": {"method": "ld", "gnn__inputs": "both"},
    "both-auto-inductive": {"method": "auto", "gnn__inputs": "both", "setting": "inductive"},
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_gives_its_own_features_and_logits_again(tmp_path, name):
    """With the cache gone: texts to features, and features through the GNN to the logits of the run."""
    result = fit(planted(60, seed=0).graph, out=tmp_path / "run", cache=tmp_path / "c", **{**QUICK, **RUNS[name]})
    shutil.rmtree(tmp_path / "c")
    run = RunDirectory.open(tmp_path / "run")
    np.testing.assert_allclose(TextFeatures(run)(list(run.graph.texts)), result.features, atol=2e-3)
    model = restored_graph_model(run, GNNInputs(run))
    grown = model.grow(0, np.zeros((2, 0)))
    whole = model.on_the_whole(grown, model.features[:0], np.zeros((2, 0)), np.arange(60))
    np.testing.assert_allclose(whole, result.logits, atol=1e-4)
    psi = restored_psi(run)
    assert (psi is None) == ((result.chosen or result.settings["method"]) in ("pne", "giant"))
    if psi is not None:
        assert psi_logits_of(psi, run.features).shape == (60, 10)


OF_FOLDERS = {
    "prompt": {"encoder__prompt": "query"},
    "pooled": {"encoder__pooling": "last", "encoder__normalize": True, "encoder__dim": 8},
    "bfloat16": {"encoder__weights": "bfloat16", "encoder__lora_rank": 2},
    "4bit": {"encoder__weights": "4bit", "encoder__lora_rank": 2},
}


@pytest.mark.parametrize("name", OF_FOLDERS)
def test_a_run_with_an_encoder_of_a_folder_gives_its_own_features_again(tmp_path, name):
    """By name, prompts are known to the first folder alone; and what was trained does not fit into 4 bits."""
    if name in ("bfloat16", "4bit"):
        pytest.importorskip("peft", reason="needs the extra lora")
    if name == "4bit":
        pytest.importorskip("bitsandbytes", reason="needs the extra 4bit")
    folder = save_family("bert", tmp_path / "base")
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": "what is: "}}')
    quick = {**QUICK, "encoder": str(folder), "method": "fne", "train__lr": 1e-2, **OF_FOLDERS[name]}
    result = fit(planted(60, seed=0).graph, out=tmp_path / "run", cache=tmp_path / "c", **quick)
    pushed = write_repository(tmp_path / "run", tmp_path / "pushed")
    for run in (RunDirectory.open(tmp_path / "run"), PushedRun.open(pushed)):
        again = TextFeatures(run)(list(planted(60, seed=0).graph.texts))
        np.testing.assert_allclose(again, result.features, atol=2e-3 * np.abs(result.features).max())


def test_an_encoder_given_as_an_object_is_kept(tmp_path):
    torch.manual_seed(3)
    own = load_encoder(EncoderConfig(name="tiny"))
    for weight in own.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    quick = {**QUICK, "encoder": own}
    result = fit(planted(60, seed=0).graph, method="pne", out=tmp_path / "run", **quick)
    run = RunDirectory.open(tmp_path / "run")
    np.testing.assert_allclose(TextFeatures(run)(list(run.graph.texts)), result.features, atol=2e-3)
    named = fit("planted:60", method="pne", out=tmp_path / "named", **QUICK)
    assert RunDirectory.open(named.run).encoder is None  # the settings name it


def test_multilabel_and_psi(tmp_path):
    result = fit(planted(60, "multilabel").graph, out=tmp_path / "run", **QUICK)
    run = RunDirectory.open(result.run)
    model = restored_graph_model(run, GNNInputs(run))
    grown = model.grow(0, np.zeros((2, 0)))
    whole = model.on_the_whole(grown, model.features[:0], np.zeros((2, 0)), np.arange(60))
    np.testing.assert_allclose(whole, result.logits, atol=1e-4)


def test_weights_that_are_not_finite_are_refused(tmp_path):
    fit("planted:60", method="pne", out=tmp_path / "run", **QUICK)
    held = load_file(tmp_path / "run" / "gnn.safetensors")
    held["convs.0.bias"][0] = float("nan")
    (tmp_path / "run" / "gnn.safetensors").unlink()
    save_file(held, tmp_path / "run" / "gnn.safetensors")
    run = RunDirectory.open(tmp_path / "run")
    with pytest.raises(DataError, match=r"gnn.safetensors: weights that are not finite in convs.0.bias"):
        restored_graph_model(run, GNNInputs(run))


def test_an_older_run_without_its_taught_labels_says_so(tmp_path):
    fit("planted:60", out=tmp_path / "run", **{**QUICK, **RUNS["glem-label-branch"]})
    run = RunDirectory.open(tmp_path / "run")
    assert (tmp_path / "run" / "taught_labels.npy").is_file()
    (tmp_path / "run" / "taught_labels.npy").unlink()
    run.result.pop("calibration")
    with pytest.raises(ConfigError, match="older than the file that keeps them; fit it again"):
        restored_graph_model(run, GNNInputs(run))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"method": "fne", "gnn__inputs": "both", "encoder__adapt": "giant", "giant__coarsest": 1},
            "of which one is not known here",
        ),
    ],
)
def test_gnns_that_read_more_than_a_run_keeps_say_so(tmp_path, settings, message):
    run = fit("planted:60", out=tmp_path / "run", cache=tmp_path / "cache", **{**QUICK, **settings}).run
    opened = RunDirectory.open(run)
    with pytest.raises(ConfigError, match=message):
        restored_graph_model(opened, GNNInputs(opened))


def test_weights_that_are_no_safetensors_are_named(tmp_path):
    fit("planted:60", method="pne", out=tmp_path / "run", **QUICK)
    weights = tmp_path / "run" / "gnn.safetensors"
    size = weights.stat().st_size
    weights.unlink()
    weights.write_bytes(b"x" * size)
    run = RunDirectory.open(tmp_path / "run")
    with pytest.raises(DataError, match=r"gnn.safetensors: weights written by safetensors expected"):
        restored_graph_model(run, GNNInputs(run))


@pytest.mark.parametrize(
    ("part", "name", "refused"),
    [
        ("gnn", "nowhere.net:Net", True),
        ("gnn", "GraphSAGE", False),
        ("encoder", "nowhere.net:Net", False),  # the run has its folder, which opens by itself
    ],
)
def test_modules_that_a_run_names_are_not_imported(ld_run, tmp_path, monkeypatch, part, name, refused):
    run = RunDirectory.open(ld_run)
    config = run.config()
    changed = config.model_copy(update={part: getattr(config, part).model_copy(update={"name": name})})
    monkeypatch.setattr(RunDirectory, "config", lambda run: changed)
    if not refused:
        return check_imports(run)
    message = f"{part}.name '{name}' is code to import; `--trust`"
    for write in (write_repository, export_onnx):
        if write is export_onnx:
            monkeypatch.setattr("labeldeconv.sharing.onnx_export.require_onnx", lambda: None)
        with pytest.raises(ConfigError, match=message):
            write(ld_run, tmp_path / "out")
    with trusting():
        check_imports(run)


@pytest.mark.parametrize(("name", "refused"), [("a=nowhere.net:Net,b=number", True), ("a=image:x/y,b=number", False)])
def test_modules_of_an_encoder_that_a_run_names_are_not_imported(tmp_path, name, refused):
    config = EncoderConfig(name=name)
    run = SimpleNamespace(path=tmp_path, encoder=None, config=lambda: Config(encoder=config))
    with pytest.raises(ConfigError, match=r"encoder.name 'nowhere.net:Net'") if refused else nullcontext():
        check_imports(run)


def test_texts_of_like_lengths_go_through_the_encoder_together(monkeypatch):
    """Long and short ones apart, with the features that each has alone."""
    encode = TextFeatures.pretrained(Config(encoder=EncoderConfig(name="tiny", max_tokens=64)))
    texts = ["amber river " * 12, "drum", "quiet " * 20, "sail", "drum and sail", *["amber"] * 10]
    passes = []
    encode.encoder.register_forward_pre_hook(lambda _, inputs: passes.append(tuple(inputs[0].shape)))
    together = encode(texts)
    lengths = [len(row) for row in encode.tokenize(texts)]
    assert 1 < len(passes) < 5
    assert sum(rows for rows, _ in passes) == len(texts)
    assert sum(rows * width for rows, width in passes) < 1.2 * sum(lengths) < 0.5 * len(texts) * max(lengths)
    alone = np.concatenate([encode([text]) for text in texts])
    np.testing.assert_allclose(together.astype(np.float32), alone.astype(np.float32), atol=2e-3)
