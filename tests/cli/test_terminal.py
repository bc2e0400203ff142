"""Tables on the terminal."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from labeldeconv.cli.terminal import comparison_table, print_table
from labeldeconv.runs.compare import Comparison, Row
from labeldeconv.runs.spread import Spread


def test_markup_in_texts_is_shown_as_it_is(capsys):
    print_table("t", ["text"], [["[red]x[/nothing] \x1b[31m"]])
    assert "[red]x[/nothing]" in capsys.readouterr().out


def test_no_cell_of_a_comparison_is_cut_on_80_columns():
    score = Spread.of([0.25, 0.125])
    row = Row("joint-sage", "revgat", {}, score, score, 2, 12345.6, 11111.0, 10.3, {}, [], 0.375, 1024.0, 155555.0)
    rows = [row, replace(row, gnn="gcn")]
    out = io.StringIO()
    Console(file=out, width=80).print(comparison_table(Comparison("data", "accuracy", True, rows, Path())))
    told = out.getvalue()
    assert "…" not in told
    assert "revgat" in told
    assert all(word in told for word in ("12345.6", "11111", "10.3", "1024", "155555", "0.375", "18.75", "8.84"))


def test_json_has_no_nan_and_no_control_characters(capsys):
    import json

    from labeldeconv.cli.terminal import print_json

    print_json({"a": float("nan"), "b": [1.5, float("inf")], "c": {1: (float("-inf"),)}, "d": "\x1b\x9b\x7f\ud800é"})
    text = capsys.readouterr().out
    assert json.loads(text, parse_constant=pytest.fail) == {
        "a": None, "b": [1.5, None], "c": {"1": [None]}, "d": "\x1b\x9b\x7f\ud800é",
    }  # fmt: skip
    assert not [c for c in "\x1b\x9b\x7f\ud800" if c in text]
    assert "é" in text
