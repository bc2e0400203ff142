"""Missing labels: -1 of whole numbers, NaN of numbers; a negative number is a number."""

import numpy as np

from labeldeconv.graph.missing import hidden, is_known, labelled

NUMBERS = np.array([[-1.0, np.nan], [np.nan, np.nan], [0.0, 2.5]])


def test_known_entries():
    assert is_known(np.array([1, -1, 0])).tolist() == [True, False, True]
    assert is_known(NUMBERS).tolist() == [[True, False], [False, False], [True, True]]


def test_nodes_with_any_label():
    assert labelled(np.array([1, -1, 0])).tolist() == [True, False, True]
    assert labelled(np.array([[-1, -1], [0, -1]])).tolist() == [False, True]
    assert labelled(NUMBERS).tolist() == [True, False, True]


def test_labels_that_are_not_shown_are_missing():
    shown = np.array([True, False, False])
    np.testing.assert_array_equal(hidden(np.array([3, 4, 5], np.int32), shown), [3, -1, -1])
    out = hidden(NUMBERS, shown)
    np.testing.assert_array_equal(out, [[-1, np.nan], [np.nan, np.nan], [np.nan, np.nan]])
    assert hidden(np.ones((3, 2), np.int8), shown).dtype == np.int8
