"""Every benchmark can be started: what it imports is there. None of them is run here."""

import importlib
import multiprocessing
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "benchmarks"


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
