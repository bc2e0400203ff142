"""CSR by two routes: against a dense pattern, and one thread against two."""

import numpy as np
import pytest

from labeldeconv.propagation.kernel.csr import build_csr, transpose_csr


def dense_pattern(rows, cols, n, both_ways, diagonal):
    out = np.zeros((n, n), bool)
    out[rows, cols] = True
    out |= out.T if both_ways else False
    np.fill_diagonal(out, diagonal)
    return out


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize(("n", "e"), [(1, 0), (3, 9), (700, 5000), (5000, 150_000)])
def test_csr_equals_dense(n, e, both_ways, diagonal):
    rows, cols = np.random.default_rng(n).integers(0, n, (2, e))
    indptr, indices = build_csr(rows, cols, n, both_ways, diagonal)
    expected = dense_pattern(rows, cols, n, both_ways, diagonal)
    np.testing.assert_array_equal(np.diff(indptr), expected.sum(1))
    np.testing.assert_array_equal(indices, np.nonzero(expected)[1])


def test_csr_of_more_columns_than_one_digit_and_any_threads(threads):
    n = 3_000_000  # 22 bits: two digits
    rows, cols = np.random.default_rng(0).integers(0, n, (2, 300_000), dtype=np.int32)
    results = []
    for number in (1, 2):
        threads(number)
        results.append(build_csr(rows, cols, n, both_ways=True))
    packed = np.unique(np.concatenate([rows * np.int64(n) + cols, cols * np.int64(n) + rows])[np.tile(rows != cols, 2)])
    for indptr, indices in results:
        np.testing.assert_array_equal(np.repeat(np.arange(n), np.diff(indptr)) * n + indices, packed)


def test_transposed_rows_of_a_batch():
    indptr, indices = np.array([0, 2, 3]), np.array([1, 4, 0], np.int32)
    out_indptr, out_indices = transpose_csr(indptr, indices, 5)
    np.testing.assert_array_equal(out_indptr, [0, 1, 2, 2, 2, 3])
    np.testing.assert_array_equal(out_indices, [1, 0, 0])


@pytest.mark.parametrize("bits", [30, 31])
def test_too_many_rows_are_refused(bits, monkeypatch):
    """Columns are int32: 2^31 rows are one too many. Nothing of that size is made here."""
    from labeldeconv.propagation.kernel import csr as module

    class Reached(Exception):
        pass

    def stop(*_):
        raise Reached

    monkeypatch.setattr(module.np, "linspace", stop)
    none = np.empty(0, np.int64)
    with pytest.raises(Reached):
        build_csr(none, none, (1 << bits) - 1)
    if bits == 31:
        with pytest.raises(ValueError, match=r"at most 2\^31 - 1 rows expected, got 2147483648"):
            build_csr(none, none, 1 << 31)


@pytest.mark.parametrize("bucket", [1, 64, 1 << 16])
@pytest.mark.parametrize("diagonal", [False, True])
def test_any_size_of_buckets_gives_the_same(bucket, diagonal, monkeypatch):
    from labeldeconv.propagation.kernel import csr as module

    monkeypatch.setattr(module, "BUCKET", bucket)
    rows, cols = np.random.default_rng(2).integers(0, 300, (2, 900))
    indptr, indices = build_csr(rows, cols, 300, both_ways=True, diagonal=diagonal)
    expected = dense_pattern(rows, cols, 300, True, diagonal)
    np.testing.assert_array_equal(np.diff(indptr), expected.sum(1))
    np.testing.assert_array_equal(indices, np.nonzero(expected)[1])


def test_a_transposed_pattern_keeps_its_diagonal():
    pattern = np.random.default_rng(0).random((6, 9)) < 0.4
    pattern[np.arange(6), np.arange(6)] = True
    indptr = np.concatenate([[0], np.cumsum(pattern.sum(1))])
    found_indptr, found = transpose_csr(indptr, np.nonzero(pattern)[1].astype(np.int32), 9)
    np.testing.assert_array_equal(np.diff(found_indptr), pattern.sum(0))
    np.testing.assert_array_equal(found, np.nonzero(pattern.T)[1])
