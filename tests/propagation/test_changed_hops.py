"""Hops of a changed graph: only what can differ is computed, and all is equal to the bit to a fresh computation."""

import numpy as np
import pytest

from labeldeconv.propagation import changed_hops, outofcore
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.changed_hops import EarlierHops, write_changed_hops
from labeldeconv.propagation.kernel import gather
from labeldeconv.propagation.outofcore import write_hops
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.stages.memory_limit import limited
from tests.samples import random_edges

n, c, HOPS = 300, 5, 3
EDGES = random_edges(n, 260)  # below one edge a node, so that changes do not reach everything
CONFIGS = {
    "row": AdjacencyConfig(),
    "row, directed": AdjacencyConfig(undirected=False),
    "symmetric": AdjacencyConfig(normalization="symmetric", self_loops=True),
    "symmetric, directed": AdjacencyConfig(normalization="symmetric", undirected=False),
}


def labels(kind, count, rng):
    """Y (count, c): one-hot, multi-hot or soft."""
    if kind == "classes":
        return np.eye(c, dtype=np.float32)[rng.integers(0, c, count)]
    return (rng.random((count, c)) < 0.4).astype(np.float32) if kind == "labels" else rng.random((count, c), np.float32)


def fresh(edges, Y, config, dtype, folder, hops=HOPS):
    """A-hat, and hops (n, h, c) as a first computation makes them."""
    adj = Adjacency.from_edges(edges, len(Y), config)
    K = np.zeros((len(Y), hops + 1, Y.shape[1]), dtype)
    write_hops(adj, Y, hops, K, folder)
    return adj, K


def changed(edges, Y, kind, rng):
    """Another graph: some labels, edges and nodes are others; its edges and Y, and the rows that nodes had before."""
    m = len(Y)
    gone = rng.choice(m, rng.integers(0, 3), replace=False)
    places = rng.choice(m + 1, rng.integers(0, 3))  # where new nodes come in
    rows = np.insert(np.delete(np.arange(m), gone), np.minimum(places, m - len(gone)), -1)
    Y = np.where(rows[:, None] < 0, labels(kind, len(rows), rng), Y[rows])
    some = rng.choice(len(Y), rng.integers(0, 3), replace=False)
    Y[some] = labels(kind, len(some), rng)
    now = numbers(rows, m)[edges]
    now = now[:, (now < len(rows)).all(0)]
    now = np.delete(now, rng.choice(now.shape[1], rng.integers(0, 3), replace=False), axis=1)
    more = rng.integers(0, len(rows), (2, rng.integers(0, 4)))
    return np.concatenate([now, more], 1), Y, rows


