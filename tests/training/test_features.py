"""Features of all nodes: resumed as straight, in node order, and as stages."""

import os
import signal
from functools import partial

import numpy as np
import pytest
import torch

from labeldeconv.encoders.pretrained import Pretrained, Weights, load_encoder
from labeldeconv.encoders.tokens import tokens, write_tokens
from labeldeconv.graph.texts import Texts
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.stages import ranks
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.stage import Folder, session
from labeldeconv.testing import encoded
from labeldeconv.training import features as module
from labeldeconv.training.features import beside, features, given
from labeldeconv.training.reuse import Earlier
from tests.launched import launch
from tests.samples import letter_tokens

# Where the machine has bfloat16, 'auto' tries it on two nodes first, which would count.
export_features = partial(module.export_features, precision="float32")

TEXTS = Texts.from_strings(f"{i:02d}" + "x" * (i % 15) for i in range(50))


@pytest.fixture
def parts(tmp_path):
    encoder = load_encoder(EncoderConfig(name="tiny"))
    (tmp_path / "tokens").mkdir()
    return encoder, write_tokens(encoder.tokenizer_part, TEXTS, 32, tmp_path / "tokens")


def test_resumed_equals_straight(parts, tmp_path, monkeypatch):
    encoder, store = parts
    monkeypatch.setattr(module, "BATCH_NODES", 7)
    monkeypatch.setattr(module, "SAVE_SECONDS", -1.0)
    for name in "ab":
        (tmp_path / name).mkdir()
    export_features(encoder, store, Folder(tmp_path / "a"))
    calls = []

    class Dying(type(encoder)):
        def forward(self, input_ids, attention_mask):
            calls.append(1)
            if len(calls) == 4:
                raise KeyboardInterrupt
            return super().forward(input_ids, attention_mask)

    normal = encoder.__class__
    encoder.__class__ = Dying
    with pytest.raises(KeyboardInterrupt):
        export_features(encoder, store, Folder(tmp_path / "b"))
    encoder.__class__ = normal
    export_features(encoder, store, Folder(tmp_path / "b"))
    a, b = (np.load(tmp_path / name / "values.npy") for name in "ab")
    assert a.dtype == np.float16
    assert a.shape == (50, 32)
    np.testing.assert_array_equal(a, b)
    assert np.abs(a).sum(1).min() > 0
    assert {p.name for p in (tmp_path / "b").iterdir()} == {"values.npy", "progress.json"}


def test_what_was_damaged_meanwhile_is_made_again(parts, tmp_path, monkeypatch, caplog):
    """A byte of a killed attempt that has changed is found, and only what comes after it is encoded again."""
    encoder, store = parts
    monkeypatch.setattr(module, "BATCH_NODES", 10)
    monkeypatch.setattr(module, "SAVE_SECONDS", -1.0)
    for name in "abc":
        (tmp_path / name).mkdir()
        export_features(encoder, store, Folder(tmp_path / name))
    straight = np.load(tmp_path / "a" / "values.npy")
    third = np.argsort(-store.lengths, kind="stable")[20]  # a node of the third batch
    damaged = np.load(tmp_path / "b" / "values.npy", mmap_mode="r+")
    damaged[third, 3] += 1
    damaged.flush()
    state = (tmp_path / "c" / "progress.json").read_text()
    (tmp_path / "c" / "progress.json").write_text(state.replace('"seconds": 0', '"seconds": 1'))
    real, seen = type(encoder).forward, []
    monkeypatch.setattr(type(encoder), "forward", lambda self, *a: (seen.append(len(a[0])), real(self, *a))[1])
    for name, encoded_again in (("a", 0), ("b", 30), ("c", 50)):
        seen.clear()
        export_features(encoder, store, Folder(tmp_path / name))
        assert sum(seen) == encoded_again, name
        np.testing.assert_array_equal(np.load(tmp_path / name / "values.npy"), straight)
    assert "a part of it is made again" in caplog.text
    assert "it is made again" in caplog.text


def test_a_resumed_export_does_not_start_again(parts, tmp_path, monkeypatch):
    encoder, store = parts
    monkeypatch.setattr(module, "BATCH_NODES", 10)
    monkeypatch.setattr(module, "SAVE_SECONDS", -1.0)
    seen = []

    class Counting(type(encoder)):
        def forward(self, input_ids, attention_mask):
            seen.append(len(input_ids))
            if len(seen) == 4:
                raise KeyboardInterrupt
            return super().forward(input_ids, attention_mask)

    encoder.__class__ = Counting
    with pytest.raises(KeyboardInterrupt):
        export_features(encoder, store, Folder(tmp_path))
    seen.append(0)  # past the one that dies
    export_features(encoder, store, Folder(tmp_path))
    assert sum(seen) == 50 + 10  # the batch that died is done twice


def test_stage_gives_the_encoder_s_features_in_node_order():
    start = Pretrained(EncoderConfig(name="tiny"))
    kept = tokens(TEXTS, start.tokenizer, 32)
    X = features(kept, Weights(start), "float32")
    assert (X.encoder_nodes, X.values.dtype) == (50, np.float16)
    expected = encoded(start.load().eval(), list(TEXTS), 32)
    torch.testing.assert_close(torch.from_numpy(X.values.astype(np.float32)), expected, atol=2e-3, rtol=2e-3)
    again = features.called("encode")(kept, Weights(start), "float32", torch.device("cpu"))
    assert again.made.cached  # neither label nor device are in the key
    keys = {features.key(kept, Weights(start), "bfloat16"), X.content_key}
    keys.add(features.key(kept, Weights(Pretrained(EncoderConfig(name="tiny", layers=1))), "float32"))
    assert len(keys) == 3


