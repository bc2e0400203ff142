"""Encoders cut into shards train as whole ones, and go on from each other's checkpoints, by one rank or two."""

import itertools
import json
import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch._dynamo  # which FSDP2 loads at its first step: here once, and not by every rank
import torch.distributed.fsdp
from safetensors.torch import load_file

from labeldeconv import fit
from labeldeconv.encoders.image import ImageEncoder
from labeldeconv.encoders.pretrained import Pretrained, Weights, load_encoder
from labeldeconv.errors import ConfigError
from labeldeconv.graph.task import Task
from labeldeconv.labels.targets import TrueTargets
from labeldeconv.settings.models import EncoderConfig, TrainConfig
from labeldeconv.stages import ranks
from labeldeconv.stages.stage import Folder, Made
from labeldeconv.training import encoder as loop
from labeldeconv.training.encoder import LinearHead, train, train_encoder
from labeldeconv.training.sharding import cut, is_shard, own_part, part_like, whole
from labeldeconv.training.token_states import token_states
from tests.launched import launch
from tests.samples import interrupt, letter_tokens
from tests.training.test_global_batch import SETTINGS as WHOLE
from tests.training.test_global_batch import logits, objective, rows_of

n = 40
SETTINGS = WHOLE.model_copy(update={"optimizer_states": "8bit"})  # a row of moments is in one shard
SHARDS = SETTINGS.model_copy(update={"parallel": "fsdp"})
NODES = np.arange(n)[:37]


def train_in(folder, tokens, settings):
    folder.mkdir(exist_ok=True)
    goal = objective()
    train_encoder(goal, tokens, NODES, settings, 3, Folder(folder))
    return goal


def kept(goal):
    """The whole weights of an objective by name, of all ranks where they have shards."""
    return {name: whole(tensor).clone() for name, tensor in goal.state_dict().items()}


def by_ranks(folder, tokens):
    """Two ranks: in shards; in shards from where one process stopped; whole from where shards stopped; and killed."""
    with ranks.joined():
        goal = train_in(folder / "shards", tokens, SHARDS)
        parts = [p for p in goal.encoder.parameters() if is_shard(p)]
        assert len(parts) == len(list(goal.encoder.parameters()))
        assert not any(is_shard(p) for p in [*goal.head.parameters(), *goal.targets.parameters()])
        numbers = sum(own_part(p).numel() for p in parts), sum(p.numel() for p in parts)
        assert abs(2 * numbers[0] - numbers[1]) < 0.05 * numbers[1]  # half of the weights
        torch.save(kept(goal), folder / f"shards.{ranks.rank()}.pt")
        torch.save(kept(train_in(folder / "one, then shards", tokens, SHARDS)), folder / f"later.{ranks.rank()}.pt")
        step, calls = loop._step, []

        def stopped(*args):
            calls.append(1)
            if len(calls) == 4:
                raise KeyboardInterrupt
            return step(*args)

        loop._step = stopped
        with pytest.raises(KeyboardInterrupt):
            train_in(folder / "shards, then two", tokens, SHARDS)
        loop._step = step
        ranks.meet("the checkpoint, which rank 0 has written now")
        torch.save(kept(train_in(folder / "shards, then two", tokens, SETTINGS)), folder / f"two.{ranks.rank()}.pt")

        def killed(*args):
            calls.append(1)
            if len(calls) == 8 and ranks.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return step(*args)

        loop._step = killed
        train_in(folder / "shards, then one", tokens, SHARDS)


