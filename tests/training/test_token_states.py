"""Token states of a frozen trunk: kept once, resumed as straight, and training on them equals freezing in place."""

import json
import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from labeldeconv.encoders.pretrained import Pretrained, Weights
from labeldeconv.encoders.tokens import tokens
from labeldeconv.encoders.trunk import SplitEncoder
from labeldeconv.errors import ConfigError
from labeldeconv.graph.task import Task
from labeldeconv.graph.texts import Texts
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.labels.targets import TrueTargets
from labeldeconv.settings.models import EncoderConfig, TrainConfig
from labeldeconv.stages.stage import Folder
from labeldeconv.training import encoder as loop
from labeldeconv.training import features as passes
from labeldeconv.training import steps
from labeldeconv.training.encoder import LOG, LinearHead, Objective, train, train_encoder
from labeldeconv.training.features import features
from labeldeconv.training.token_states import token_states
from tests.elsewhere import DEVICE, elsewhere
from tests.encoders.families import PROTEINS, SEQUENCES, SPLIT, TEXTS, frozen_in_place
from tests.samples import interrupt

c = 3
TASK = Task("multiclass", c)
WORDS = [f"{'abc'[i % 3] * (2 + i % 5)}{i % 20}" for i in [*range(20), *range(10)]]  # 10 of them twice


def made(name="tiny", words=WORDS, precision="float32", train_layers=1, **config):
    """Weights of an encoder, tokens of words, and states of them."""
    weights = Weights(Pretrained(EncoderConfig(name=name, **config)))
    store = tokens(Texts.from_strings(words), weights.pretrained.tokenizer, 24)
    return weights, store, token_states(store, weights, train_layers, precision)


def settings(**own):
    defaults = {"epochs": 2, "lr": 1e-3, "batch_nodes": 4, "precision": "float32", "checkpoint_minutes": 0.0}
    return TrainConfig(**{**defaults, **own})


def test_states_are_those_of_the_trunk_each_text_once(caplog):
    caplog.set_level(logging.INFO, "labeldeconv")
    weights, store, states = made()
    distinct = len(set(WORDS))
    assert states.states.shape == (int(store.lengths[store.first == np.arange(30)].sum()), 32)
    assert states.states.dtype == np.float16
    assert isinstance(states.states, np.memmap)
    assert len(np.unique(states.starts)) == distinct == 20
    split = SplitEncoder(weights.load(), 1)
    batch = store.batch(np.arange(30))
    input_ids, mask, kept = states.batch(np.arange(30))
    assert torch.equal(input_ids, batch[0])
    inside = mask.bool()
    torch.testing.assert_close(kept.float()[inside], split.states(*batch)[inside], atol=2e-3, rtol=1e-3)
    size = f"{states.states.nbytes / 1e6:,.1f} MB on disk"
    assert any(f"{len(states.states):,} tokens x 32 x 2 bytes = {size}" in r.message for r in caplog.records)


def test_its_key_is_of_encoder_tokens_and_layers_alone():
    weights, store, states = made()
    assert token_states.key(store, weights, 1, "float32", torch.device("cpu")) == states.content_key
    keys = {
        token_states.key(store, weights, 2, "float32"),
        token_states.key(store, Weights(Pretrained(EncoderConfig(name="tiny", layers=1))), 1, "float32"),
        states.content_key,
    }
    assert len(keys) == 3


def test_resumed_equals_straight(tmp_path, monkeypatch):
    weights, store, states = made()
    monkeypatch.setattr(passes, "BATCH_NODES", 4)
    monkeypatch.setattr(passes, "SAVE_SECONDS", -1.0)
    real, calls = SplitEncoder.states, []

    def dying(self, *inputs):
        calls.append(len(inputs[0]))
        if len(calls) == 5:
            raise KeyboardInterrupt
        return real(self, *inputs)

    monkeypatch.setattr(SplitEncoder, "states", dying)
    arguments = (store, weights, 1, "float32", torch.device("cpu"))
    with pytest.raises(KeyboardInterrupt):
        token_states.function(Folder(tmp_path), *arguments)
    done = calls[2:4]  # the first two are of the split, the last one died
    calls.clear()
    monkeypatch.setattr(
        SplitEncoder, "states", lambda self, *inputs: calls.append(len(inputs[0])) or real(self, *inputs)
    )
    resumed = token_states.function(Folder(tmp_path), *arguments)
    assert sum(calls[2:]) == len(set(WORDS)) - sum(done)
    np.testing.assert_allclose(resumed.states, states.states, atol=2e-3)


def test_states_too_large_for_float16_are_refused(monkeypatch):
    real = SplitEncoder.states

    def large(self, input_ids, mask):
        return real(self, input_ids, mask) * (1e6 if len(input_ids) > 1 else 1)  # one row is the try of the split

    monkeypatch.setattr(SplitEncoder, "states", large)
    with pytest.raises(ConfigError, match=r"encoder.train_layers: states .* float16, which holds numbers up to 65,504"):
        made()


class InPlace(nn.Module):
    """The whole encoder with frozen first layers, as `Objective` takes an encoder."""

    def __init__(self, weights):
        super().__init__()
        self.encoder = weights.load()
        self.dim = self.encoder.dim

    def forward(self, *inputs):
        return self.encoder(*inputs)

    def train(self, mode=True):
        super().train(mode)
        if mode:
            frozen_in_place(self.encoder, 1)
        return self


