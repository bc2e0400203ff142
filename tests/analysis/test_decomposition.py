"""Eigenvalues and energies against numpy's eigh of the whole matrix."""

from dataclasses import replace

import numpy as np
import pytest

from labeldeconv.analysis import decomposition
from labeldeconv.analysis.decomposition import _rotate, decompose, largest_component
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import AdjacencyConfig
from tests.analysis.closed_forms import bipartite, cycle
from tests.samples import random_edges


def symmetric(edges: np.ndarray, n: int) -> Adjacency:
    adj = Adjacency.from_edges(edges, n, AdjacencyConfig(normalization="symmetric"))
    root = np.diff(adj.indptr) ** -0.5
    return replace(adj, left=root, right=root)


def by_eigenspace(values: np.ndarray, energy: np.ndarray) -> np.ndarray:
    """Energy per different eigenvalue."""
    return np.add.reduceat(energy, np.concatenate([[0], np.flatnonzero(np.diff(values) > 1e-9) + 1]))


@pytest.mark.parametrize("small", [0, 500])
@pytest.mark.parametrize("edges", [120, 400, 1500], ids=["many components", "one and some", "dense"])
def test_equal_to_eigh_of_the_whole(small, edges, monkeypatch):
    """Both ways: components by eigh, and by tridiagonal form, several blocks of reflectors and QL."""
    monkeypatch.setattr(decomposition, "SMALL", small)
    monkeypatch.setattr(decomposition, "REFLECTORS", 32)
    n, rng = 300, np.random.default_rng(0)
    adj = symmetric(random_edges(n, edges), n)
    signals = {"wide": rng.standard_normal((n, 5)).astype(np.float32), "thin": rng.uniform(size=(n, 1))}
    values, energy = decompose(adj, signals)
    expected, U = np.linalg.eigh(adj.dense())
    np.testing.assert_allclose(values, expected, atol=1e-13)
    for name, x in signals.items():
        ours, whole = (by_eigenspace(values, e) for e in (energy[name], np.square(U.T @ x).sum(1)))
        np.testing.assert_allclose(ours, whole, atol=1e-9)


@pytest.mark.parametrize("small", [0, 500])
def test_without_signals(small, monkeypatch):
    monkeypatch.setattr(decomposition, "SMALL", small)
    values, energy = decompose(symmetric(*cycle(40)), {})
    np.testing.assert_allclose(values, np.sort(np.cos(2 * np.pi * np.arange(40) / 40)), atol=1e-14)
    assert energy == {}


def test_a_large_multiple_eigenvalue(monkeypatch):
    """A star of 200 leaves has 0 199 times, which LAPACK's stemr may fail on."""
    monkeypatch.setattr(decomposition, "SMALL", 0)
    edges, n = bipartite(1, 200)
    constant = np.ones((n, 1))
    values, energy = decompose(symmetric(edges, n), {"constant": constant})
    np.testing.assert_allclose(values, [-1, *[0] * 199, 1], atol=1e-14)
    root = np.sqrt(200.0)  # eigenvectors of 1 and -1 are (root, 1, ..., 1) / sqrt(400), with a sign
    np.testing.assert_allclose(energy["constant"][[0, -1]], [(200 - root) ** 2 / 400, (200 + root) ** 2 / 400])
    assert energy["constant"][1:-1].sum() < 1e-20


def test_ql_of_two_by_two_and_of_nothing_to_do():
    d, x = np.array([0.5, 0.5]), np.array([[1.0], [0.0]])
    assert _rotate(d, np.array([0.25, 0.0]), x)
    np.testing.assert_allclose(sorted(d), [0.25, 0.75])
    np.testing.assert_allclose(np.square(x), [[0.5], [0.5]])
    d = np.array([0.3, -0.2, 0.1])
    assert _rotate(d, np.zeros(3), np.zeros((3, 0)))
    assert d.tolist() == [0.3, -0.2, 0.1]


def test_ql_says_that_it_did_not_converge():
    assert not _rotate(np.array([0.5, np.nan, 0.1]), np.array([0.2, np.nan, 0.0]), np.zeros((3, 1)))


def test_largest_component():
    assert largest_component(symmetric(np.array([[0, 1, 3], [1, 2, 4]]), 7)) == 3
    assert largest_component(symmetric(np.zeros((2, 0), dtype=int), 2)) == 1
