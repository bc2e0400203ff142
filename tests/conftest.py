"""Tests are offline, single-threaded per worker, and keep their cache to themselves."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["KMP_BLOCKTIME"] = "0"
os.environ["NUMBA_NUM_THREADS"] = "2"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import pytest
import torch

from labeldeconv.graph import AttributedGraph, Split, Texts

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
