"""Hop features: propagated out of core into float16, read back as float32 to the bit."""

from itertools import pairwise

import numpy as np
import pytest

from labeldeconv.propagation.adjacency import Adjacency, propagate
from labeldeconv.propagation.hop_blocks import RowBlock
from labeldeconv.propagation.hop_rows import hop_features, read_rows, shared_hop_features
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.stages import ranks
from tests.launched import launch
from tests.samples import random_edges

n, d = 40, 5
EDGES = random_edges(n, 150)
X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)


def test_hop_features_are_float16_on_disk(tmp_path):
    adj = Adjacency.from_edges(EDGES, n)
    rows = hop_features(X.astype(np.float16), adj, 3, tmp_path)
    expected = np.stack(list(propagate(adj, X.astype(np.float16).astype(np.float32), 3)), axis=1)
    np.testing.assert_allclose(rows, expected, atol=2e-3)
    assert rows.dtype == np.float16
    assert not list(tmp_path.iterdir())


def by_ranks(folder, together):
    with ranks.joined():
        block = RowBlock.from_edges(EDGES, n, AdjacencyConfig()) if together else None
        adj = Adjacency.from_edges(EDGES, n) if ranks.leads() and not together else Adjacency.identity(n)
        rows = shared_hop_features(X.astype(np.float16), adj, 2, folder, block)
        ranks.meet("the end")
        return [np.asarray(rows, np.float64).tolist(), [p.name for p in folder.rglob("*.npy")]]


@pytest.mark.parametrize("machines", [False, True], ids=["one machine", "machines"])
@pytest.mark.parametrize("together", [False, True])
def test_ranks_have_the_hop_features_of_one_process(tmp_path, machines, together):
    """Made by rank 0, or by all; the file stays for machines that have it open, and goes with what the stage leaves."""
    (tmp_path / "alone").mkdir()
    alone = hop_features(X.astype(np.float16), Adjacency.from_edges(EDGES, n), 2, tmp_path / "alone")
    (tmp_path / "stage").mkdir()
    for ended in launch(by_ranks, tmp_path / "ranks", tmp_path / "stage", together, machines=machines):
        assert ended.code == 0
        np.testing.assert_array_equal(ended.value[0], alone)
        assert ended.value[1] == ["hop_features.tmp.npy"] * machines


def test_rows_are_widened_exactly(tmp_path):
    """Every float16 there is, from a file, by two routes: subnormal, infinite and missing values too."""
    path = tmp_path / "rows.npy"
    np.save(path, np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(512, 2, 64))
    rows = np.load(path, mmap_mode="r")
    ids = np.random.default_rng(0).permutation(512)
    np.testing.assert_array_equal(read_rows(rows, ids).view(np.uint32) >> 31, (rows[ids].view(np.uint16) >> 15))
    np.testing.assert_array_equal(read_rows(rows, ids), rows[ids].astype(np.float32))
    assert read_rows(rows, ids[:0]).shape == (0, 2, 64)
    many = np.tile(ids, 20)  # enough for a second thread
    np.testing.assert_array_equal(read_rows(rows, many), rows[many].astype(np.float32))


def test_chunks_of_rows_cover_all_of_them(monkeypatch):
    """In as many chunks as two threads would have, one after the other."""
    from labeldeconv.propagation import hop_rows as module

    seen = []

    def run_chunks(work, bounds, alone):
        seen.append((bounds.tolist(), alone))
        for lo, hi in pairwise(bounds):
            work(lo, hi)

    monkeypatch.setattr(module, "run_chunks", run_chunks)
    rows = np.random.default_rng(0).normal(size=(90, 2, 3)).astype(np.float16)
    np.testing.assert_array_equal(read_rows(rows, np.arange(90)[::-1]), rows[::-1].astype(np.float32))
    ((bounds, alone),) = seen
    assert (bounds[0], bounds[-1], alone) == (0, 90, True)
