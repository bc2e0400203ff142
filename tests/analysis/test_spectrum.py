"""Spectra with a closed form, and estimates against the whole spectrum."""

import json

import numpy as np
import pytest

from labeldeconv.analysis.phi import power
from labeldeconv.analysis.spectrum import spectrum
from labeldeconv.errors import DataError
from labeldeconv.settings.models import AdjacencyConfig
from tests.analysis.closed_forms import bipartite, complete, cycle, path
from tests.samples import random_edges


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


def test_isolated_nodes_make_one_multiple():
    edges = np.array([[0, 1], [1, 2]])
    found = spectrum((edges, 6))
    assert (found.multiple[0].eigenvalue, found.multiple[0].multiplicity) == (pytest.approx(1.0), 4)


def test_self_loops_move_the_spectrum():
    found = spectrum(bipartite(1, 1), adjacency=AdjacencyConfig(self_loops=True))
    assert (found.low, found.high) == pytest.approx((0.0, 1.0))  # the mean of two nodes


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
    assert [p.invertible for p in dense.phi] == [True, True]
    assert [p.invertible for p in large.phi] == [None, True]  # 0 lies between the ends, and may be an eigenvalue
    for a, b in zip(dense.phi, large.phi, strict=True):
        assert b.near_zero == pytest.approx(a.near_zero, abs=0.05)


def test_missing_frequencies_are_seen_by_the_estimate():
    """A constant on a regular graph has no energy off 1."""
    edges, n = cycle(400)
    found = spectrum((edges, n), {"constant": np.ones((n, 1))}, dense_nodes=10, moments=512)
    assert 300 < found.missing["constant"] < 400
    assert found.energy["constant"][-1] == pytest.approx(1.0, abs=1e-3)


def test_a_bipartite_component_gives_the_lower_end():
    edges, n = np.concatenate([np.stack(np.triu_indices(5, 1)), [[5], [6]]], axis=1), 7
    assert spectrum((edges, n), dense_nodes=1).low == -1.0
    assert spectrum((edges[:, :-1], n), dense_nodes=1).low == pytest.approx(-1 / 4, abs=1e-6)  # K_5, and two alone


def test_the_largest_component_decides_what_is_exact():
    edges, n = cycle(30)
    two = np.concatenate([edges, edges + n], axis=1), 2 * n
    found = spectrum(two, dense_nodes=30)
    assert (found.exact, found.distinct, found.coinciding) == (True, 16, 100.0)  # of one cycle: 14 twice, 1 and -1 once
    assert not spectrum(two, dense_nodes=29).exact


def test_one_node_is_exact():
    assert spectrum((np.zeros((2, 0), dtype=int), 1), dense_nodes=0).low == 1.0


def test_values_are_plain_and_shapes_are_checked(small_graph):
    found = spectrum(small_graph, phi={"A^2": power(2)})
    assert json.loads(json.dumps(found.to_dict()))["missing"] == {"labels": 1}
    # The path's eigenvector of cos(pi / 4) is (1, 1, 0, -1, -1) / 2: its ends of class 0 and of class 1 cancel.
    parts = {row["part"] for row in found.rows()}
    assert parts >= {"graph", "phi", "bin"}
    with pytest.raises(DataError, match=r"shape \(6, d\) expected"):
        spectrum(small_graph, {"x": np.ones((5, 2))})
