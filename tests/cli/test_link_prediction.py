"""`labeldeconv links`, as docs/links.md has it."""

import json
import re
from pathlib import Path

from typer.testing import CliRunner

from labeldeconv.cli.app import app

DOCS = Path(__file__).parents[2] / "docs" / "links.md"


def test_the_example_of_the_docs(ld_run, tmp_path):
    """The command runs as it stands, but for the run and the folder; its table has the rows and columns shown."""
    text = DOCS.read_text(encoding="utf-8")
    (command,) = re.findall(r"^    labeldeconv (links .*)$", text, re.MULTILINE)
    words = command.replace("runs/planted", str(ld_run)).replace("planted-links", str(tmp_path / "out")).split()
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    for word in ("dot", "cosine", "mlp", "val mrr", "hits@50", "the features have seen: texts, train labels and all"):
        assert word in told.output
        assert word in text
    held = json.loads((tmp_path / "out" / "links.json").read_text())
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout) == held


def test_errors_are_one_line(ld_run):
    told = CliRunner().invoke(app, ["links", str(ld_run), "--negatives", "easy"])
    assert "negatives 'easy': uniform or hard expected" in str(told.exception)
