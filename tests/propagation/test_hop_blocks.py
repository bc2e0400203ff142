"""Hops by ranks, every rank its own rows: equal to those of one process, to the bit."""

import numpy as np
import pytest

from labeldeconv import planted
from labeldeconv.graph.split import Split
from labeldeconv.labels.hops import hops
from labeldeconv.labels.pseudo import pseudo
from labeldeconv.propagation import hop_blocks, outofcore
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.hop_blocks import fits_every_rank, rows_of_rank, shared_array, write_hops_together
from labeldeconv.propagation.kernel import gather
from labeldeconv.propagation.outofcore import write_hops
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.stages import ranks
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.stage import session
from tests.launched import launch
from tests.samples import random_edges

n, d, HOPS = 70, 37, 3
EDGES = np.concatenate([random_edges(n, 200), np.stack([np.zeros(n, int), np.arange(n)])], 1)  # node 0 is a hub
SOFT = np.random.default_rng(0).random((n, d), dtype=np.float32)
ONE_HOT = np.eye(d, dtype=np.float32)[np.arange(n) % d]
SYMMETRIC = AdjacencyConfig(normalization="symmetric", self_loops=True)
CASES = {
    "uint16": (SOFT, np.uint16, AdjacencyConfig()),
    "classes, uint16": (ONE_HOT, np.uint16, AdjacencyConfig()),
    "classes, float32": (ONE_HOT, np.float32, AdjacencyConfig(undirected=False)),
    "symmetric": (SOFT - 0.5, np.float32, SYMMETRIC),
    "features": (SOFT.astype(np.float16), np.float16, SYMMETRIC),
}


def by_ranks(folder):
    """Every case in a file of its own; gives the rows of this rank, and what other files are left."""
    with ranks.joined():
        for name, (x, dtype, config) in CASES.items():
            adj = Adjacency.from_edges(EDGES, n, config)
            out = shared_array(folder / f"{name}.npy", (n, HOPS + 1, d), np.dtype(dtype))
            told = []
            write_hops_together(adj, x, HOPS, out, folder, told.append)
            assert sum(told) == (HOPS + 1) * d
        return [rows_of_rank(adj), sorted(path.name for path in folder.iterdir())]


def by_tiles(monkeypatch):
    """Let products of the whole be summed by tiles of some sources, and of a block with few entries a row not."""
    monkeypatch.setattr(gather, "TILE_BYTES", 64 * 8)
    monkeypatch.setattr(gather, "TILE_EDGES", 0.2)


@pytest.mark.parametrize("columns", ["at once", "in blocks"])
def test_hops_of_three_ranks_are_those_of_one_process(tmp_path, monkeypatch, columns):
    if columns == "in blocks":
        monkeypatch.setattr(outofcore, "BLOCK_BYTES", 2 * 64 * n)  # 16 columns of float32, 32 of uint16
        monkeypatch.setattr(outofcore, "free_memory_mib", lambda: 0.0)
    by_tiles(monkeypatch)
    ended = launch(by_ranks, tmp_path / "ranks", tmp_path, world=3)
    assert [rank.code for rank in ended] == [0, 0, 0]
    rows = [rank.value[0] for rank in ended]
    assert [rows[0][0], rows[0][1], rows[1][1], rows[2][1]] == [0, rows[1][0], rows[2][0], n]
    assert rows[0][1] < n / 3  # the hub has many entries
    assert ended[0].value[1] == sorted(["ranks", *(f"{name}.npy" for name in CASES)])
    for name, (x, dtype, config) in CASES.items():
        expected = np.zeros((n, HOPS + 1, d), dtype)
        write_hops(Adjacency.from_edges(EDGES, n, config), x, HOPS, expected, tmp_path)
        found = np.load(tmp_path / f"{name}.npy")
        assert expected[:, HOPS].any()
        np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8), err_msg=name)


@pytest.mark.parametrize("x", [SOFT, (SOFT * 65535).astype(np.uint16)])
def test_rows_of_a_product_are_those_of_the_whole(monkeypatch, x):
    """Also where the whole is summed by tiles of sources and a block alone would not be."""
    by_tiles(monkeypatch)
    adj = Adjacency.from_edges(EDGES, n)
    whole = adj @ x
    for cut in (0, 1, 20, n):
        parts = [adj.times_rows(lo, hi, x) for lo, hi in ((0, cut), (cut, n))]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def stage_by_ranks(cache):
    """K of the stage `hops`, by as many ranks as there are."""
    graph = planted(60).graph
    graph = graph.with_split(Split(np.zeros(60, np.int8)))  # so that Y is of labels alone
    with ranks.joined(), session(Cache(cache)):
        return hops(pseudo(None, graph), graph, AdjacencyConfig(), 2).values.tolist()


def test_the_stage_is_made_by_all_ranks(tmp_path, monkeypatch):
    monkeypatch.setattr("labeldeconv.labels.hops.write_hops_together", noted(tmp_path / "calls"))
    zero, one = launch(stage_by_ranks, tmp_path / "ranks", tmp_path / "cache")
    assert (zero.code, one.code) == (0, 0)
    assert sorted(path.name for path in (tmp_path / "calls").iterdir()) == ["0", "1"]
    assert zero.value == one.value == stage_by_ranks(tmp_path / "alone")


def noted(folder):
    """write_hops_together that leaves a file named by the rank."""
    folder.mkdir()

    def write(*args):
        (folder / str(ranks.rank())).touch()
        return write_hops_together(*args)

    return write


def test_ranks_share_hops_on_one_machine_with_room_for_all(monkeypatch):
    free = Adjacency.building_bytes(1000, 5000, AdjacencyConfig()) / 2**20
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(hop_blocks, "free_memory_mib", lambda: 2.1 * free)
    for local, fits in (("2", True), ("1", False)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
        assert fits_every_rank(1000, 5000, AdjacencyConfig()) is fits
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(hop_blocks, "free_memory_mib", lambda: 1.9 * free)
    assert not fits_every_rank(1000, 5000, AdjacencyConfig())
