"""Tests are offline, single-threaded per worker, and keep their cache to themselves."""

import logging
import os
import shutil

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["KMP_BLOCKTIME"] = "0"
os.environ["NUMBA_NUM_THREADS"] = "2"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import pytest
import torch

from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.texts import Texts

torch.set_num_threads(1)
torch.manual_seed(0)  # for what is drawn while tests are collected


@pytest.fixture(autouse=True)
def _own_seed():
    """What a test draws from torch's global generator is the same in every run, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELDECONV_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True, scope="session")
def _named_choices():
    """Hundreds of tests fit without naming a method or a GNN: they get LD and a GCN, since to choose takes seconds.

    `raced_default` gives a test the default of users.
    """
    from labeldeconv.runs import asked

    before, asked.OF_FIT = asked.OF_FIT, {"method": "ld", "gnn.name": "gcn"}
    yield before
    asked.OF_FIT = before


@pytest.fixture
def raced_default(monkeypatch, _named_choices):
    """`fit` as users have it: method and GNN are chosen unless they are named."""
    from labeldeconv.runs import asked

    monkeypatch.setattr(asked, "OF_FIT", _named_choices)


@pytest.fixture(autouse=True)
def _own_log():
    """The command line shows the log; every test starts as if nobody had, fixtures of its module included."""
    from labeldeconv.progress import _said, _wanted, logger

    logger.handlers, logger.propagate = [], True
    logger.setLevel(logging.NOTSET)
    _wanted.update(bars=True)
    _said.clear()


@pytest.fixture(scope="session")
def family(tmp_path_factory):
    """The folder of a family of encoders (tests/encoders/families.py) by its name, written once per worker."""
    from tests.encoders.families import save_family

    place = tmp_path_factory.mktemp("families")
    return lambda name: str(place / name if (place / name).exists() else save_family(name, place / name))


@pytest.fixture
def small_graph() -> AttributedGraph:
    """Six nodes, a path 0-1-2-3-4 and the isolated node 5; three classes."""
    return AttributedGraph(
        texts=Texts.from_strings(["red apple", "green pear", "blau büßt", "", "gold 日本", "alone"]),
        edges=np.array([[0, 1, 2, 3], [1, 2, 3, 4]]),
        labels=np.array([0, 1, 2, 0, 1, 2]),
        split=Split.from_ids(6, np.array([0, 1, 2]), np.array([3, 4]), np.array([5])),
        class_names=["a", "b", "c"],
        name="small",
    )


@pytest.fixture(scope="session")
def comparison(tmp_path_factory):
    """Run directories of pne, wo-ld and ld with GCN over two seeds on planted:80, made once per worker."""
    from labeldeconv import compare

    folder = tmp_path_factory.mktemp("comparison")
    quick = {"encoder": "tiny", "encoder__max_tokens": 16, "gnn__hidden": 8, "gnn__epochs": 5, "train__epochs": 2}
    methods = ["pne", "wo-ld", "ld"]
    compare("planted:80", methods=methods, seeds=2, out=folder / "out", cache=folder / "cache", labels__hops=2, **quick)
    return folder / "out"


@pytest.fixture(scope="session")
def ld_run(comparison):
    """The run of ld with seed 0 in it."""
    return comparison / "ld-gcn-0"


@pytest.fixture(scope="session")
def chromium():
    """Debian's chromium, headless, for tests marked `browser`."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no chromium on this system")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=path, args=["--no-sandbox"])  # root in a container has no sandbox
        yield browser
        browser.close()