def numbers(rows, m):
    """What nodes 0..m - 1 of then are called now; those that are gone, one more than the last."""
    out = np.full(m, len(rows))
    out[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
    return out


def both(edges, Y, then, rows, config, dtype, folder):
    """What was computed, and the hops of both ways."""
    old_edges, K = then
    adj, expected = fresh(edges, Y, config, dtype, folder, K.shape[1] - 1)
    out = np.zeros_like(expected)
    earlier = EarlierHops(K, numbers(rows, len(K))[old_edges], rows)
    return write_changed_hops(adj, config, edges, Y, out, earlier), out, expected


CASES = [(name, np.float32) for name in CONFIGS] + [("row", np.uint16), ("row, directed", np.uint16)]


@pytest.mark.parametrize("kind", ["classes", "labels", "soft"])
@pytest.mark.parametrize(("config", "dtype"), CASES)
def test_rows_are_those_of_a_fresh_computation_to_the_bit(tmp_path, config, dtype, kind):
    settings = CONFIGS[config]
    rng, used = np.random.default_rng(3), 0
    Y = labels(kind, n, rng)
    _, K = fresh(EDGES, Y, settings, dtype, tmp_path)
    for _ in range(12):
        edges, now, rows = changed(EDGES, Y, kind, rng)
        count, out, expected = both(edges, now, (EDGES, K), rows, settings, dtype, tmp_path)
        if count is None:
            assert not out.any()
            continue
        used += 1
        np.testing.assert_array_equal(out.view(np.uint8), expected.view(np.uint8))
        assert count < len(now) * (HOPS + 1) / 2
    assert used > 6


def test_a_degree_reaches_the_rows_that_read_its_node(tmp_path):
    """A path 0-1-2-3-4-5-...: with symmetric weights an edge at node 3 changes K_1 of 2 and 4, whose entries stay."""
    path = np.stack([np.arange(39), np.arange(1, 40)])
    Y = np.random.default_rng(0).random((40, 2), dtype=np.float32)
    edges = np.concatenate([path, [[3], [39]]], 1)
    for config, expected in ((CONFIGS["symmetric"], {2, 3, 4, 38, 39}), (CONFIGS["row"], {3, 39})):
        _, K = fresh(path, Y, config, np.float32, tmp_path, 1)
        count, out, whole = both(edges, Y, (path, K), np.arange(40), config, np.float32, tmp_path)
        np.testing.assert_array_equal(out, whole)
        assert set(np.flatnonzero((K != whole).any((1, 2)))) == expected
        assert count == len(expected)


def test_labels_alone_touch_what_reads_them(tmp_path):
    """On a path K_1 of the two neighbours, and K_2 of the node and of their other neighbours; nothing else."""
    path = np.stack([np.arange(39), np.arange(1, 40)])
    Y = np.eye(2, dtype=np.float32)[np.arange(40) % 2]
    _, K = fresh(path, Y, CONFIGS["row"], np.uint16, tmp_path, 2)
    now = Y.copy()
    now[20] = now[21]
    count, out, whole = both(path, now, (path, K), np.arange(40), CONFIGS["row"], np.uint16, tmp_path)
    assert count == 1 + 2 + 3
    np.testing.assert_array_equal(out, whole)
    np.testing.assert_array_equal(np.delete(out, [18, 19, 20, 21, 22], 0), np.delete(K, [18, 19, 20, 21, 22], 0))


def test_half_of_the_rows_or_more_are_computed_whole(tmp_path):
    Y = labels("soft", n, np.random.default_rng(0))
    _, K = fresh(EDGES, Y, CONFIGS["row"], np.float32, tmp_path)
    for share, done in ((0.02, True), (0.6, False)):
        now = Y.copy()
        now[: int(share * n)] += 1
        count, out, expected = both(EDGES, now, (EDGES, K), np.arange(n), CONFIGS["row"], np.float32, tmp_path)
        assert (count is not None) == done
        assert np.array_equal(out, expected) == done


def test_sums_in_another_order_are_not_taken(tmp_path, monkeypatch):
    """Other orders of nodes, tiles, other hops or types, and a memory limit: nothing is written."""
    rng = np.random.default_rng(0)
    Y = labels("soft", n, rng)
    adj, K = fresh(EDGES, Y, CONFIGS["row"], np.uint16, tmp_path)

    def done(rows=None, values=K):
        rows = np.arange(n) if rows is None else rows
        given = EarlierHops(values, numbers(rows, n)[EDGES], rows)
        return write_changed_hops(adj, CONFIGS["row"], EDGES, Y, np.zeros_like(K), given) is not None

    assert done()
    assert not done(rows=np.roll(np.arange(n), 1))
    assert not done(rows=np.full(n, -1))
    assert not done(values=K[:, :2])
    assert not done(values=K.astype(np.float32))
    with limited("1GiB"):
        assert not done()
    monkeypatch.setattr(gather, "TILE_BYTES", 64 * 8)
    monkeypatch.setattr(gather, "TILE_EDGES", 0.01)
    assert not done()


def test_labels_that_were_counted_and_now_are_summed_are_computed_whole(tmp_path):
    """25 of 50: fixed point rounds a count and a sum otherwise, so one soft label changes how all are made."""
    star = np.stack([np.arange(1, 51), np.zeros(50, int)])
    Y = np.eye(2, dtype=np.float32)[np.arange(400) % 2]
    _, counted = fresh(star, Y, CONFIGS["row"], np.uint16, tmp_path, 1)
    now = Y.copy()
    now[300] = 0.25  # nobody's neighbour
    count, _, summed = both(star, now, (star, counted), np.arange(400), CONFIGS["row"], np.uint16, tmp_path)
    assert summed[0, 1, 0] != counted[0, 1, 0]
    assert count is None
    for y, K in ((Y, counted), (now, summed)):
        turned = y.copy()
        turned[1], turned[2] = y[2], y[1]  # the hub's row is counted again, or summed though it reads whole numbers
        count, out, expected = both(star, turned, (star, K), np.arange(400), CONFIGS["row"], np.uint16, tmp_path)
        assert count == 3
        np.testing.assert_array_equal(out, expected)


def test_blocks_of_columns_may_be_counted_and_wider_ones_not(tmp_path, monkeypatch):
    """40 labels, some nodes with one before and one behind column 32: how narrow blocks were summed is not known."""
    Y = np.zeros((n, 40), np.float32)
    Y[:, 3] = Y[:, 35] = 1
    assert changed_hops._counted(Y.astype(np.uint16) * 65535) is None
    assert changed_hops._counted(Y[:, :32].astype(np.uint16) * 65535) is True
    Y[0] = 0.5
    assert changed_hops._counted((Y * 65535).astype(np.uint16)) is False
    _, K = fresh(EDGES, Y, CONFIGS["row"], np.uint16, tmp_path)
    now = Y.copy()
    now[1, 7] = 1
    monkeypatch.setattr(outofcore, "BLOCK_BYTES", 2 * 64 * n)  # 32 columns of uint16
    monkeypatch.setattr(outofcore, "free_memory_mib", lambda: 0.0)
    count, out, expected = both(EDGES, now, (EDGES, K), np.arange(n), CONFIGS["row"], np.uint16, tmp_path)
    assert count is not None
    np.testing.assert_array_equal(out, expected)
