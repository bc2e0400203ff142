"""What all loops share: parameter groups, rates, precision and the log."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.encoders.tokens import write_tokens
from labeldeconv.graph.texts import Texts
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.stages.watch import Watch
from labeldeconv.training import steps
from labeldeconv.training.steps import (
    autocast,
    encoder_autocast,
    fused_optimizer,
    open_log,
    parameter_groups,
    resolved_precision,
    set_learning_rates,
)

CPU = torch.device("cpu")


def test_only_matrices_decay_and_frozen_weights_are_left_out():
    model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.Linear(3, 1).requires_grad_(False))
    matrices, vectors = parameter_groups(model.parameters(), 1e-3, 0.1)
    assert [tuple(p.shape) for p in matrices["params"]] == [(3, 2)]
    assert [tuple(p.shape) for p in vectors["params"]] == [(3,), (3,), (3,)]
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.1, 0.0)
    assert (matrices["lr"], vectors["peak_lr"]) == (1e-3, 1e-3)
    assert parameter_groups([], 1e-3, 0.1) == []


def test_warm_up_and_linear_decay():
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": lr, "peak_lr": lr} for lr in (1e-5, 1e-3)]
    optimizer = torch.optim.AdamW(groups)
    scales = [set_learning_rates(optimizer, p, warmup=0.2) for p in (0.0, 0.1, 0.2, 0.6, 1.0)]
    np.testing.assert_allclose(scales, [0, 0.5, 1, 0.5, 0], atol=1e-12)
    set_learning_rates(optimizer, 0.1, 0.2)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.5e-5, 0.5e-3])
    assert set_learning_rates(optimizer, 0.25, 0.0) == pytest.approx(0.75)
    assert set_learning_rates(optimizer, 0.5, 1.0) == pytest.approx(0.5)  # a warm-up to the end does not divide by zero


@pytest.mark.parametrize(("precision", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_precision(precision, dtype):
    assert resolved_precision(precision, CPU) == precision
    with autocast(precision, CPU):
        assert nn.Linear(2, 2)(torch.zeros(1, 2)).dtype == dtype


@pytest.mark.parametrize(("fast", "precision"), [(True, "bfloat16"), (False, "float32")])
def test_precision_is_chosen_by_the_hardware(fast, precision, monkeypatch):
    monkeypatch.setattr(steps, "_native_bfloat16", lambda device: fast)
    assert resolved_precision("auto", CPU) == precision
    with autocast("auto", CPU):
        assert torch.is_autocast_enabled("cpu") == fast


@pytest.mark.parametrize(("capability", "precision"), [((7, 5), "float32"), ((8, 0), "bfloat16"), ((9, 0), "bfloat16")])
def test_a_gpu_that_emulates_bfloat16_is_not_asked_for_it(capability, precision, monkeypatch):
    """torch says that a T4 (7.5) supports bfloat16, since it can emulate it."""
    asked = []
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: asked.append(device) or capability)
    assert resolved_precision("auto", torch.device("cuda:1")) == precision
    assert asked == [torch.device("cuda:1")]  # of the device in use, not of the first one


@pytest.mark.parametrize("test", ["_is_avx512_bf16_supported", "_is_amx_tile_supported"])
@pytest.mark.parametrize("has", [True, False])
def test_a_cpu_is_asked_for_its_instructions(test, has, monkeypatch):
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda name=name: has and name == test)
    assert resolved_precision("auto", CPU) == ("bfloat16" if has else "float32")


def test_a_device_without_autocast_computes_in_float32(caplog):
    meta = torch.device("meta")
    for _ in range(2):
        assert resolved_precision("bfloat16", meta) == "float32"
    assert resolved_precision("auto", meta) == "float32"
    with autocast("bfloat16", meta):
        assert nn.Linear(2, 2, device="meta")(torch.zeros(1, 2, device="meta")).dtype == torch.float32
    assert caplog.messages == ["warning: train.precision: torch has no bfloat16 autocast on 'meta'; float32 is used"]


def test_an_encoder_is_tried_on_its_longest_nodes(family, tmp_path, caplog):
    """The first nodes may be empty; DeBERTa is mended before its first batch, and only for bfloat16."""
    encoder = load_encoder(EncoderConfig(name=family("deberta")))
    texts = Texts.from_strings(["", "", "abc", "a longer text", "ab"])
    tokens = write_tokens(encoder.tokenizer_part, texts, 32, tmp_path)
    seen = []
    monkey = encoder.forward
    encoder.forward = lambda ids, mask: seen.append(mask.sum(1).tolist()) or monkey(ids, mask)
    encoder_autocast(encoder, tokens, "float32")
    assert (seen, caplog.messages) == ([], [])
    with encoder_autocast(encoder, tokens, "bfloat16"):
        assert encoder(*tokens.batch(np.arange(5))).isfinite().all()
    assert sorted(seen[0]) == [5, 15]
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(("device", "fused"), [("cpu", True), ("cuda", True), ("meta", False)])
def test_one_kernel_where_torch_has_one(device, fused):
    assert fused_optimizer(torch.device(device)) == fused
    if device != "cuda":
        torch.optim.AdamW([torch.zeros(2, device=device, requires_grad=True)], fused=fused)


class Heard:
    """A log that keeps what it is told."""

    def __init__(self):
        self.rows = []

    def add(self, values, axis, at):
        self.rows.append((at, values))

    def close(self): ...


def test_a_log_goes_on_where_the_checkpoint_knows(tmp_path):
    """Five lines are written, the checkpoint knows of two: they are kept and told again, and the third is new."""
    path = tmp_path / "steps.jsonl"
    path.write_text("".join(json.dumps({"step": k, "loss": float(k)}) + "\n" for k in range(1, 6)))
    heard = Heard()
    with open_log(path, 2, Watch("train", heard)) as log:
        log.write(json.dumps({"step": 3, "loss": 30.0}) + "\n")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["loss"] for row in rows] == [1.0, 2.0, 30.0]
    assert [at for at, _ in heard.rows] == [1, 2]
    with open_log(tmp_path / "new.jsonl", 0, Watch("train")) as log:
        log.write("x")
    assert (tmp_path / "new.jsonl").read_text() == "x"
