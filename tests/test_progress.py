"""Bars: speed in words, a terminal that sees them, silence elsewhere."""

import io

import pytest
from rich.console import Console

from labeldeconv import progress


@pytest.fixture
def terminal(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "console", Console(file=out, force_terminal=True, width=140))
    return out


@pytest.mark.parametrize(
    ("speed", "unit", "text"),
    [(1234.4, "nodes", "1,234 nodes/s"), (2.5, "epochs", "2.5 epochs/s"), (0.025, "epochs", "40.0 s/epoch")],
)
def test_rate(speed, unit, text):
    assert progress.rate(speed, unit) == text


def test_bar_shows_speed_tokens_time_and_note(terminal):
    with progress.bar("train", total=100, done=40) as advance:
        for _ in range(3):
            advance(20, "epoch 1/2 loss 0.5", tokens=700)
    shown = terminal.getvalue()
    assert "train" in shown
    assert "40%" in shown  # what was done before
    assert "100%" in shown
    assert "nodes/s" in shown
    assert "tokens/s" in shown
    assert "epoch 1/2 loss 0.5" in shown
    assert "0:00:00" in shown  # time left


def test_silence_off_a_terminal(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(progress, "console", Console(file=out, force_terminal=True))
    with progress.bar("train", total=10) as advance:
        advance(10, "done", tokens=5)
    progress.say("hello")
    assert out.getvalue() == ""


def test_fit_tells_its_stages(terminal, tmp_path):
    from labeldeconv import fit

    settings = {"encoder": "tiny", "gnn__hidden": 8, "gnn__epochs": 2, "train__epochs": 1}
    fit("planted:60", method="ld", out=tmp_path / "run", **settings)
    shown = terminal.getvalue()
    for stage in ("tokens", "encode", "first gnn", "hops", "train", "features", "gnn"):
        assert stage in shown
    assert "best" in shown
    assert "cache" not in shown
    fit("planted:60", method="ld", out=tmp_path / "run", **settings)
    assert "now from the cache" in terminal.getvalue()
