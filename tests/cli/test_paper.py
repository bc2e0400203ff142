"""`labeldeconv paper`: every table and figure has a command, a miniature that runs, and a row in docs/paper.md."""

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from labeldeconv.cli.app import app
from labeldeconv.cli.paper import EXHIBITS
from labeldeconv.errors import ConfigError

DOCS = (Path(__file__).parents[2] / "docs" / "paper.md").read_text(encoding="utf-8")


def invoke(*args):
    result = CliRunner().invoke(app, ["paper", *args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_exhibit_is_listed_with_its_command():
    told = json.loads(invoke("--json"))["exhibits"]
    assert [e["name"] for e in told] == [e.name for e in EXHIBITS]
    assert all(line.startswith("labeldeconv ") for e in told for line in e["miniature"])
    assert "fig:weight" in invoke()


def test_every_command_exists():
    """What is printed can be typed: each word after `labeldeconv` is a command, each option one of its options."""
    root = get_command(app)
    for exhibit in EXHIBITS:
        words = shlex.split(exhibit.command)[1:]
        command = root
        while words and hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        options = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, exhibit.name


def test_docs_have_a_row_with_the_state_of_each():
    for exhibit in EXHIBITS:
        (row,) = re.findall(rf"^\| {exhibit.name} \| {re.escape(exhibit.place)} \|.*$", DOCS, re.MULTILINE)
        assert f"`{exhibit.command}`" in row
        assert exhibit.state in row
        assert exhibit.needs in row


def test_a_miniature_runs_end_to_end(tmp_path):
    text = invoke("--run", "gamma", "complexity", "--out", str(tmp_path))
    assert "gamma over training" in text
    assert "by method" in text
    assert text.count("$ labeldeconv compare") == 1  # shared
    assert (tmp_path / "compare" / "ld-gcn-1" / "result.json").exists()


def test_unknown_names_are_answered():
    with pytest.raises(ConfigError, match="paper 'gama': unknown; did you mean 'gamma'"):
        CliRunner().invoke(app, ["paper", "gama"], catch_exceptions=False)
