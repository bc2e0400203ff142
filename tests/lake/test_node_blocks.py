"""Hops in blocks equal our own propagation, whatever the number of blocks and whoever is a hub."""

import numpy as np
import pytest

from labeldeconv.labels.hops import write_hop_labels
from labeldeconv.lake import node_blocks as module
from labeldeconv.lake.node_blocks import (
    BlockForm,
    blocks_for,
    finish,
    hub_degree,
    pack_entries,
    partial_sums,
    scaled_sources,
)
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.fixed_point import dequantize, quantize
from labeldeconv.settings.models import AdjacencyConfig
from tests.samples import random_edges


def hops_in_blocks(form: BlockForm, adj: Adjacency, Y: np.ndarray, hops: int, hubs: np.ndarray) -> np.ndarray:
    """K (n, hops + 1, c) as a cluster would make it, one block after the other."""
    degree = np.diff(adj.indptr)
    targets, sources = np.repeat(np.arange(form.nodes), degree), adj.indices.astype(np.int64)
    home = np.where(np.isin(sources, hubs), targets, sources) % form.blocks
    K = [dequantize(quantize(Y)) if form.fixed else Y]
    for hop in range(1, hops + 1):
        x = K[-1]
        pages: dict[int, list[tuple[bytes, bytes]]] = {b: [] for b in range(form.blocks)}
        for block in range(form.blocks):
            here, own = home == block, np.arange(block, form.nodes, form.blocks)
            for packed in pack_entries(form, sources[here], targets[here]):
                ends = [np.frombuffer(part, form.numbers).astype(np.int64) for part in packed]
                own_x = scaled_sources(form, x[own], degree[own])
                hub_x = scaled_sources(form, x[hubs], degree[hubs])
                for place, numbers, sums in partial_sums(form, block, *ends, own_x, hubs, hub_x):
                    pages[place].append((numbers, sums))
        following = np.empty_like(x)
        for block in range(form.blocks):
            rows = np.random.default_rng(hop).permutation(np.arange(block, form.nodes, form.blocks))
            following[rows] = finish(form, rows, degree[rows], pages[block], hop)
        K.append(following)
    return np.stack(K, 1)


def graph(n: int = 90, e: int = 600) -> np.ndarray:
    """Random edges, a hub that most nodes point at and that points back, and isolated nodes at the end."""
    edges = random_edges(n - 5, e, seed=3)
    star = np.stack([np.arange(n - 5), np.zeros(n - 5, int)])
    return np.concatenate([edges, star, star[::-1]], axis=1)


def labels(kind: str, n: int = 90, c: int = 7) -> np.ndarray:
    rng = np.random.default_rng(5)
    if kind == "classes":
        return np.eye(c + 1, c, dtype=np.float32)[rng.integers(0, c + 1, n)]  # the last class: no label
    return rng.random((n, c), np.float32) if kind == "soft" else (rng.random((n, c)) < 0.3).astype(np.float32)


@pytest.mark.parametrize("number", [1, 3, 8])
@pytest.mark.parametrize("kind", ["classes", "soft", "several"])
@pytest.mark.parametrize("config", [{}, {"normalization": "symmetric", "self_loops": True}, {"undirected": False}])
def test_hops_in_blocks_equal_propagation(number, kind, config, tmp_path):
    adjacency = AdjacencyConfig(**config)
    adj, Y = Adjacency.from_edges(graph(), 90, adjacency), labels(kind)
    form = BlockForm(number, 90, 7, symmetric=adjacency.normalization == "symmetric")
    for hubs in (np.empty(0, int), np.array([0, 4])):
        K = hops_in_blocks(form, adj, Y, 3, hubs)
        np.testing.assert_allclose(K, write_hop_labels(adj, Y, 3, tmp_path / "K.npy", "float32"), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["classes", "soft", "several"])
def test_fixed_point_is_that_of_the_kernel_to_the_bit(kind, tmp_path):
    adj, Y = Adjacency.from_edges(graph(), 90), labels(kind)
    form = BlockForm(4, 90, 7, fixed=True, hard=kind == "classes")
    K = hops_in_blocks(form, adj, Y, 3, np.array([0]))
    np.testing.assert_array_equal(quantize(K), write_hop_labels(adj, Y, 3, tmp_path / "K.npy"))


def test_shares_of_classes_round_as_the_kernel_counts_them(tmp_path):
    """25 of 50 is 32767.5, which two ways to multiply in float32 take to different sides."""
    shares = [(k, d) for d in (2, 6, 50, 86, 100) for k in range(d + 1)]
    leaves = np.arange(200)  # the first half of one class, the second of the other
    entries = [(leaf, 200 + i) for i, (k, d) in enumerate(shares) for leaf in (*range(k), *range(100, 100 + d - k))]
    Y = np.eye(2, dtype=np.float32)[np.concatenate([leaves // 100, np.zeros(len(shares), int)])]
    adj = Adjacency.from_edges(np.array(entries).T, len(Y), AdjacencyConfig(undirected=False))
    form = BlockForm(2, len(Y), 2, fixed=True, hard=True)
    K = hops_in_blocks(form, adj, Y, 1, np.empty(0, int))
    np.testing.assert_array_equal(quantize(K), write_hop_labels(adj, Y, 1, tmp_path / "K.npy"))


def test_pages_and_segments_change_nothing(monkeypatch, tmp_path):
    """Pages of some rows and sums of three entries at most: one target then stands in several sums of a page."""
    adj, Y = Adjacency.from_edges(graph(), 90), labels("soft")
    whole = hops_in_blocks(BlockForm(3, 90, 7), adj, Y, 2, np.array([0]))
    monkeypatch.setattr(module, "PAGE_BYTES", 256)
    monkeypatch.setattr(module, "SUM_BYTES", 900)
    monkeypatch.setattr(module, "SEGMENT", 3)
    np.testing.assert_allclose(hops_in_blocks(BlockForm(3, 90, 7), adj, Y, 2, np.array([0])), whole, rtol=0, atol=3e-7)


def test_one_row_per_target_travels_and_not_one_per_entry():
    form = BlockForm(2, 6, 1)
    sources, targets = np.array([0, 2, 4, 0, 2]), np.array([1, 1, 1, 3, 2])
    (packed,) = pack_entries(form, sources, targets)
    ends = [np.frombuffer(part, form.numbers).astype(np.int64) for part in packed]
    assert ends[1].tolist() == [2, 1, 1, 1, 3]  # by block 0 (even), 1 (odd), then by target
    x = np.array([[1.0], [10.0], [100.0]])
    found = {
        place: (np.frombuffer(numbers, "<u4").tolist(), np.frombuffer(sums, "<f4").tolist())
        for place, numbers, sums in partial_sums(form, 0, *ends, x, np.empty(0, int), np.empty((0, 1)))
    }
    assert found == {0: ([2], [10.0]), 1: ([1, 3], [111.0, 1.0])}


def test_blocks_are_so_many_that_one_fits():
    assert blocks_for(1000, 9, 2, 4000) == 10
    assert blocks_for(10, 9, 2, 4000) == 2
    assert BlockForm(4, 10, 1).size(1) == 3
    assert BlockForm(4, 10, 1).size(3) == 2
    assert BlockForm(4, 2**32 + 1, 1).numbers == "<i8"


def test_at_most_four_hubs_a_block():
    assert hub_degree(8000, 10) == 200
    assert hub_degree(3, 10) == 2
