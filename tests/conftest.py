"""Tests are offline, single-threaded per worker, and keep their cache to themselves."""

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["KMP_BLOCKTIME"] = "0"
os.environ["NUMBA_NUM_THREADS"] = "2"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import pytest
import torch

from labeldeconv.config import EncoderConfig
from labeldeconv.encoders.text import load_text_encoder
from labeldeconv.encoders.tokens import TokenStore, write_tokens
from labeldeconv.graph import AttributedGraph
from labeldeconv.split import Split
from labeldeconv.texts import Texts

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELDECONV_CACHE", str(tmp_path / "cache"))


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


def random_edges(n: int, e: int, seed: int = 0) -> np.ndarray:
    """(2, e) random edges, duplicates and self-loops included."""
    return np.random.default_rng(seed).integers(0, n, (2, e))


def letter_store(n: int, folder: Path) -> TokenStore:
    """Tokens of n short texts, one letter of three repeated, for the tiny encoder; written to a new folder."""
    encoder = load_text_encoder(EncoderConfig(name="tiny"))
    folder.mkdir()
    write_tokens(encoder, Texts.from_strings("abc"[i % 3] * (3 + i % 5) for i in range(n)), 32, folder)
    return TokenStore.open(folder, encoder.pad_id)


@pytest.fixture(scope="session")
def comparison(tmp_path_factory):
    """Run directories of pne, wo-ld and ld with GCN over two seeds on planted:80, made once per worker."""
    from labeldeconv import compare, load_config
    from labeldeconv.record import Cache

    folder = tmp_path_factory.mktemp("comparison")
    settings = {"data": "planted:80", "encoder.name": "tiny", "encoder.max_tokens": 16, "gnn.hidden": 8}
    config = load_config(None, {**settings, "gnn.epochs": 5, "labels.hops": 2, "train.epochs": 2})
    compare(config, ["pne", "wo-ld", "ld"], ["gcn"], 2, folder / "out", cache=Cache(folder / "cache"))
    return folder / "out"


@pytest.fixture(scope="session")
def ld_run(comparison):
    """The run of ld with seed 0 in it."""
    return comparison / "ld-gcn-0"
