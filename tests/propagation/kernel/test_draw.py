"""Drawn neighbours: members of their rows, without duplicates, uniform over subsets, the same for any threads."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import scipy.stats

from labeldeconv.propagation.kernel import draw as module
from labeldeconv.propagation.kernel.csr import build_csr
from labeldeconv.propagation.kernel.draw import draw, number
from tests.samples import random_edges

n = 500
INDPTR, INDICES = build_csr(*random_edges(n, 30_000), n)


@pytest.mark.parametrize("fanout", [1, 7, 40, 1000, None])
def test_entries_are_those_of_their_rows_and_none_comes_twice(fanout):
    targets = np.random.default_rng(0).permutation(n)[:321]
    starts, columns, entries = draw(INDPTR, INDICES, targets, fanout, 5, np.arange(len(INDICES)))
    np.testing.assert_array_equal(INDICES[entries], columns)
    sources, places = number(columns, targets, n)
    np.testing.assert_array_equal(sources[: len(targets)], targets)
    assert len(np.unique(sources)) == len(sources)
    assert (np.diff(sources[len(targets) :]) > 0).all()
    for i, row in enumerate(targets):
        whole = INDICES[INDPTR[row] : INDPTR[row + 1]].tolist()
        found = sources[places[starts[i] : starts[i + 1]]].tolist()
        assert len(found) == min(fanout or n, len(whole))
        assert len(set(found)) == len(found)
        assert set(found) <= set(whole)
        assert (
            (INDPTR[row] <= entries[starts[i] : starts[i + 1]]) & (entries[starts[i] : starts[i + 1]] < INDPTR[row + 1])
        ).all()
        if len(found) == len(whole):
            assert found == whole


def test_every_subset_of_a_row_is_as_likely_as_any_other():
    """3 of 7 neighbours: 35 subsets, 4,000 rows of each of 5 keys; and each neighbour in each row, by chi-square."""
    rows = 4000
    indptr, indices = np.arange(0, 7 * rows + 1, 7), np.tile(np.arange(7, dtype=np.int32), rows)
    counts: Counter[tuple[int, ...]] = Counter()
    for key in range(5):
        _, columns, _ = draw(indptr, indices, np.arange(rows), 3, key)
        counts.update(tuple(sorted(row)) for row in columns.reshape(rows, 3).tolist())
    assert set(counts) == set(combinations(range(7), 3))
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_wide_rows_are_uniform_by_chi_square():
    """32 of 600 neighbours, as on ogbn-proteins: which, and how far apart, in neighbouring rows and keys."""
    rows = 2000
    indptr, indices = np.arange(0, 600 * rows + 1, 600), np.tile(np.arange(600, dtype=np.int32), rows)
    one, two = (draw(indptr, indices, np.arange(rows), 32, key)[1].reshape(rows, 32) for key in (1, 2))
    # Numbers of one row exclude each other, so counts vary by 1 - 32/600 of what independent ones would.
    for drawn in (one, two):
        spread = np.bincount(drawn.ravel(), minlength=600)
        statistic = ((spread - rows * 32 / 600) ** 2 / (rows * 32 / 600)).sum() / (1 - 32 / 600)
        assert 1e-3 < scipy.stats.chi2.sf(statistic, 599) < 1 - 1e-3
    for a, b in ((one[:-1], one[1:]), (one, two)):  # independent rows share 32 * 32 / 600 = 1.71 neighbours
        shared = np.array([len(np.intersect1d(x, y)) for x, y in zip(a, b, strict=True)])
        expected = scipy.stats.hypergeom.pmf(np.arange(8), 600, 32, 32)
        seen = np.bincount(np.minimum(shared, 7), minlength=8)
        expected[7] = 1 - expected[:7].sum()
        assert scipy.stats.chisquare(seen, expected * len(shared)).pvalue > 1e-3


def test_draws_are_those_of_the_key_for_any_number_of_threads(threads, monkeypatch):
    targets = np.arange(n)[::-1]
    monkeypatch.setattr(module, "SMALL", 0)
    found = []
    for count in (1, 2, 5):
        threads(count)
        _, columns, _ = draw(INDPTR, INDICES, targets, 9, 3)
        found.append((columns, *number(columns, targets, n)))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    assert not np.array_equal(found[0][0], draw(INDPTR, INDICES, targets, 9, 4)[1])


def test_sorting_and_the_table_of_all_nodes_number_alike(monkeypatch):
    targets = np.array([9, 3, 400])
    _, columns, _ = draw(INDPTR, INDICES, targets, 5, 0)
    table = number(columns, targets, n)
    monkeypatch.setattr(module, "SPARSE", 0)
    for a, b in zip(table, number(columns, targets, n), strict=True):
        np.testing.assert_array_equal(a, b)


def test_rows_without_entries():
    starts, columns, taken = draw(np.array([0, 0, 0]), np.empty(0, np.int32), np.array([1]), 3, 0)
    assert (starts.tolist(), columns.tolist(), taken) == ([0, 0], [], None)
    sources, places = number(columns, np.array([1]), 2)
    assert (sources.tolist(), places.tolist()) == ([1], [])


GOLDEN, BITS = 0x9E3779B97F4A7C15, 2**64


def mixed(z):
    """splitmix64's output function by Python's own whole numbers."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % BITS
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % BITS
    return z ^ (z >> 31)


def test_random_numbers_are_those_of_splitmix64():
    """The first numbers that its authors' code gives from the state 0."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    for k, value in enumerate(published, 1):
        assert mixed(k * GOLDEN % BITS) == value
        assert int(module._mixed(np.uint64(k * GOLDEN % BITS))) == value


@pytest.mark.parametrize("fanout", [1, 3, 60])
def test_draws_are_those_of_floyds_algorithm(fanout):
    """Row by row in Python: the upper half of a number times the size; the last one where it was taken already."""
    targets, key = np.array([7, 0, 401, 33]), 12345
    starts, columns, entries = draw(INDPTR, INDICES, targets, fanout, key, np.arange(len(INDICES)))
    for i, row in enumerate(targets.tolist()):
        first, degree = int(INDPTR[row]), int(INDPTR[row + 1] - INDPTR[row])
        count = min(degree, fanout)
        expected = list(range(degree)) if count == degree else []
        state = mixed((key + (row + 1) * GOLDEN) % BITS)
        for last in range(degree - count, degree) if count < degree else ():
            state = (state + GOLDEN) % BITS
            chosen = (mixed(state) >> 32) * (last + 1) >> 32
            expected.append(last if chosen in expected else chosen)
        found = entries[starts[i] : starts[i + 1]]
        assert (found - first).tolist() == expected
        np.testing.assert_array_equal(columns[starts[i] : starts[i + 1]], INDICES[found])


def test_nothing_is_carried_unless_given(monkeypatch):
    """The kernel tells by an empty array; with one of another length it would read beyond what there is."""
    given, real = [], module.run_chunks

    def run_chunks(work, bounds, alone):
        given.append(work.args)
        real(work, bounds, alone)

    monkeypatch.setattr(module, "run_chunks", run_chunks)
    draw(INDPTR, INDICES, np.array([1, 2]), 3, 0)
    _, columns, taken = draw(INDPTR, INDICES, np.array([1, 2]), 3, 0, np.arange(len(INDICES)))
    assert [(len(arguments[2]), len(arguments[-1])) for arguments in given] == [(0, 0), (len(INDICES), len(columns))]
    assert len(taken) == len(columns)
