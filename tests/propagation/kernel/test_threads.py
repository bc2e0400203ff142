"""Chunks of rows: whole, in order, with equally many edges, and an error in one of them is heard."""

import threading

import numpy as np
import pytest

from labeldeconv.propagation.kernel.threads import balanced, run_chunks


def test_chunks_cover_all_rows_with_equally_many_edges(threads):
    """One row of 1,000 edges among 1,000 rows of one edge: it has chunks of its own, the others share the rest."""
    threads(2)
    degree = np.ones(1001, np.int64)
    degree[500] = 1000
    indptr = np.concatenate([[0], np.cumsum(degree)])
    bounds = balanced(indptr, per_thread=4)
    assert len(bounds) == 9
    assert (bounds[0], bounds[-1]) == (0, 1001)
    assert (np.diff(bounds) >= 0).all()
    edges = np.diff(indptr[bounds])
    assert edges.sum() == 2000
    assert sorted(edges)[-2] <= 251  # all but that of the long row have an eighth of the edges


def test_rows_of_equal_length_are_cut_evenly(threads):
    threads(2)
    assert balanced(np.arange(0, 130, 2), per_thread=2).tolist() == [0, 16, 32, 48, 64]
    assert len(balanced(np.arange(10_000))) == 2 * 16 + 1


def test_chunks_are_worked_on_by_threads_unless_alone(threads):
    threads(2)
    both = threading.Barrier(2, timeout=20)  # passed only if two chunks are under way at once
    run_chunks(lambda lo, hi: both.wait(), np.array([0, 1, 2]))
    calls = []
    run_chunks(lambda lo, hi: calls.append((lo, hi, threading.current_thread())), np.array([0, 1, 2]), alone=True)
    assert calls == [(0, 2, threading.main_thread())]


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("alone", [False, True])
def test_every_row_is_worked_on_once(threads, number, alone):
    threads(number)
    done = np.zeros(100, int)

    def work(lo, hi):
        done[lo:hi] += 1

    run_chunks(work, np.array([0, 10, 10, 55, 100]), alone)
    assert (done == 1).all()


def test_errors_are_heard(threads):
    threads(2)

    def work(lo, hi):
        return 1 // lo

    with pytest.raises(ZeroDivisionError):
        run_chunks(work, np.array([0, 1, 2]))
