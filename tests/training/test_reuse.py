"""Texts that were encoded before are found by content, and what comes of it equals a fresh encoding."""

import logging
import shutil

import numpy as np
import pytest
import torch

from labeldeconv import fit, planted
from labeldeconv.encoders.pretrained import Pretrained, Weights
from labeldeconv.encoders.tokens import tokens
from labeldeconv.graph.texts import Texts
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.stage import session
from labeldeconv.training import features as module
from labeldeconv.training import reuse
from labeldeconv.training.features import features

WORDS = ["amber", "river", "drum", "quiet", "sail"]
OLD = [" ".join(WORDS[: 1 + i % 5]) + f" {i}" for i in range(60)]
NEW = ["a new text", *OLD[30:], OLD[3], "another one", *OLD[5:20], "a new text"]


def encode(strings, root, layers=None, precision="float32"):
    pretrained = Pretrained(EncoderConfig(name="tiny", layers=layers))
    with session(Cache(root)):
        rows = tokens(Texts.from_strings(strings), pretrained.tokenizer, 32)
        return features(rows, Weights(pretrained), precision, torch.device("cpu"))


def test_only_texts_that_are_new_are_encoded(tmp_path, monkeypatch, caplog):
    old = encode(OLD, tmp_path / "a")
    encoded = []
    real = module.length_batches
    monkeypatch.setattr(module, "length_batches", lambda *a: encoded.append(a[1]) or real(*a))
    with caplog.at_level(logging.INFO, logger="labeldeconv"):
        new = encode(NEW, tmp_path / "a")
    assert encoded[0].tolist() == [0, NEW.index("another one")]
    assert (new.reused, new.encoder_nodes, old.reused, old.encoder_nodes) == (46, 3, 0, 60)
    assert "46 of 49 nodes have texts that were encoded before" in caplog.text
    for i, text in enumerate(NEW):
        if text in OLD:
            np.testing.assert_array_equal(new.values[i], old.values[OLD.index(text)])
    fresh = encode(NEW, tmp_path / "b")
    assert fresh.reused == 0
    # Batches of another composition may round the last bit of float16 otherwise, and nothing more.
    np.testing.assert_allclose(new.values, fresh.values, atol=2e-3, rtol=2e-3)


def test_equal_to_the_bit_where_batches_are_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BATCH_NODES", 1)
    encode(OLD, tmp_path / "a")
    again, fresh = encode(NEW, tmp_path / "a"), encode(NEW, tmp_path / "b")
    assert (again.reused, fresh.reused) == (46, 0)
    assert again.made.key == fresh.made.key
    np.testing.assert_array_equal(again.values, fresh.values)


def test_other_weights_or_precision_are_not_taken(tmp_path):
    encode(OLD, tmp_path)
    assert encode(NEW, tmp_path, layers=1).reused == 0
    assert encode(NEW, tmp_path, precision="bfloat16").reused == 0


def test_several_earlier_results_together(tmp_path, monkeypatch):
    encode(OLD[:40], tmp_path)
    encode(OLD[40:], tmp_path)
    assert encode(NEW, tmp_path).reused == 46
    monkeypatch.setattr(reuse, "MOST", 1)
    encode(OLD[20:40], tmp_path)
    assert encode([*OLD, "x"], tmp_path).reused in range(1, 60)


@pytest.mark.parametrize("stage", ["features", "tokens"])
def test_what_is_damaged_or_pruned_is_not_taken(tmp_path, stage, monkeypatch):
    monkeypatch.setattr("labeldeconv.stages.cache._SEEN", {})
    old = encode(OLD, tmp_path)
    (folder,) = (p for p in (tmp_path / stage).iterdir() if p.is_dir())
    path = folder / ("values.npy" if stage == "features" else "ids.npy")
    held = path.read_bytes()
    path.unlink()
    path.write_bytes(held[:-1] + bytes([held[-1] ^ 1]))
    new = encode(NEW, tmp_path)
    assert new.reused == 0
    np.testing.assert_allclose(new.values[1], old.values[30] if stage == "tokens" else new.values[1], atol=2e-3)
    for each in (tmp_path / stage).iterdir():
        shutil.rmtree(each)
    assert encode(NEW[1:], tmp_path).reused == 0


def test_everything_was_there(tmp_path):
    old = encode(OLD, tmp_path)
    new = encode(OLD[::-1], tmp_path)
    assert (new.reused, new.encoder_nodes) == (60, 0)
    np.testing.assert_array_equal(new.values, old.values[::-1])


def test_a_fit_says_how_much_was_reused(tmp_path):
    quick = {"encoder": "tiny", "gnn__epochs": 2, "gnn__hidden": 8, "encoder__max_tokens": 16, "method": "pne"}
    first, second = planted(60, seed=0).graph, planted(60, seed=0).graph
    strings = list(second.texts)
    strings[7] = "something else"
    object.__setattr__(second, "texts", Texts.from_strings(strings))
    fit(first, out=tmp_path / "a", cache=tmp_path / "cache", **quick)
    result = fit(second, out=tmp_path / "b", cache=tmp_path / "cache", **quick)
    assert result.encoder_nodes_by_stage["encode"] == 1
    assert result.reused_nodes_by_stage == {"encode": 59}
