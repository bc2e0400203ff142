"""The gather kernel by two routes: against dense float64, one thread against two, padded against not."""

import numpy as np
import pytest
import torch

import labeldeconv.propagation.kernel.gather as kernels
from labeldeconv.propagation.adjacency import Adjacency, propagate
from labeldeconv.propagation.fixed_point import dequantize, quantize
from labeldeconv.propagation.kernel.gather import SEGMENT, count_classes, gather, padded, rows_aligned
from labeldeconv.settings.models import AdjacencyConfig
from tests.samples import random_edges


def star(n: int) -> np.ndarray:
    """Node 0 is everyone's neighbour: a row longer than a segment."""
    return np.stack([np.zeros(n - 1, np.int64), np.arange(1, n)])


@pytest.mark.parametrize("columns", [1, 15, 16, 17, 47, 112, 128, 129, 300])
def test_float32_equals_dense_float64(columns):
    n = 300
    adj = Adjacency.from_edges(np.concatenate([random_edges(n, 2000), star(n)], axis=1), n)
    Y = np.random.default_rng(0).random((n, columns), dtype=np.float32)
    dense = adj.dense().astype(np.float64)
    exact = 1.0 / np.diff(adj.indptr)
    dense = (dense > 0) * exact[:, None]
    expected = Y.astype(np.float64)
    for K in propagate(adj, Y, 4):
        assert np.abs(K - expected).max() < 1e-6
        expected = dense @ expected


@pytest.mark.parametrize("columns", [1, 31, 32, 33, 47, 112, 300])
def test_uint16_equals_dense_float64(columns):
    n = 300
    adj = Adjacency.from_edges(np.concatenate([random_edges(n, 2000), star(n)], axis=1), n)
    Y = np.random.default_rng(0).dirichlet(np.ones(columns), n).astype(np.float32)
    dense = (adj.dense() > 0) / np.diff(adj.indptr)[:, None]
    expected = Y.astype(np.float64)
    for K in propagate(adj, quantize(Y), 3):
        assert K.dtype == np.uint16
        assert np.abs(dequantize(K) - expected).max() < 2e-5
        expected = dense @ expected


@pytest.mark.parametrize("columns", [1, 31, 32, 33, 47, 112, 300, 384])
def test_float16_equals_dense_float64(columns):
    n = 300
    adj = Adjacency.from_edges(np.concatenate([random_edges(n, 2000), star(n)], axis=1), n)
    X = np.random.default_rng(0).standard_normal((n, columns)).astype(np.float16)
    dense = (adj.dense() > 0) / np.diff(adj.indptr)[:, None]
    expected = X.astype(np.float64)
    for i, hop in enumerate(propagate(adj, X, 3)):
        assert hop.dtype == np.float16
        assert np.abs(hop - expected).max() <= i * 2.0**-11 * np.abs(expected).max()
        expected = dense @ expected


