"""Spectra with a closed form, and estimates against the whole spectrum."""

import json

import numpy as np
import pytest
from conftest import random_edges

from labeldeconv.adjacency import Adjacency
from labeldeconv.analysis.chebyshev import binned, chebyshev_moments, lanczos
from labeldeconv.analysis.phi import power
from labeldeconv.analysis.spectrum import spectrum
from labeldeconv.analysis.structure import known_eigenvalues
from labeldeconv.config import AdjacencyConfig
from labeldeconv.errors import DataError


def cycle(n):
    return np.stack([np.arange(n), (np.arange(n) + 1) % n]), n


def path(n):
    return np.stack([np.arange(n - 1), np.arange(1, n)]), n


def complete(n):
    return np.stack(np.triu_indices(n, 1)), n


def bipartite(a, b):
    left, right = np.meshgrid(np.arange(a), a + np.arange(b))
    return np.stack([left.ravel(), right.ravel()]), a + b


def test_cycle_has_cosines():
    """cos(2 pi k / n): for odd n all but 1 come twice."""
    found = spectrum(cycle(9))
    assert found.exact
    assert found.distinct == 5
    assert found.multi_ratio == pytest.approx(100 * 4 / 5)
    assert found.coinciding == pytest.approx(100 * 8 / 9, abs=1e-3)
    assert [m.multiplicity for m in found.multiple] == [2, 2, 2, 2]
    values = sorted(m.eigenvalue for m in found.multiple)
    assert values == pytest.approx(sorted(np.cos(2 * np.pi * np.arange(1, 5) / 9)), abs=1e-7)


def test_path_is_simple():
    """The walk on a path of n nodes has cos(pi k / (n - 1)), all different."""
    found = spectrum(path(12))
    assert (found.distinct, found.multi_ratio, found.multiple) == (12, 0.0, [])
    assert (found.low, found.high) == pytest.approx((-1.0, 1.0))


def test_complete_graph():
    found = spectrum(complete(7), {"constant": np.ones((7, 1)), "unit": np.eye(7)[:, :1]})
    assert (found.distinct, found.multi_ratio) == (2, 50.0)
    assert found.multiple[0].eigenvalue == pytest.approx(-1 / 6)
    assert found.multiple[0].multiplicity == 6
    assert found.missing == {"constant": 1, "unit": 0}  # a constant is the eigenvector of 1 alone


def test_complete_bipartite_graph_is_not_invertible():
    """K_{a,b}: 1, -1, and 0 a + b - 2 times."""
    graph = bipartite(3, 4)
    found = spectrum(graph, phi={"A": power(1), "shifted": [1.5, 1.0], "half": [0.5, -0.5]})
    assert found.multiple[0].multiplicity == 5
    by_name = {p.name: p for p in found.phi}
    assert by_name["A"].invertible is False
    assert by_name["A"].near_zero == pytest.approx(5 / 7)
    assert by_name["shifted"].invertible is True
    assert (by_name["shifted"].smallest, by_name["shifted"].largest) == pytest.approx((0.5, 2.5))
    assert by_name["half"].invertible is False  # zero at 1
    assert known_eigenvalues(Adjacency.from_edges(*graph)) == {1.0: 1, -1.0: 1, 0.0: 5}


def test_bounds_that_decide_and_that_do_not():
    """Not exact: equal neighbours make 0 certain; an odd cycle has no 0, but nothing known tells so."""
    (known,) = spectrum(bipartite(3, 4), phi={"A": power(1)}, dense_nodes=1).phi
    (open_question,) = spectrum(cycle(401), phi={"A": power(1)}, dense_nodes=1).phi
    assert known.invertible is False
    assert open_question.invertible is None
    assert spectrum(cycle(401), phi={"A": power(1)}).phi[0].invertible is True


def test_planted_phi_of_the_generator_is_invertible():
    """phi = A - 1.2 I has no zero in [-1, 1]: decided on any graph, exact or not."""
    edges = random_edges(60, 150), 60
    for limit in (100, 10):
        (phi,) = spectrum(edges, phi={"planted": [-1.2, 1.0]}, dense_nodes=limit).phi
        assert phi.invertible is True
        assert phi.smallest == pytest.approx(0.2, abs=1e-6)


