"""What is counted of a graph."""

import numpy as np

from labeldeconv import planted
from labeldeconv.analysis.card import data_card, degrees, isolated, labelled
from labeldeconv.propagation.adjacency import Adjacency


def test_degrees_by_hand(small_graph):
    """The path 0-1-2-3-4 and node 5, which is alone."""
    adj = Adjacency.from_edges(small_graph.edges, 6)
    assert degrees(adj).tolist() == [1, 2, 2, 2, 1, 0]
    assert isolated(adj).tolist() == [False] * 5 + [True]


def test_the_card_counts(small_graph):
    card = data_card(small_graph)
    assert (card["nodes"], card["edges"], card["isolated"], card["labelled"]) == (6, 4, 1, 6)
    assert card["degree"] == {"mean": round(8 / 6, 3), "median": 1.5, "max": 2}
    assert card["homophily"] == 0.0


def test_one_known_entry_labels_a_node():
    graph = planted(40, "multilabel", seed=0).graph
    assert (labelled(graph) == ~(graph.labels == -1).all(1)).all()
    assert data_card(graph)["labelled"] == int(np.count_nonzero((graph.labels >= 0).any(1)))
