"""The notebooks of docs/notebooks run, print what they say, and hold no path of a machine: `make docs`."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


def outputs(book: dict) -> list[str]:
    """What every cell of code printed."""
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    return ["".join("".join(part["text"]) for part in cell["outputs"]) for cell in cells]


def without_numbers(text: str) -> str:
    """Text without what differs between machines: digits and spaces, and the class of a node in a small run."""
    return re.sub(r"[\d\s.-]+", "", re.sub(r": (bio|logic|ml), ", ": CLASS, ", text))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_clean(path):
    text = path.read_text(encoding="utf-8")
    book = json.loads(text)
    assert (book["nbformat"], book["cells"][0]["cell_type"]) == (4, "markdown")
    assert all(cell["outputs"] for cell in book["cells"] if cell["cell_type"] == "code")
    assert not re.search(r"/(tmp|root|home|Users)/|\\\\Users\\\\", text)
    assert len(text) < 30_000


@pytest.mark.docs
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_and_print_what_they_show(path, tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("run_notebooks", DOCS / "run_notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.chdir(tmp_path)
    shown = outputs(json.loads(path.read_text(encoding="utf-8")))
    printed = outputs(module.executed(path))
    assert [without_numbers(text) for text in printed] == [without_numbers(text) for text in shown]
