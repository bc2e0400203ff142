"""Layers that are computed again: as many as a limit asks for, the first ones, and to the same bits."""

import logging
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from labeldeconv.encoders.huggingface import TextEncoder
from labeldeconv.encoders.pretrained import Pretrained, Weights, load_encoder
from labeldeconv.encoders.tokens import write_tokens
from labeldeconv.encoders.trunk import SplitEncoder
from labeldeconv.errors import NotEnoughMemory
from labeldeconv.graph.task import Task
from labeldeconv.graph.texts import Texts
from labeldeconv.labels.targets import TrueTargets
from labeldeconv.settings.models import EncoderConfig, TrainConfig
from labeldeconv.stages import memory_limit
from labeldeconv.stages.memory_limit import limited
from labeldeconv.stages.stage import Folder
from labeldeconv.training import encoder as loop
from labeldeconv.training.encoder import LinearHead, train
from labeldeconv.training.recomputation import KeptBytes, activations, widest_rows
from tests.encoders.families import PROTEINS, SEQUENCES, TEXTS
from tests.samples import letter_tokens

n = 40
ROWS = 6


def tokens_of(encoder, folder, texts=TEXTS):
    folder.mkdir(exist_ok=True)
    return write_tokens(encoder.tokenizer_part, Texts.from_strings(texts), 64, folder)


def kept_bytes(encoder, inputs):
    """What autograd holds after a forward pass, weights apart: every storage that can be reached from the graph."""
    seen = {p.untyped_storage().data_ptr(): 0 for p in encoder.parameters()}

    def pack(saved):
        storage = saved.untyped_storage()
        seen.setdefault(storage.data_ptr(), storage.nbytes())
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        features = encoder(*inputs)
    assert features.requires_grad
    return sum(seen.values())


@pytest.mark.parametrize("recomputed", [0, 1, 2])
def test_what_is_measured_on_two_rows_is_what_more_rows_keep(recomputed, tmp_path):
    encoder = load_encoder(EncoderConfig(name="tiny")).train()
    tokens = tokens_of(encoder, tmp_path / "tokens")
    state = torch.get_rng_state()
    one = activations(encoder, tokens, nullcontext())
    assert torch.equal(torch.get_rng_state(), state)
    assert one.layers == 2
    if recomputed:
        encoder.enable_gradient_checkpointing(recomputed)
    longest = int(np.argmax(tokens.lengths))
    found = kept_bytes(encoder, tokens.batch(np.full(ROWS, longest)))
    assert found == pytest.approx(one.kept(ROWS, recomputed), rel=0.03)
    assert one.peak(ROWS, recomputed) - one.kept(ROWS, recomputed) == ROWS * one.layer


def test_the_fewest_layers_that_fit():
    one = KeptBytes(fixed=10.0, row=100.0, layer=20.0, state=1.0, layers=4)
    assert one.kept(2, 0) == 210
    assert one.peak(2, 3) == 210 - 2 * 3 * 19 + 40
    assert [one.needed(2, room) for room in (1000, 250, 249, 212, 211, 98, 0)] == [0, 0, 1, 1, 2, 4, 4]


def test_the_widest_batch_is_one_of_the_longest_texts(tmp_path):
    tokens = letter_tokens(n, tmp_path / "tokens")
    longest = tokens.lengths.max()
    assert widest_rows(tokens, TrainConfig(batch_nodes=8)) == 8
    assert widest_rows(tokens, TrainConfig(batch_tokens=int(3 * longest))) == 3


