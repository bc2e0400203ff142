"""Split: stratified, from lists of nodes, and what it refuses."""

import numpy as np
import pytest

from labeldeconv.errors import DataError
from labeldeconv.graph.split import Split


def test_stratified_gives_every_class_a_place_everywhere():
    labels = np.repeat([0, 1, 2, -1], [3, 50, 200, 10])
    split = Split.stratified(labels, seed=0)
    for part in (split.train, split.val, split.test):
        assert set(labels[part]) == {0, 1, 2}
    assert len(split.train) == pytest.approx(0.6 * 253, abs=2)
    assert (split.roles[labels < 0] == -1).all()
    assert np.array_equal(split.roles, Split.stratified(labels, seed=0).roles)
    assert not np.array_equal(split.roles, Split.stratified(labels, seed=1).roles)


def test_multilabel_is_stratified_by_any_positive():
    labels = np.zeros((100, 3), np.int8)
    labels[:10, 1] = 1
    labels[90:] = -1
    split = Split.stratified(labels, seed=0, fractions=(0.5, 0.3))
    positive = (labels > 0).any(1)
    assert [int(positive[split.ids(role)].sum()) for role in ("train", "val", "test")] == [5, 3, 2]
    assert [len(split.ids(role)) for role in ("train", "val", "test")] == [45, 27, 18]
    assert (split.roles[90:] == -1).all()


def test_from_ids():
    split = Split.from_ids(5, np.array([4, 0]), np.array([2]), np.array([], int))
    assert split.roles.tolist() == [0, -1, 1, -1, 0]
    assert split.train.tolist() == [0, 4]
    assert split.test.tolist() == []


def test_node_in_two_parts():
    with pytest.raises(DataError, match="1 nodes of 'val'"):
        Split.from_ids(3, np.array([0]), np.array([0]), np.array([2]))
