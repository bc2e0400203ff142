"""Hops by ranks, every rank its own rows: equal to those of one process, to the bit."""

import numpy as np
import pytest

from labeldeconv import planted
from labeldeconv.graph.split import Split
from labeldeconv.labels.hops import hops
from labeldeconv.labels.pseudo import pseudo
from labeldeconv.propagation import hop_blocks, outofcore
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.hop_blocks import RowBlock, blocks_fit, write_hops_together
from labeldeconv.propagation.kernel import gather
from labeldeconv.propagation.outofcore import write_hops
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.stages import ranks
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.shared_arrays import rows_of_all
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
            whole = Adjacency.from_edges(EDGES, n, config)
            block = RowBlock.from_edges(EDGES, n, config)
            first, last = whole.indptr[block.rows.start], whole.indptr[block.rows.stop]
            assert block.indices.tolist() == whole.indices[first:last].tolist()
            assert block.indptr.tolist() == (whole.indptr[block.rows.start : block.rows.stop + 1] - first).tolist()
            assert (block.entries, block.num_nodes) == (len(whole.indices), n)
            told, own_rows = [], np.full_like(x, np.nan)
            own_rows[block.rows] = x[block.rows]  # of others a rank needs nothing but what they send
            with rows_of_all(folder / f"{name}.npy", (n, HOPS + 1, d), dtype, block.rows) as own:
                write_hops_together(block, own_rows, HOPS, own, folder, told.append)
            assert sum(told) == (HOPS + 1) * d
        ranks.meet("the end")
        return [[block.rows.start, block.rows.stop], sorted(path.name for path in folder.iterdir())]


def by_tiles(monkeypatch):
    """Let products of the whole be summed by tiles of some sources, and of a block with few entries a row not."""
    monkeypatch.setattr(gather, "TILE_BYTES", 64 * 8)
    monkeypatch.setattr(gather, "TILE_EDGES", 0.2)


@pytest.mark.parametrize("machines", [False, True], ids=["one machine", "machines"])
@pytest.mark.parametrize("columns", ["at once", "in blocks"])
def test_hops_of_three_ranks_are_those_of_one_process(tmp_path, monkeypatch, columns, machines):
    monkeypatch.setattr(hop_blocks, "SENT_BYTES", 5000)  # rows travel in pieces
    if columns == "in blocks":
        monkeypatch.setattr(outofcore, "BLOCK_BYTES", 2 * 64 * n)  # 16 columns of float32, 32 of uint16
        monkeypatch.setattr(outofcore, "free_memory_mib", lambda: 0.0)
    by_tiles(monkeypatch)
    ended = launch(by_ranks, tmp_path / "ranks", tmp_path, world=3, machines=machines)
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


def star_by_ranks(folder):
    """A star has half of its entries in one row: of five ranks some have no row at all, and no node is isolated."""
    edges = np.stack([np.zeros(8, int), np.arange(1, 9)])
    with ranks.joined():
        block = RowBlock.from_edges(edges, 9, AdjacencyConfig())
        x = np.arange(18, dtype=np.float32).reshape(9, 2) + 0.5
        with rows_of_all(folder / "K.npy", (9, 2, 2), np.float32, block.rows) as own:
            write_hops_together(block, x, 1, own, folder)
        return block.rows.stop - block.rows.start


@pytest.mark.parametrize("machines", [False, True], ids=["one machine", "machines"])
def test_ranks_without_a_row_come_along(tmp_path, machines):
    ended = launch(star_by_ranks, tmp_path / "ranks", tmp_path, world=5, machines=machines)
    counts = [rank.value for rank in ended]
    assert (sum(counts), min(counts)) == (9, 0)
    x = np.arange(18, dtype=np.float32).reshape(9, 2) + 0.5
    expected = np.stack([x, np.concatenate([x[1:].mean(0, keepdims=True), x[:1].repeat(8, 0)])], 1)
    np.testing.assert_allclose(np.load(tmp_path / "K.npy"), expected)


def stage_by_ranks(cache):
    """K of the stage `hops`, by as many ranks as there are."""
    graph = planted(60).graph
    graph = graph.with_split(Split(np.zeros(60, np.int8)))  # so that Y is of labels alone
    with ranks.joined(), session(Cache(cache)):
        return hops(pseudo(None, graph), graph, AdjacencyConfig(), 2).values.tolist()


@pytest.mark.parametrize("machines", [False, True], ids=["one machine", "machines"])
def test_the_stage_is_made_by_all_ranks(tmp_path, monkeypatch, machines):
    monkeypatch.setattr("labeldeconv.labels.hops.write_hops_together", noted(tmp_path / "calls"))
    zero, one = launch(stage_by_ranks, tmp_path / "ranks", tmp_path / "cache", machines=machines)
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


def test_ranks_make_hops_where_their_machine_has_room_for_their_blocks(monkeypatch):
    """On two machines a rank has half of the entries; two ranks on one machine have all of them, and more counts."""
    whole = Adjacency.building_bytes(1000, 50_000, AdjacencyConfig()) / 2**20
    monkeypatch.setenv("WORLD_SIZE", "2")
    for local, free, fits in (
        ("1", whole, True),
        ("1", 0.8 * whole, False),
        ("2", 1.5 * whole, False),
        ("2", 2 * whole, True),
    ):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
        monkeypatch.setattr(hop_blocks, "free_memory_mib", lambda free=free: free)
        assert blocks_fit(1000, 50_000, AdjacencyConfig()) is fits, (local, free)
