"""NaN and infinite numbers are found where they arise, with the stage, the nodes and what to do."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from labeldeconv.errors import NotFinite
from labeldeconv.runs.fit import fit
from labeldeconv.training.features import given
from labeldeconv.training.finite import check_loss, check_rows, check_weights

SMALL = {"encoder": "tiny", "gnn__epochs": 3, "gnn__hidden": 8, "train__epochs": 2, "train__batch_nodes": 16}
WILD = {"train__lr": 1e20, "train__clip": 0.0}


def test_a_loss_is_named_with_its_batch():
    check_loss(0.5, np.arange(3), "train", "step 1", "advice")
    for bad in (float("nan"), float("inf")):
        with pytest.raises(NotFinite, match=rf"train: the loss is {bad} at step 1, nodes 0, 1, 2 \(.*; lower"):
            check_loss(bad, np.arange(3), "train", "step 1", "lower it")
    with pytest.raises(NotFinite, match=r"nodes 0, 1, 2, 3, 4, 5, 6, 7 and 92 more"):
        check_loss(float("nan"), np.arange(100), "train", "step 1", "")


@pytest.mark.parametrize("shape", [(70_000, 2), (70_000, 2, 3)])
def test_rows_are_named_by_their_nodes(shape):
    values = np.zeros(shape, np.float16)
    check_rows(values, "features", "features", "")
    values[66_000, 1], values[69_999, 0] = np.nan, np.inf
    with pytest.raises(NotFinite, match=r"nodes 66000, 69999 \("):
        check_rows(values, "features", "features", "")
    with pytest.raises(NotFinite, match=r"nodes 3999, 0 \("):
        check_rows(values, "features", "features", "", np.arange(70_000)[::-1])


def test_a_weight_is_named():
    model = nn.Linear(2, 2)
    check_weights(model, "train", "")
    with torch.no_grad():
        model.bias[0] = float("inf")
    with pytest.raises(NotFinite, match="weight bias"):
        check_weights(model, "train", "")


@pytest.mark.parametrize(
    ("method", "settings", "told"),
    [
        ("ld", WILD, r"^train: .*lower train.lr \(now 1e\+20\).*train.clip above 0"),
        ("ld", {**WILD, "train__batch_nodes": 500, "train__epochs": 1}, "^features: features .*lower train.lr"),
        ("pne", {"gnn__lr": 1e30, "gnn__epochs": 20}, r"gnn: .* node.* lower gnn.lr \(now 1e\+30\)"),
        ("joint-sage", {**WILD, "joint__epochs": 3}, r"^train: the loss .*train.lr"),
        ("joint-gas", {**WILD, "joint__epochs": 3}, r"^train: the loss .*train.lr"),
    ],
)
def test_every_loop_stops_and_writes_no_run(method, settings, told, tmp_path):
    """`--set train.lr=1e20 --set train.clip=0` once printed 12.50 and exit code 0."""
    with pytest.raises(NotFinite, match=told):
        fit("planted:60", method, **{**SMALL, **settings}, out=tmp_path / "run", cache=tmp_path / "cache")
    assert not (tmp_path / "run").exists()


def test_the_last_good_checkpoint_stays(tmp_path, monkeypatch):
    """A step whose weights are not finite never replaces the checkpoint before it."""
    from labeldeconv.training import encoder

    real, steps = encoder._step, []

    def spoiled(objective, *rest):
        loss = real(objective, *rest)
        steps.append(loss)
        if len(steps) == 3:
            with torch.no_grad():
                next(objective.head.parameters()).fill_(float("nan"))
        return loss

    monkeypatch.setattr(encoder, "_step", spoiled)
    settings = {**SMALL, "train__checkpoint_minutes": 0.0}
    with pytest.raises(NotFinite, match="train: the weight head"):
        fit("planted:60", "fne", **settings, out=tmp_path / "run", cache=tmp_path / "cache")
    [kept] = (tmp_path / "cache").glob("train/*.partial/checkpoint.safetensors")
    header = kept.read_bytes()
    size = int.from_bytes(header[:8], "little")
    assert json.loads(json.loads(header[8 : 8 + size])["__metadata__"]["state"])["step"] == 2
    monkeypatch.setattr(encoder, "_step", real)
    again = fit("planted:60", "fne", **settings, out=tmp_path / "run", cache=tmp_path / "cache")
    straight = fit("planted:60", "fne", **settings, out=tmp_path / "other", cache=tmp_path / "new")
    assert np.array_equal(again.logits, straight.logits)


def test_features_beyond_float16_are_told(tmp_path, monkeypatch):
    from labeldeconv.encoders.huggingface import TextEncoder

    real = TextEncoder.forward
    monkeypatch.setattr(TextEncoder, "forward", lambda *args: real(*args) * 1e6)
    with pytest.raises(NotFinite, match=r"encode: features are not finite .*float16, whose largest number is 65504"):
        fit("planted:60", "pne", **SMALL, out=tmp_path / "run", cache=tmp_path / "cache")


def test_given_features_are_looked_at():
    values = np.zeros((40, 2), np.float32)
    values[7] = np.nan
    with pytest.raises(NotFinite, match=r"node 7 .*mend them in the data"):
        given(values)