def objective(encoder, m):
    torch.manual_seed(1)
    K = np.eye(c, dtype=np.float32)[np.arange(m) % c][:, None].repeat(2, 1)
    return Objective(encoder, nn.Linear(encoder.dim, c), InverseLabels(K), TASK)


@pytest.mark.parametrize("name", ["tiny", *SPLIT])
def test_steps_equal_those_frozen_in_place(name, family, tmp_path):
    """The same steps, dropout included: losses and features of the trained encoders agree to float16."""
    words = [*(SEQUENCES if name in PROTEINS else TEXTS)] * 2
    weights, store, states = made(name if name == "tiny" else family(name), words)
    logs, exported = [], []
    for kind in ("place", "split"):
        (tmp_path / kind).mkdir()
        read = store if kind == "place" else states
        encoder = InPlace(weights).train() if kind == "place" else SplitEncoder(weights.load(), 1)
        goal = objective(encoder, len(words))
        train_encoder(goal, read, np.arange(len(words)), settings(epochs=3), 0, Folder(tmp_path / kind))
        logs.append([json.loads(line)["loss"] for line in (tmp_path / kind / LOG).read_text().splitlines()])
        with torch.no_grad():
            exported.append(goal.encoder.eval()(*read.batch(np.arange(len(words)))))
    assert len(logs[0]) == 6
    np.testing.assert_allclose(logs[1], logs[0], atol=5e-3, rtol=5e-3)
    bound = 1e-2 * float(exported[0].abs().max())
    torch.testing.assert_close(exported[1], exported[0], atol=bound, rtol=0)
    start = weights.load().eval()
    with torch.no_grad():
        assert (start(*store.batch(np.arange(len(words)))) - exported[0]).abs().max() > bound  # it did learn


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["tiny", "deberta", "modernbert", "esm2"])
def test_trained_resumed_saved_and_exported(name, precision, family, tmp_path, monkeypatch):
    """As stages: a killed training goes on to the bit, and features of the states are those of the whole encoder."""
    monkeypatch.setattr(steps, "_native_bfloat16", lambda device: True)
    words = [*(SEQUENCES if name in PROTEINS else TEXTS)] * 2
    weights, store, states = made(name if name == "tiny" else family(name), words, precision)
    labels = np.arange(len(words)) % c
    config = settings(precision=precision, gradient_checkpointing=name == "deberta")
    arguments = (states, weights, LinearHead(c), TrueTargets(labels, TASK), np.arange(len(words)), config, 0)
    straight = train(*arguments)
    calls = interrupt(monkeypatch, loop, "_step", 3)
    with pytest.raises(KeyboardInterrupt):
        train.function(Folder(tmp_path), *arguments)
    assert (tmp_path / "checkpoint.safetensors").exists()
    resumed = train.function(Folder(tmp_path), *arguments)
    assert len(calls) == 3 + 2  # of 4 steps two were done
    a, b = (weights.with_trained(trained).load() for trained in (straight, resumed))
    for (key, value), other in zip(a.state_dict().items(), b.state_dict().values(), strict=True):
        assert torch.equal(value, other), key
    assert straight.trunk == states.content_key
    after = weights.with_trained(straight)
    short, long = (features(read, after, precision).values.astype(np.float32) for read in (states, store))
    np.testing.assert_allclose(short, long, atol=(1e-2 if precision == "float32" else 5e-2) * np.abs(long).max())
    assert np.abs(long - features(store, weights, precision).values).max() > 1e-3


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")  # torch takes it for the real "meta"
def test_all_of_it_on_another_device(tmp_path, monkeypatch):
    """States, training, the saved encoder and features as on the CPU; the trunk stays behind while layers train."""
    monkeypatch.setattr(torch, "inference_mode", torch.no_grad)  # which wrapped tensors do not know
    weights, store, here = made()
    with elsewhere():
        (tmp_path / "states").mkdir()
        there = token_states.function(Folder(tmp_path / "states"), store, weights, 1, "float32", DEVICE)
        split = SplitEncoder(weights.load(), 1).to(DEVICE)
        assert {p.device for p in split.parameters()} == {DEVICE}
        assert {p.device for layer in split._trunk for p in layer.parameters()} == {torch.device("cpu")}
        assert split(*(x.to(DEVICE) for x in store.batch(np.arange(3)))).device == DEVICE  # which runs the trunk, too
    np.testing.assert_allclose(there.states, here.states, atol=2e-3)
    labels = np.arange(30) % c
    arguments = (
        here,
        weights,
        LinearHead(c),
        TrueTargets(labels, TASK),
        np.arange(30),
        settings(epochs=1),
        0,
        None,
        None,
    )
    exported = []
    for device in (torch.device("cpu"), DEVICE):
        place = tmp_path / device.type
        place.mkdir()
        with elsewhere():
            trained = train.function(Folder(place), *arguments, device)
            after = weights.with_trained(SimpleNamespace(encoder=trained.encoder))
            exported.append(np.array(features.function(Folder(place), here, after, "float32", device).values))
    np.testing.assert_allclose(exported[1].astype(np.float32), exported[0].astype(np.float32), atol=5e-3)