def test_shards_train_as_one_process_and_go_on_from_each_other(tmp_path, monkeypatch):
    tokens = letter_tokens(n, tmp_path / "tokens")
    expected = train_in(tmp_path / "expected", tokens, SETTINGS).state_dict()
    with monkeypatch.context() as patch:
        interrupt(patch, loop, "_step", 4)
        with pytest.raises(KeyboardInterrupt):
            train_in(tmp_path / "one, then shards", tokens, SHARDS)  # one process: not cut
    zero, one = launch(by_ranks, tmp_path / "ranks", tmp_path, tokens)
    assert one.code == -signal.SIGKILL
    assert (zero.code, "rank 1" in zero.message, "was killed" in zero.message) == (1, True, True), zero.message
    files = [load_file(tmp_path / name / "checkpoint.safetensors") for name in ("expected", "shards")]
    assert {k: (v.shape, v.dtype) for k, v in files[0].items()} == {k: (v.shape, v.dtype) for k, v in files[1].items()}
    assert len(rows_of(tmp_path / "shards, then one")) == 3
    states = {"shards, then one": train_in(tmp_path / "shards, then one", tokens, SETTINGS).state_dict()}
    for name, file in (("shards", "shards"), ("one, then shards", "later"), ("shards, then two", "two")):
        states[name], other = (torch.load(tmp_path / f"{file}.{rank}.pt") for rank in (0, 1))
        assert all(torch.equal(held, other[key]) for key, held in states[name].items())
    known = rows_of(tmp_path / "expected")
    for name, state in states.items():
        rows = rows_of(tmp_path / name)
        np.testing.assert_allclose([r["loss"] for r in rows], [r["loss"] for r in known], rtol=1e-4)
        np.testing.assert_allclose([r["gamma"] for r in rows], [r["gamma"] for r in known], atol=2e-5)
        torch.testing.assert_close(logits(state, tokens), logits(expected, tokens), rtol=1e-2, atol=1e-2)


VARIANTS = {
    "last layer": ({}, {}),
    "adapters": ({"lora_rank": 2}, {}),
    "adapters, bfloat16 weights": ({"lora_rank": 2, "weights": "bfloat16"}, {}),
    "bfloat16, gradient checkpointing": ({}, {"precision": "bfloat16", "gradient_checkpointing": True}),
}
QUICK = ["last layer"]


def variants(folder, tokens, names):
    """Losses of the stage `train` by two ranks, of whole encoders and of shards, and features of what it saved."""
    told = {}
    with ranks.joined():
        (folder / "states").mkdir(exist_ok=True)
        plain = Weights(Pretrained(EncoderConfig(name="tiny")))
        states = token_states.function(Folder(folder / "states"), tokens, plain, 1, "float32")
        states.__dict__["_made"] = Made("token_states", "key", folder, 0.0, None, False)
        for name, parallel in itertools.product(names, ("ddp", "fsdp")):
            config, settings = VARIANTS[name]
            own = folder / f"{name} {parallel}"
            own.mkdir(exist_ok=True)
            weights = Weights(Pretrained(EncoderConfig(name="tiny", **config)))
            asked = {"epochs": 1, "lr": 1e-3, "batch_nodes": 9, "precision": "float32", **settings}
            given = states if name == "last layer" else tokens
            task = Task("multiclass", 3)
            targets = TrueTargets(np.arange(n) % 3, task)
            train.function(
                Folder(own), given, weights, LinearHead(3), targets, NODES,
                TrainConfig(parallel=parallel, **asked), 3,
            )  # fmt: skip
            ranks.meet("the end of a variant")
            with torch.inference_mode():
                loaded = weights.load()
                loaded.restore(own / "encoder")
                features = loaded.eval()(*tokens.batch(np.arange(n)))
            told[f"{name} {parallel}"] = [[row["loss"] for row in rows_of(own)], features.float().tolist()]
    return told


@pytest.mark.parametrize("names", [QUICK, pytest.param([*VARIANTS], marks=pytest.mark.thorough)], ids=["quick", "all"])
def test_the_stage_in_shards_gives_what_whole_encoders_give(tmp_path, names):
    if names != QUICK:
        pytest.importorskip("peft")  # here, so that both ranks have it
    tokens = letter_tokens(n, tmp_path / "tokens", distinct=True)
    zero, one = launch(variants, tmp_path / "ranks", tmp_path, tokens, names, seconds=240)
    assert (zero.code, one.code) == (0, 0), zero.message or one.message
    assert zero.value == one.value
    for name in names:
        (losses, features), (expected, known) = (zero.value[f"{name} {kind}"] for kind in ("fsdp", "ddp"))
        coarse = 0.05 if "bfloat16" in name else 1e-3
        assert len(losses) == len(expected) > 3
        assert losses[-1] != losses[0]
        np.testing.assert_allclose(losses, expected, rtol=coarse, err_msg=name)
        np.testing.assert_allclose(features, known, atol=coarse, err_msg=name)


