"""GrownAdjacency: the same matrix as one built anew from all edges, whatever the options and however it is cut."""

import itertools

import numpy as np
import pytest

from labeldeconv.errors import DataError
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.grown import GrownAdjacency
from labeldeconv.settings.models import AdjacencyConfig
from tests.samples import random_edges

N, M = 30, 6
# To old nodes and to each other, both ways, one twice, a self-loop, to the isolated old node 29, and none of node 35.
NEW = np.array([[30, 3, 31, 31, 32, 33, 33, 33, 29, 7], [0, 30, 30, 0, 31, 33, 32, 32, 33, 34]])
OPTIONS = list(itertools.product(["row", "symmetric"], [False, True], [False, True]))


def old_edges():
    edges = random_edges(N - 1, 80)
    return np.concatenate([edges, [[0] * 12, range(2, 14)]], axis=1)  # node 0 is a hub


def both(normalization, self_loops, undirected, values=False):
    config = AdjacencyConfig(normalization=normalization, self_loops=self_loops, undirected=undirected)
    old, rng = old_edges(), np.random.default_rng(0)
    base, edges = Adjacency.from_edges(old, N, config), np.concatenate([old, NEW], axis=1)
    whole = Adjacency.from_edges(edges, N + M, config)
    if not values:
        return GrownAdjacency.of(base, config, M, NEW), whole
    features = rng.random((edges.shape[1], 3)).astype(np.float32)
    base = base.with_edge_features(old, features[: old.shape[1]])
    grown = GrownAdjacency.of(base, config, M, NEW, features[old.shape[1] :])
    return grown, whole.with_edge_features(edges, features)


@pytest.mark.parametrize(("normalization", "self_loops", "undirected"), OPTIONS)
def test_rows_are_those_of_the_whole_matrix(normalization, self_loops, undirected):
    grown, whole = both(normalization, self_loops, undirected)
    dense = whole.dense()
    for targets in (np.arange(N + M), np.arange(N, N + M), np.array([33, 0, 29]), np.array([5]), np.array([35])):
        sources, rows = grown.rows(targets)
        np.testing.assert_array_equal(sources[: len(targets)], targets)
        assert (rows.num_nodes, rows.num_sources) == (len(targets), len(sources))
        got = np.zeros((len(targets), N + M))
        got[:, sources] = rows.dense()
        np.testing.assert_allclose(got, dense[targets], rtol=1e-6)
        np.testing.assert_array_equal(grown.columns(targets), np.flatnonzero(dense[targets].any(0)))
    np.testing.assert_array_equal(grown.degree(np.arange(N + M)), np.diff(whole.indptr))


@pytest.mark.parametrize(("normalization", "self_loops", "undirected"), OPTIONS)
def test_rows_that_are_not_told_changed_did_not_change(normalization, self_loops, undirected):
    """`changed` are the rows with other entries; with symmetric weights those that read them differ too."""
    grown, whole = both(normalization, self_loops, undirected)
    config = grown.config
    before = np.zeros((N + M, N + M))
    before[:N, :N] = Adjacency.from_edges(old_edges(), N, config).dense()
    differ = np.flatnonzero((before != whole.dense()).any(1))
    told = grown.changed
    if normalization == "symmetric":
        told = np.union1d(told, grown.readers(grown.changed))
    assert set(differ) <= set(told)
    assert set(grown.changed) == set(np.flatnonzero(((before > 0) != (whole.dense() > 0)).any(1)))
    readers = np.flatnonzero(whole.dense()[:, [0, 31]].any(1))
    assert set(readers) <= set(grown.readers(np.array([0, 31])))


@pytest.mark.parametrize(("normalization", "self_loops", "undirected"), OPTIONS)
def test_edge_features(normalization, self_loops, undirected):
    grown, whole = both(normalization, self_loops, undirected, values=True)
    targets = np.array([33, 0, 29, 35, 31, 4])
    sources, rows = grown.rows(targets)
    values, wanted = rows.edge_features.tensor().numpy(), whole.edge_features.tensor().numpy()
    for t, target in enumerate(targets):
        at = slice(rows.indptr[t], rows.indptr[t + 1])
        mine = dict(zip(sources[rows.indices[at]], values[at], strict=True))
        of_whole = slice(whole.indptr[target], whole.indptr[target + 1])
        for column, value in zip(whole.indices[of_whole], wanted[of_whole], strict=True):
            np.testing.assert_allclose(mine[column], value, rtol=1e-5)


@pytest.mark.parametrize("undirected", [False, True])
def test_alone(undirected):
    grown, _ = both("row", True, undirected)
    assert grown.alone.tolist() == [False, False, False, False, False, True]
    config = AdjacencyConfig(undirected=undirected)
    base = Adjacency.from_edges(old_edges(), N, config)
    out_only = GrownAdjacency.of(base, config, 1, np.array([[30], [4]]))
    assert out_only.alone.tolist() == [not undirected]
    assert GrownAdjacency.of(base, config, 2, np.zeros((2, 0))).alone.tolist() == [True, True]


def test_edges_among_old_nodes_are_refused():
    base = Adjacency.from_edges(old_edges(), N)
    for wrong in ([[0], [1]], [[36], [1]], [[-1], [30]]):
        with pytest.raises(DataError, match=r"nodes 0\.\.35 expected, one of 30 or more"):
            GrownAdjacency.of(base, AdjacencyConfig(), M, np.array(wrong))


@pytest.mark.parametrize(("normalization", "self_loops", "undirected"), OPTIONS)
def test_copies_do_not_see_each_other(normalization, self_loops, undirected):
    """Rows, columns, degrees and readers of each copy are those of the graph grown with its edges alone."""
    config = AdjacencyConfig(normalization=normalization, self_loops=self_loops, undirected=undirected)
    base, size = Adjacency.from_edges(old_edges(), N, config), N + M
    each = [NEW, NEW[:, :0], NEW[:, 3:6]]
    apart = [GrownAdjacency.of(base, config, M, edges) for edges in each]
    edges = np.concatenate([edges + k * size for k, edges in enumerate(each)], axis=1)
    copies = GrownAdjacency.of(base, config, M, edges, copies=3)
    everyone = np.arange(3 * size)
    sources, rows = copies.rows(everyone)
    dense = np.zeros((3 * size, 3 * size))
    dense[:, sources] = rows.dense()
    for k, alone in enumerate(apart):
        own = slice(k * size, (k + 1) * size)
        of, one = alone.rows(np.arange(size))
        wanted = np.zeros((size, size))
        wanted[:, of] = one.dense()
        np.testing.assert_allclose(dense[own, own], wanted, rtol=1e-6)
        dense[own, own] = 0
        np.testing.assert_array_equal(copies.degree(everyone[own]), alone.degree(np.arange(size)))
        for nodes in (np.array([0, 31]), np.array([29]), np.arange(N, size)):
            np.testing.assert_array_equal(copies.columns(nodes + k * size), alone.columns(nodes) + k * size)
            np.testing.assert_array_equal(copies.readers(nodes + k * size), alone.readers(nodes) + k * size)
        np.testing.assert_array_equal(copies.alone.reshape(3, M)[k], alone.alone)
    assert not dense.any()
    np.testing.assert_array_equal(copies.inside(copies.new_nodes), np.tile(np.arange(N, size), 3))


def test_edges_between_copies_are_refused():
    config = AdjacencyConfig()
    base = Adjacency.from_edges(old_edges(), N, config)
    with pytest.raises(DataError, match="edges inside one copy expected"):
        GrownAdjacency.of(base, config, M, np.array([[30], [N + M]]), copies=2)