def test_isolated_nodes_make_one_multiple():
    edges = np.array([[0, 1], [1, 2]])
    found = spectrum((edges, 6))
    assert (found.multiple[0].eigenvalue, found.multiple[0].multiplicity) == (pytest.approx(1.0), 4)


def test_self_loops_move_the_spectrum():
    found = spectrum(bipartite(1, 1), adjacency=AdjacencyConfig(self_loops=True))
    assert (found.low, found.high) == pytest.approx((0.0, 1.0))  # the mean of two nodes


def test_structure_matches_the_whole_spectrum():
    edges = np.concatenate([random_edges(80, 90), 80 + random_edges(40, 20, seed=1), [[130, 130], [131, 132]]], axis=1)
    adj = Adjacency.from_edges(edges, 140, AdjacencyConfig(normalization="symmetric"))
    values = np.linalg.eigvalsh(adj.dense())
    known = known_eigenvalues(adj)
    assert known[1.0] == (abs(values - 1) < 1e-5).sum()
    assert known[-1.0] == (abs(values + 1) < 1e-5).sum()
    assert 2 < known[0.0] <= (abs(values) < 1e-5).sum()


def test_estimates_against_dense():
    n = 1500
    edges = random_edges(n, 4 * n)
    labels = np.eye(3)[np.arange(n) % 3]
    phi = {"A^2": power(2), "gamma": [0.5, 0.3, 0.2]}
    dense = spectrum((edges, n), {"labels": labels}, phi)
    large = spectrum((edges, n), {"labels": labels}, phi, dense_nodes=10)
    assert (dense.exact, large.exact) == (True, False)
    # 50 bins of two densities: blurred by pi / 256, a third of a bin
    for a, b in ((dense.eigenvalues, large.eigenvalues), (dense.energy["labels"], large.energy["labels"])):
        assert abs(np.cumsum(a) - np.cumsum(b)).max() < 0.03
        assert sum(b) == pytest.approx(1.0)
    assert large.low == pytest.approx(dense.low, abs=2e-3)
    assert large.low <= dense.low + 1e-9
    assert large.distinct >= dense.distinct
    assert large.multi_ratio <= dense.multi_ratio
    assert large.missing == dense.missing == {"labels": 0}
    for a, b in zip(dense.phi, large.phi, strict=True):
        assert b.smallest <= a.smallest + 1e-9
        assert b.largest == pytest.approx(a.largest, rel=1e-6)
        assert b.invertible in (a.invertible, None)
        assert b.near_zero == pytest.approx(a.near_zero, abs=0.05)


def test_missing_frequencies_are_seen_by_the_estimate():
    """A constant on a regular graph has no energy off 1."""
    edges, n = cycle(400)
    found = spectrum((edges, n), {"constant": np.ones((n, 1))}, dense_nodes=10, moments=512)
    assert 300 < found.missing["constant"] < 400
    assert found.energy["constant"][-1] == pytest.approx(1.0, abs=1e-3)


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


def test_lanczos_finds_all_eigenvalues_of_a_small_graph():
    edges, n = path(10)
    adj = Adjacency.from_edges(edges, n, AdjacencyConfig(normalization="symmetric"))
    values, residuals = lanczos(adj, np.random.default_rng(0).standard_normal(n), 50)
    assert values == pytest.approx(np.linalg.eigvalsh(adj.dense()), abs=1e-6)
    assert residuals.max() < 1e-6


def test_values_are_plain_and_shapes_are_checked(small_graph):
    found = spectrum(small_graph, phi={"A^2": power(2)})
    assert json.loads(json.dumps(found.to_dict()))["missing"]["labels"] >= 0
    parts = {row["part"] for row in found.rows()}
    assert parts >= {"graph", "phi", "bin"}
    with pytest.raises(DataError, match=r"shape \(6, d\) expected"):
        spectrum(small_graph, {"x": np.ones((5, 2))})