def test_every_finite_float16_comes_through_one_neighbour_unchanged():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    every = every[np.isfinite(every)]
    x = padded(len(every) // 64, 64, np.float16)
    x[:] = every.reshape(-1, 64)
    out = Adjacency.identity(len(x)) @ x
    np.testing.assert_array_equal(out, x)  # zero is zero, with either sign
    assert np.signbit(out[x < 0]).all()


def test_sums_of_float16_are_rounded_as_numpy_rounds_them():
    """Ties to even, subnormal results, and infinite ones: sums of two are exact in float32."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 1 << 16, (2, 1 << 18)).astype(np.uint16).view(np.float16)
    pairs = pairs[:, np.isfinite(pairs).all(0)]
    near = np.array([[65504, 16], [65504, 15.99], [65504, 65504], [-65504, -16], [2.0**-24, -(2.0**-24)]], np.float16).T
    pairs = np.concatenate([pairs, near], axis=1)
    x = padded(2, pairs.shape[1], np.float16)
    x[:] = pairs
    for factor in (1.0, 0.5, 2.0**-12):
        (out,) = gather(np.array([0, 2]), np.array([0, 1], np.int32), np.array([factor], np.float32), x)
        with np.errstate(over="ignore"):
            expected = ((pairs[0].astype(np.float32) + pairs[1].astype(np.float32)) * np.float32(factor)).astype(
                np.float16
            )
        np.testing.assert_array_equal(out, expected)


def test_float16_under_factors_of_columns_is_computed_in_float32():
    adj = Adjacency.from_edges(random_edges(80, 300), 80, AdjacencyConfig(normalization="symmetric"))
    x = padded(80, 32, np.float16)
    x[:] = np.random.default_rng(0).standard_normal((80, 32))
    out = adj @ x
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, adj.dense() @ x.astype(np.float64), atol=1e-6)


def test_long_rows_neither_overflow_nor_lose_digits():
    n = 100_000
    indptr, indices = np.array([0, n]), np.arange(n, dtype=np.int32)
    assert n > 65536 > SEGMENT  # more than a uint32 sum of largest values could hold without segments
    for dtype, one, tolerance in ((np.float32, 1.0, 1e-6), (np.float16, 1.0, 0), (np.uint16, 65535, 0)):
        x = padded(n, 3, dtype)
        x[:] = one
        out = gather(indptr, indices, np.array([1 / n]), x)
        assert np.abs(out[0].astype(np.float64) / one - 1).max() <= tolerance


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint16])
def test_bit_equal_for_any_number_of_threads(threads, dtype):
    n = 20_000
    adj = Adjacency.from_edges(random_edges(n, 100_000), n)
    Y = np.random.default_rng(0).random((n, 40), dtype=np.float32)
    x = quantize(Y) if dtype == np.uint16 else Y.astype(dtype)
    results = []
    for number in (1, 2, 3):
        threads(number)
        results.append(list(propagate(adj, x, 2))[-1].tobytes())
        assert torch.get_num_threads() == number
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint16])
@pytest.mark.parametrize("columns", [1, 40, 112, 300])
def test_tiles_equal_rows_for_any_number_of_threads(threads, monkeypatch, columns, dtype):
    n = 2000
    adj = Adjacency.from_edges(random_edges(n, 150_000), n)
    x = padded(n, columns, dtype)
    x[:] = np.random.default_rng(0).random((n, columns)) * (65535 if dtype == np.uint16 else 1)
    shuffled = adj.indices.copy()
    np.random.default_rng(1).shuffle(shuffled[: adj.indptr[1]])  # unsorted rows are slow, not wrong
    plain = gather(adj.indptr, shuffled, adj.left, x)
    assert kernels._tile_rows(n, n, len(shuffled), 8) == 0  # all rows fit one tile
    monkeypatch.setattr(kernels, "TILE_BYTES", 1 << 16)
    assert kernels._tile_rows(n, n, len(shuffled), -(-columns * x.itemsize // 64)) > 0
    results = []
    for number in (1, 2, 3):
        threads(number)
        results.append(gather(adj.indptr, shuffled, adj.left, x))
        assert results[0].tobytes() == results[-1].tobytes()
    unit = {np.float32: 1e-6, np.float16: 2.0**-11, np.uint16: 1}[dtype]  # one rounding apart at most
    assert np.abs(results[0].astype(np.float64) - plain.astype(np.float64)).max() <= unit


@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_counted_classes_equal_summed_rows(dtype):
    n, c = 3000, 40
    adj = Adjacency.from_edges(random_edges(n, 20_000), n)
    classes = np.random.default_rng(0).integers(0, c + 1, n)  # c is a row of zeros
    x = padded(n, c, dtype)
    x[:] = np.eye(c + 1)[classes][:, :c] * (65535 if dtype == np.uint16 else 1)
    counted = count_classes(adj.indptr, adj.indices, adj.left, classes, x)
    np.testing.assert_allclose(dequantize(counted), dequantize(adj @ x), atol=2e-5 if dtype == np.uint16 else 1e-6)


def test_views_are_read_in_place_only_where_rows_are_aligned():
    x = padded(10, 20, np.float32)
    assert rows_aligned(x)
    assert not rows_aligned(x[:, 1:])
    assert not rows_aligned(np.ascontiguousarray(x))
    with pytest.raises(ValueError, match="cache lines"):
        gather(np.array([0, 1]), np.array([0], np.int32), None, np.zeros((1, 3), np.float32))


def test_symmetric_normalisation_equals_dense():
    adj = Adjacency.from_edges(random_edges(80, 300), 80, AdjacencyConfig(normalization="symmetric", self_loops=True))
    x = np.random.default_rng(0).standard_normal((80, 21)).astype(np.float32)
    np.testing.assert_allclose(adj @ x, adj.dense() @ x, atol=1e-6)
