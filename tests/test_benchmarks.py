"""Every benchmark can be started as documents say: what it imports is there, and its options. None is run here."""

import importlib
import multiprocessing
import re
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"


def imported(names):
    """What went wrong, by name."""
    sys.path.insert(0, str(FOLDER))
    wrong = {}
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            wrong[name] = repr(error)
    return wrong


def test_what_benchmarks_import_is_there():
    names = sorted(path.stem for path in FOLDER.glob("*.py"))
    assert len(names) > 20
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads; it has torch already
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as apart:
            assert apart.submit(imported, names).result(timeout=120) == {}


DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "Makefile", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"(?:benchmarks/(?=\w+\.py)|-m benchmarks\.)(\w+)(?:\.py)?((?: +[^`|#\n(]*)?)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documented_benchmarks_have_their_options(document):
    """A table of docs/performance.md once named an option whose code was never kept."""
    for name, rest in COMMAND.findall(document.read_text()):
        source = (FOLDER / f"{name}.py").read_text()
        unknown = [option for option in re.findall(r"(?<!\S)--[a-z-]+", rest) if f'"{option}"' not in source]
        assert not unknown, f"{document.name}: {name}.py {unknown}"
