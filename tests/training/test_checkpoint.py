"""Checkpoints: everything comes back to the bit, a half-written one never counts."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from labeldeconv.training import checkpoint as module
from labeldeconv.training.checkpoint import Checkpoint
from tests.elsewhere import DEVICE, elsewhere


class Tied(nn.Module):
    """Two names of one weight, as language models have."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
        self.other.weight = self.one.weight

    def forward(self, x):
        return self.other(torch.dropout(self.one(x), 0.5, True))


def make(kind=torch.optim.AdamW):
    torch.manual_seed(0)
    model = Tied()
    return model, kind(model.parameters(), lr=0.1)


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(4, 3)).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.RMSprop, torch.optim.SGD])
def test_goes_on_as_if_nothing_had_happened(kind, tmp_path):
    model, optimizer = make(kind)
    step(model, optimizer)
    Checkpoint(tmp_path / "c.safetensors", model, optimizer, 0).save({"epoch": 1}, {"best": torch.arange(3)})
    for _ in range(3):
        step(model, optimizer)
    other, its = make(kind)
    torch.manual_seed(99)
    restored = Checkpoint(tmp_path / "c.safetensors", other, its, 0).load()
    assert restored is not None
    state, extra = restored
    assert state["epoch"] == 1
    assert extra["best"].tolist() == [0, 1, 2]
    for _ in range(3):
        step(other, its)
    for (name, p), q in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(p, q), name


def test_nothing_to_load(tmp_path):
    assert Checkpoint(tmp_path / "c.safetensors", *make(), 0).load() is None


def test_a_kill_while_writing_leaves_the_old_one(tmp_path, monkeypatch):
    kept = Checkpoint(tmp_path / "c.safetensors", *make(), 0)
    kept.save({"epoch": 1})

    def killed(tensors, path, metadata):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "save_file", killed)
    with pytest.raises(KeyboardInterrupt):
        kept.save({"epoch": 2})
    assert kept.load()[0]["epoch"] == 1


def test_seconds_of_all_attempts_and_when_it_is_due(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    first = Checkpoint(tmp_path / "c.safetensors", *make(), 2)
    now[0] = 219.0
    assert not first.due
    now[0] = 220.0
    assert first.due
    first.save({})
    assert not first.due
    second = Checkpoint(tmp_path / "c.safetensors", *make(), 2)
    second.load()
    now[0] = 230.0
    assert second.seconds == 130.0
    assert Checkpoint(tmp_path / "c.safetensors", *make(), 0).due


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")  # torch takes it for the real "meta"
def test_the_random_state_of_another_device_comes_back(tmp_path, monkeypatch):
    """Whatever the device is: the module torch has for it is asked, not that of CUDA."""
    state = [torch.arange(4, dtype=torch.uint8)]
    known = SimpleNamespace(get_rng_state=lambda: state[-1], set_rng_state=state.append)
    monkeypatch.setattr(torch, DEVICE.type, known, raising=False)
    with elsewhere():
        model = Tied().to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        kept = Checkpoint(tmp_path / "c.safetensors", model, optimizer, 0)
        weight = model.one.weight.detach().cpu().clone()
        kept.save({"epoch": 1})
        state.append(torch.zeros(4, dtype=torch.uint8))
        with torch.no_grad():
            model.one.weight.zero_()
        kept.load()
        assert torch.equal(model.one.weight.cpu(), weight)
    assert state[-1].tolist() == [0, 1, 2, 3]
    here, its = make()
    assert Checkpoint(tmp_path / "c.safetensors", here, its, 0).load() is not None  # without that device
    assert len(state) == 3


@pytest.mark.parametrize("damage", ["flipped weight", "flipped state", "truncated", "empty", "not one", "log"])
def test_a_damaged_one_is_told_and_never_used(tmp_path, caplog, damage):
    path, log = tmp_path / "c.safetensors", tmp_path / "steps.jsonl"
    log.write_text("one\n")
    Checkpoint(path, *make(), 0).save({"epoch": 1}, files=[log])
    log.write_text("one\ntwo\n")  # written since: no damage
    assert Checkpoint(path, *make(), 0).load()[0] == {"epoch": 1}
    held = path.read_bytes()
    if damage == "flipped weight":
        path.write_bytes(held[:-3] + bytes([held[-3] ^ 1]) + held[-2:])
    elif damage == "flipped state":
        path.write_bytes(held.replace(b'epoch\\": 1', b'epoch\\": 2'))
    elif damage == "truncated":
        path.write_bytes(held[: len(held) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "not one":
        path.write_bytes(b"x" * 1000)
    else:
        log.write_text("onE\n")
    model, optimizer = make()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert Checkpoint(path, model, optimizer, 0).load() is None
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert "is broken" in caplog.text
    assert "this stage starts again" in caplog.text


def test_it_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """A checkpoint that is renamed before it is flushed may be empty after a power cut."""
    done = []
    monkeypatch.setattr(module, "flush", lambda path: done.append(path.name))
    real = Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, target: (done.append("rename"), real(self, target))[1])
    (tmp_path / "log").write_text("")
    Checkpoint(tmp_path / "c.safetensors", *make(), 0).save({}, files=[tmp_path / "log"])
    assert done == ["log", "c.tmp", "rename"]
