"""Bars on a terminal, lines of the log elsewhere, and silence where it is asked for."""

import io
import logging
import re

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


@pytest.fixture
def shown(monkeypatch):
    """What `show` prints, on a terminal or off it."""

    def start(verbosity, terminal):
        out = io.StringIO()
        out.isatty = lambda: terminal  # type: ignore[method-assign]
        monkeypatch.setattr("sys.stderr", out)
        monkeypatch.setattr(progress, "console", Console(file=out, force_terminal=terminal, width=140))
        progress.show(verbosity)
        return out

    return start


def fitted(tmp_path):
    from labeldeconv import fit

    settings = {"encoder": "tiny", "gnn__hidden": 8, "gnn__epochs": 2, "train__epochs": 1}
    fit("planted:60", method="ld", out=tmp_path / "run", **settings)


def test_off_a_terminal_every_stage_is_a_line_with_its_time(shown, tmp_path):
    out = shown(0, terminal=False)
    fitted(tmp_path)
    lines = out.getvalue().splitlines()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d tokens +\d+\.\d s$", lines[1])
    assert [line.split()[2] for line in lines] == [
        "graph",
        "tokens",
        "encode",
        "first",
        "pseudo",
        "hops",
        "train",
        "features",
        "gnn",
    ]
    assert "\x1b" not in out.getvalue()
    fitted(tmp_path)
    assert "now from the cache" in out.getvalue()


def test_off_a_terminal_progress_is_a_line_per_half_minute(shown, monkeypatch):
    out = shown(0, terminal=False)
    now = iter(range(0, 10_000, 12))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(now)))
    with progress.bar("train", total=100) as advance:
        for _ in range(10):
            advance(5, "loss 0.5", tokens=60)
    lines = [line.partition(" train: ")[2] for line in out.getvalue().splitlines()]
    assert lines[0] == "15%, 2.4 s/node, 5.0 tokens/s, 3 min left, loss 0.5"
    assert len(lines) == 3  # 120 seconds


def test_on_a_terminal_lines_stand_above_the_bars(shown, tmp_path):
    out = shown(0, terminal=True)
    fitted(tmp_path)
    for stage in ("tokens", "encode", "first gnn", "hops", "train", "features", "gnn"):
        assert stage in out.getvalue()
    assert "best" in out.getvalue()


def test_quiet_and_verbose(shown, tmp_path):
    out = shown(-1, terminal=True)
    fitted(tmp_path)
    progress.logger.warning("odd")
    assert "odd" in out.getvalue()
    assert "train" not in out.getvalue()
    out = shown(1, terminal=False)
    fitted(tmp_path / "again")
    assert "graph" in out.getvalue()


def test_texts_of_users_are_no_markup(shown):
    out = shown(0, terminal=True)
    progress.logger.info("%s", "[red]x[/nothing]")
    assert "[red]x[/nothing]" in out.getvalue()


@pytest.mark.parametrize(("seconds", "text"), [(40, "40 s"), (700, "12 min"), (12_600, "3.5 h")])
def test_duration(seconds, text):
    assert progress.duration(seconds) == text


def test_a_program_of_ones_own_hears_nothing_unless_it_asks(tmp_path, capsys):
    fitted(tmp_path)
    assert capsys.readouterr() == ("", "")


def test_said_once(caplog):
    caplog.set_level("INFO")
    for _ in range(2):
        progress.say_once("this")
        progress.say_once("that", logging.INFO)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [("WARNING", "this"), ("INFO", "that")]


HOSTILE = "a[/] [red]b[/red] :smile: \x1b[2J\x9b31m\x07\u202e\ud800 c"


def test_what_a_terminal_would_obey_is_shown():
    from labeldeconv.progress import printable

    assert printable(HOSTILE) == "a[/] [red]b[/red] :smile: \\x1b[2J\\x9b31m\\x07\\u202e\\ud800 c"
    assert printable("plain\ttext\nand 日本 🙂") == "plain\ttext\nand 日本 🙂"


def test_a_console_obeys_neither_markup_nor_escapes():
    import io

    from rich.table import Table
    from rich.text import Text

    from labeldeconv.progress import PlainConsole

    out = io.StringIO()
    shown = PlainConsole(file=out, width=200, force_terminal=True, color_system="truecolor")
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    table.add_row(Text(HOSTILE))
    shown.print(table)
    shown.print(HOSTILE, Text(HOSTILE, style="red"))
    text = out.getvalue()
    assert text.count("[red]b[/red] :smile: \\x1b[2J\\x9b31m") == 6
    assert not [c for c in ("\x1b[2J", "\x9b", "\x07", "\u202e", "\ud800") if c in text]
    assert "\x1b[31m" in text  # its own styles it obeys


def test_the_log_and_the_bars_show_escapes(capsys, monkeypatch):
    from labeldeconv.progress import console, logger, show

    show()
    logger.warning("%s", HOSTILE)
    err = capsys.readouterr().err
    assert "\\x1b[2J" in err
    assert "\x1b" not in err
    monkeypatch.setattr("labeldeconv.progress._draws_bars", lambda: True)
    from labeldeconv.progress import bar

    with console.capture() as caught, bar(HOSTILE, 3) as advance:
        advance(1, HOSTILE)
    assert "\x1b[2J" not in caught.get()
