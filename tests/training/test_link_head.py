"""The MLP on pairs learns what a dot product cannot, and goes on where it was killed."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from labeldeconv.graph.link_split import link_metrics, split_edges
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.keys import array_key
from labeldeconv.stages.stage import session
from labeldeconv.training import link_head as module
from labeldeconv.training.link_head import HadamardMLP, link_head, scores_of_split
from tests.samples import interrupt


@dataclass(frozen=True, eq=False)
class Given:
    values: np.ndarray

    @property
    def content_key(self):
        return array_key(self.values)


@pytest.fixture(scope="module")
def case():
    """Nodes of four kinds, linked within the kind; one coordinate tells the kind, seven larger ones tell nothing."""
    rng = np.random.default_rng(0)
    kind = np.arange(160) % 4
    x = np.concatenate([np.eye(4)[kind], 5 * rng.normal(size=(160, 7))], axis=1).astype(np.float32)
    ends = rng.integers(0, 160, (2, 9000))
    edges = ends[:, kind[ends[0]] == kind[ends[1]]][:, :900]
    return Given(x), split_edges(edges, 160, 0, 50)


def test_it_learns_which_coordinates_count(case, tmp_path):
    X, split = case
    with session(Cache(tmp_path)):
        trained = link_head(X, split, 16, 30, 0.01, 0)
    x = torch.from_numpy(X.values)
    learned = link_metrics(*scores_of_split(trained.load(x.shape[1]), x, split, "test"))
    fresh = link_metrics(*scores_of_split(HadamardMLP(x.shape[1], 16), x, split, "test"))
    assert learned["mrr"] > 2 * fresh["mrr"]
    val = link_metrics(*scores_of_split(trained.load(x.shape[1]), x, split, "val"))
    assert val["mrr"] == pytest.approx(trained.val)  # the kept epoch is the one that was measured


def test_it_goes_on_where_it_was_killed(case, tmp_path, monkeypatch):
    X, split = case
    with session(Cache(tmp_path / "straight")):
        straight = link_head(X, split, 8, 4, 0.01, 0).weights.read_bytes()
    monkeypatch.setattr(module, "MINUTES", 0.0)
    calls = interrupt(monkeypatch, module, "_epoch", 3)
    with session(Cache(tmp_path / "killed")):
        with pytest.raises(KeyboardInterrupt):
            link_head(X, split, 8, 4, 0.01, 0)
        resumed = link_head(X, split, 8, 4, 0.01, 0)
    with session(Cache(tmp_path / "killed")):
        assert link_head(X, split, 8, 4, 0.01, 0).made.cached
    assert len(calls) == 3 + 2  # epochs 1, 2, the killed one, then 3 and 4
    assert resumed.weights.read_bytes() == straight


def test_scores_in_blocks_are_the_same(case, monkeypatch):
    X, split = case
    head, x = HadamardMLP(11, 4), torch.from_numpy(X.values)
    whole = scores_of_split(head, x, split, "test")
    monkeypatch.setattr(module, "PAIRS", 120)
    for a, b in zip(whole, scores_of_split(head, x, split, "test"), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
