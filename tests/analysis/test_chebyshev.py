"""Chebyshev moments against traces, and the lower end of a spectrum against the whole one."""

import numpy as np
import pytest

from labeldeconv.analysis.chebyshev import binned, chebyshev_moments, lowest_eigenvalue
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import AdjacencyConfig
from tests.analysis.closed_forms import bipartite, complete, cycle, path, symmetric
from tests.samples import random_edges


def test_moments_are_traces_of_chebyshev_polynomials():
    adj = Adjacency.from_edges(random_edges(30, 60), 30, AdjacencyConfig(normalization="symmetric"))
    x = np.random.default_rng(0).standard_normal((30, 2))
    values, U = np.linalg.eigh(adj.dense())
    energy = ((U.T @ x) ** 2).sum(1)
    theta = np.arccos(np.clip(values, -1, 1))
    for count in (6, 7):
        expected = [(energy * np.cos(k * theta)).sum() for k in range(count)]
        assert chebyshev_moments(adj, x, count) == pytest.approx(expected, abs=1e-4)
    assert binned(chebyshev_moments(adj, x, 40), np.linspace(-1, 1, 11)).sum() == pytest.approx(energy.sum())


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("graph", [path(10), complete(7), bipartite(3, 4), (random_edges(300, 900), 300)])
def test_lanczos_finds_the_lowest_eigenvalue(graph, self_loops):
    adj = symmetric(*graph, self_loops)
    found = lowest_eigenvalue(adj, np.random.default_rng(0).standard_normal(adj.num_nodes))
    lowest = float(np.linalg.eigvalsh(adj.dense())[0])
    assert found == pytest.approx(lowest, abs=1e-5)
    assert found <= lowest + 1e-6  # in float32, as A-hat is here; the residual is taken off


def test_lanczos_of_closed_forms():
    """Without edges all eigenvalues are 1, and any vector is an eigenvector; a star with self-loops has two ends."""
    assert lowest_eigenvalue(symmetric(np.zeros((2, 0), dtype=int), 30), np.ones(30)) == pytest.approx(1.0, abs=1e-6)
    assert lowest_eigenvalue(symmetric(*complete(50)), np.eye(50)[0]) == pytest.approx(-1 / 49, abs=1e-6)


def test_where_lanczos_does_not_converge_the_bound_is_minus_one():
    """A long odd cycle: the lowest of its cosines lie within 1e-6 of each other, and none of them is -1."""
    edges, n = cycle(4001)
    assert lowest_eigenvalue(symmetric(edges, n), np.random.default_rng(0).standard_normal(n)) == -1.0