def fitted(folder):
    """A run of two ranks in shards, and how many stages one of whole encoders computes after it."""
    settings = {"encoder__max_tokens": 16, "gnn__hidden": 8, "gnn__epochs": 2, "train__epochs": 1}
    with ranks.joined():
        results = [
            fit(
                "planted:40", method="fne", gnn="mlp", encoder="tiny", cache=folder / "cache", out=folder / parallel,
                train__parallel=parallel, **settings,
            )
            for parallel in ("fsdp", "ddp")
        ]  # fmt: skip
    return [sorted(set(result.stages) - set(result.cached)) for result in results]


def test_a_run_of_whole_encoders_finds_the_stages_of_shards(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    zero, one = launch(fitted, tmp_path / "ranks", tmp_path)
    assert (zero.code, one.code) == (0, 0), zero.message or one.message
    assert "train" in zero.value[0]
    assert zero.value[1] == []


def test_weights_in_whole_numbers_are_not_cut():
    encoder = load_encoder(EncoderConfig(name="tiny"))
    encoder.model.packed = torch.nn.Parameter(torch.zeros(4, dtype=torch.uint8), requires_grad=False)
    with pytest.raises(ConfigError, match=r"train.parallel 'fsdp'.*uint8.*4bit.*'ddp'"):
        cut(encoder, torch.device("cpu"), "train")


def test_encoders_that_may_not_run_are_not_cut():
    model = torch.nn.Linear(2, 2)
    model.config = SimpleNamespace(hidden_size=2)
    with pytest.raises(ConfigError, match=r"train.parallel 'fsdp'.*images.*'ddp'"):
        cut(ImageEncoder(model, None, EncoderConfig()), torch.device("cpu"), "train")


def columns(folder):
    """Gradients of an encoder of two columns by two ranks, each with one of two records."""
    with ranks.joined():
        encoder, inputs = records()
        cut(encoder, torch.device("cpu"), "columns")
        layers = [part for part in encoder.modules() if isinstance(part, torch.distributed.fsdp.FSDPModule)]
        own = slice(ranks.rank(), ranks.rank() + 1)
        encoder(*(part[own] for part in inputs)).square().sum().backward()
        told = {name: whole(p.grad).tolist() for name, p in encoder.named_parameters() if p.grad is not None}
        return [len(layers), told]


def records():
    encoder = load_encoder(EncoderConfig(name="kind=category,text=tiny")).eval()
    rows = encoder.tokenize([json.dumps({"kind": kind, "text": kind * 9}) for kind in "ab"], 16)
    length = max(map(len, rows))
    inputs = [[*row, *[0] * (length - len(row))] for row in rows], [[1] * length] * 2
    return encoder, tuple(map(torch.tensor, inputs))


def test_an_encoder_of_columns_is_cut_by_the_layers_of_each(tmp_path):
    encoder, inputs = records()
    encoder(*inputs).square().sum().backward()
    zero, one = launch(columns, tmp_path / "ranks", tmp_path)
    assert (zero.code, one.code) == (0, 0), zero.message or one.message
    assert zero.value[0] == 3  # two layers of 'tiny', and the rest
    expected = {name: p.grad for name, p in encoder.named_parameters() if p.grad is not None}
    assert zero.value[1].keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(zero.value[1][name], gradient, rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_whole_tensor_is_its_own_part():
    tensor = torch.arange(3)
    assert whole(tensor) is own_part(tensor) is part_like(tensor, tensor) is tensor
    assert not is_shard(tensor)