def calls(encoder, inputs):
    """How often every layer runs in a forward and a backward pass, and the gradients of the weights."""
    layers = list(encoder.trained_layers())
    count = [0] * len(layers)
    hooks = []
    for i, layer in enumerate(layers):
        first = next(m for m in layer.modules() if isinstance(m, torch.nn.Linear) or "Linear" in type(m).__name__)
        hooks.append(first.register_forward_hook(lambda *_, i=i: count.__setitem__(i, count[i] + 1)))
    torch.manual_seed(1)
    features = encoder(*inputs)
    weights = [p for p in encoder.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(features.square().sum(), weights, allow_unused=True)
    for hook in hooks:
        hook.remove()
    return count, gradients


@pytest.mark.parametrize("name", ["bert", "deberta-v2", "modernbert", "qwen3", "gemma3", "t5", "esmc"])
def test_the_first_layers_run_twice_and_gradients_are_the_same_bits(name, family, tmp_path):
    encoder = load_encoder(EncoderConfig(name=family(name)))
    tokens = tokens_of(encoder, tmp_path / "tokens", SEQUENCES if name in PROTEINS else TEXTS)
    inputs = tokens.batch(np.arange(4))
    encoder.train()
    (plain, expected) = calls(encoder, inputs)
    encoder.enable_gradient_checkpointing(1)
    (some, found) = calls(encoder, inputs)
    assert plain == [some[0] // 2, *some[1:]]
    for one, other in zip(expected, found, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


def test_behind_a_trunk_the_first_of_the_trained_layers(tmp_path):
    split = SplitEncoder(load_encoder(EncoderConfig(name="tiny")), 1).train()
    tokens = tokens_of(split.whole, tmp_path / "tokens")
    one = activations(split, tokens, nullcontext())
    assert one.layers == len(split.trained_layers()) == 1
    split.enable_gradient_checkpointing(1)
    assert calls(split, tokens.batch(np.arange(4)))[0] == [2]


def trained(tokens, folder, **settings):
    folder.mkdir()
    weights = Weights(Pretrained(EncoderConfig(name="tiny")))
    targets = TrueTargets(np.arange(n) % 3, Task("multiclass", 3))
    given = TrainConfig(epochs=1, lr=1e-3, batch_nodes=8, precision="float32", **settings)
    train.function(Folder(folder, "train"), tokens, weights, LinearHead(3), targets, np.arange(n), given, 3)
    return (folder / "encoder" / "model.safetensors").read_bytes()


def test_under_a_limit_the_stage_recomputes_what_it_must_to_the_same_bits(tmp_path, monkeypatch, caplog):
    """The limit is set between what the measured formula says for none, one and two of two layers."""
    tokens = letter_tokens(n, tmp_path / "tokens")
    expected = trained(tokens, tmp_path / "free")
    asked, needs = [], {}
    enable = TextEncoder.enable_gradient_checkpointing

    def enabled(self, layers=None):
        asked.append(layers)
        enable(self, layers)

    def told(encoder, tokens, computing):
        one = activations(encoder, tokens, computing)
        needs.update({k: one.peak(8, k) for k in range(one.layers + 1)})
        return one

    monkeypatch.setattr(TextEncoder, "enable_gradient_checkpointing", enabled)
    monkeypatch.setattr(loop, "activations", told)
    monkeypatch.setattr(memory_limit, "room", lambda: 1 << 40)
    monkeypatch.setattr(loop, "room", lambda: 1 << 40)
    assert trained(tokens, tmp_path / "much") == expected
    assert asked == []
    monkeypatch.setattr(loop, "held_bytes", lambda *_: 1000.0)
    for layers in (1, 2):
        left = int(needs[layers] + 1000.0) + 1
        monkeypatch.setattr(memory_limit, "room", lambda left=left: left)
        monkeypatch.setattr(loop, "room", lambda left=left: left)
        with caplog.at_level(logging.INFO, logger="labeldeconv"):
            assert trained(tokens, tmp_path / f"less {layers}") == expected
        assert asked[-1] == layers
        assert f"train: {layers} of 2 layers are computed again" in caplog.text
    assert len(asked) == 2
    monkeypatch.undo()
    with limited("1MiB"), pytest.raises(NotEnoughMemory, match="train: needs about"):
        trained(tokens, tmp_path / "none")