def test_given_features_are_taken_as_they_are():
    values = np.random.default_rng(0).random((5, 3))
    X = given(values)
    np.testing.assert_array_equal(X.values, values)
    assert X.encoder_nodes == 0
    assert X.content_key != given(values + 1).content_key


@pytest.mark.parametrize("nodes", [None, np.array([0, 2, 3, 7])])
def test_beside_standardises_both_kinds(tmp_path, monkeypatch, nodes):
    monkeypatch.setattr(module, "ROWS", 3)
    rng = np.random.default_rng(0)
    a, b = rng.normal(5, 3, (8, 2)).astype(np.float16), rng.normal(size=(8, 3)).astype(np.float16)
    b[:, 1] = 4.0  # a column that says nothing stays finite
    with session(Cache(tmp_path)):
        both = beside(given(a), given(b), nodes)
    whole = np.concatenate([a, b], 1).astype(np.float64)
    counted = whole if nodes is None else whole[nodes]
    expected = (whole - counted.mean(0)) / np.maximum(counted.std(0), 1e-6)
    np.testing.assert_allclose(both.values, expected, atol=5e-3)
    np.testing.assert_allclose(both.mean, counted.mean(0), atol=1e-3)
    assert both.values.dtype == np.float16


def test_equal_attributes_are_encoded_once_and_get_equal_features(tmp_path, monkeypatch):
    encoder = load_encoder(EncoderConfig(name="tiny"))
    texts = [f"{i % 7}" * (1 + i % 7) for i in range(40)]
    for name in ("tokens", "once", "all"):
        (tmp_path / name).mkdir()
    store = write_tokens(encoder.tokenizer_part, Texts.from_strings(texts), 32, tmp_path / "tokens")
    seen = []
    encoder.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    monkeypatch.setattr(module, "COPIED", 4)
    export_features(encoder, store, Folder(tmp_path / "once"))
    assert sum(seen) == 7
    store.__dict__["first"] = np.arange(40)  # as if all differed
    export_features(encoder, store, Folder(tmp_path / "all"))
    assert sum(seen) == 7 + 40
    once, every = (np.load(tmp_path / name / "values.npy") for name in ("once", "all"))
    np.testing.assert_allclose(once, every, atol=2e-3)
    np.testing.assert_array_equal(once[:7], once[7:14])
    assert len(np.unique(once, axis=0)) == 7


def by_ranks(folder, name, stops):
    """Two ranks export features; with `stops` rank 1 is killed in its third batch."""
    tokens = letter_tokens(90, folder / f"tokens {name} {ranks.rank()}", distinct=True)
    encoder = load_encoder(EncoderConfig(name="tiny"))
    module.BATCH_NODES, module.ROUNDS, module.SAVE_SECONDS = 6, 2, -1.0
    seen = []
    real = type(encoder).forward

    def counted(self, *inputs):
        seen.append(len(inputs[0]))
        if stops and ranks.rank() == 1 and len(seen) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, *inputs)

    type(encoder).forward = counted
    found = np.arange(4)
    rows = np.full((90, 32), 7, np.float16)
    earlier = [Earlier(found, rows, found[::-1])] if ranks.rank() == 0 else []
    with ranks.joined():
        assert ranks.world() == 2
        export_features(encoder, tokens, Folder(folder / name), earlier=earlier)
    return sum(seen)


def test_two_ranks_write_what_one_does_to_the_bit_and_go_on_after_a_kill(tmp_path, monkeypatch):
    for name in ("one", "two", "machines", "killed"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(module, "BATCH_NODES", 6)
    found, rows = np.arange(4), np.full((90, 32), 7, np.float16)
    tokens, encoder = letter_tokens(90, tmp_path / "t", distinct=True), load_encoder(EncoderConfig(name="tiny"))
    export_features(encoder, tokens, Folder(tmp_path / "one"), earlier=[Earlier(found, rows, found[::-1])])
    straight = np.load(tmp_path / "one" / "values.npy")

    for name, machines in (("two", False), ("machines", True)):
        zero, one = launch(by_ranks, tmp_path / "ranks", tmp_path, name, False, machines=machines)
        assert (zero.code, one.code) == (0, 0)
        assert zero.value + one.value == 86  # all but those that rank 0 had from before
        assert abs(zero.value - one.value) <= 6  # a batch
        np.testing.assert_array_equal(np.load(tmp_path / name / "values.npy"), straight)

    zero, one = launch(by_ranks, tmp_path / "ranks", tmp_path, "killed", True)
    assert (zero.code, one.code) == (1, -signal.SIGKILL)
    assert (tmp_path / "killed" / "progress.json").exists()
    seen, real = [], type(encoder).forward
    monkeypatch.setattr(type(encoder), "forward", lambda self, *a: (seen.append(len(a[0])), real(self, *a))[1])
    export_features(encoder, tokens, Folder(tmp_path / "killed"), earlier=[Earlier(found, rows, found[::-1])])
    assert sum(seen) == 86 - 24  # two batches of each rank were noted
    np.testing.assert_array_equal(np.load(tmp_path / "killed" / "values.npy"), straight)
