"""Attributions in the user's words: ids, labels, the neighbours that matter most, and one sum of the others."""

import numpy as np
import pytest

from labeldeconv import planted
from labeldeconv.errors import ConfigError
from labeldeconv.prediction.attribution import EXACT, POWERS, Attribution
from labeldeconv.prediction.explanation import class_number, in_words, known_label

FOUND = Attribution(
    logit=3.0,
    baseline=1.0,
    how=EXACT,
    hops_are=POWERS,
    by_hop=np.array([0.5, 1.25]),
    nodes=np.array([2, 5, 7, 60]),
    distance=np.array([1, 0, 2, 1]),
    by_node=np.array([0.25, 0.5, -0.75, 1.75]),
    of_labels=0.125,
    points=8,
)
GRAPH = planted(60, seed=0).graph


def words(top):
    return in_words(FOUND, 5, 1, "gnn", GRAPH, lambda u: f"id {u}", top)


def test_neighbours_are_ranked_by_size():
    told = words(2)
    assert [(n.id, n.distance, n.contribution) for n in told.neighbours] == [("id 60", 1, 1.75), ("id 7", 2, -0.75)]
    assert [n.label for n in told.neighbours] == [None, GRAPH.class_names[GRAPH.labels[7]]]  # 60 is new
    assert (told.node, told.of, told.own, told.others, told.num_others) == ("id 5", "topic 1", 0.5, 0.25, 1)
    assert (told.by_hop, told.points, told.of_labels) == ([0.5, 1.25], 8, 0.125)


@pytest.mark.parametrize("top", [0, 1, 2, 3, 9])
def test_everything_sums_to_the_difference(top):
    told = words(top)
    total = told.own + sum(n.contribution for n in told.neighbours) + told.others + told.of_labels + told.gap
    assert total == pytest.approx(told.logit - told.baseline)
    assert len(told.neighbours) + told.num_others == 3
    assert told.gap == pytest.approx(0.125)
    assert (
        told.to_dict()["neighbours"][:1]
        == ([{"id": "id 60", "distance": 1, "contribution": 1.75, "label": None}][:top])
    )


def test_classes_and_labels():
    names = ["a", "b", "c"]
    assert class_number(names, None, np.array([0.0, 2.0, 1.0])) == 1
    assert class_number(names, "c", np.array([0.0, 2.0, 1.0])) == 2
    with pytest.raises(ConfigError, match="explain: no class 'd'; known: a, b, c"):
        class_number(names, "d", np.zeros(3))
    with pytest.raises(ConfigError, match="top of at least 0 expected, got -1"):
        words(-1)
    many = planted(60, "multilabel", seed=0).graph
    node = int(np.flatnonzero((many.labels > 0).any(1))[0])
    assert known_label(many, node) == [many.class_names[k] for k in np.flatnonzero(many.labels[node] > 0)]
    missing = many.labels.copy()
    missing[0] = -1
    object.__setattr__(many, "labels", missing)
    assert known_label(many, 0) is None
