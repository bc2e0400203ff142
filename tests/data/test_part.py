"""A connected part: right size, in one piece, seeded, and everything that belongs to its nodes."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from labeldeconv.data.part import connected_part
from labeldeconv.data.sets.planted import planted
from labeldeconv.errors import DataError


@pytest.fixture(scope="module")
def graph():
    return planted(600, seed=1).graph


def test_connected_and_seeded(graph):
    part = connected_part(graph, 150, 3)
    assert part.num_nodes == 150
    drawn = nx.Graph(part.edges.T.tolist())
    drawn.add_nodes_from(range(150))
    assert nx.is_connected(drawn)
    again, other = connected_part(graph, 150, 3), connected_part(graph, 150, 4)
    np.testing.assert_array_equal(part.edges, again.edges)
    assert list(part.ids) != list(other.ids)


def test_rows_belong_together(graph):
    part = connected_part(graph, 150, 3)
    nodes = np.asarray(part.ids) if graph.ids is None else np.array([list(graph.ids).index(i) for i in part.ids])
    assert list(part.texts) == graph.texts.take(nodes)
    np.testing.assert_array_equal(part.labels, graph.labels[nodes])
    np.testing.assert_array_equal(part.split.roles, graph.split.roles[nodes])
    pairs = set(map(tuple, graph.edges.T.tolist()))
    assert all((nodes[s], nodes[t]) in pairs for s, t in part.edges.T)
    inside = np.isin(graph.edges, nodes).all(0).sum()
    assert part.num_edges == inside


def test_small_components_are_passed_over(graph):
    far = np.concatenate([graph.edges, graph.num_nodes - 1 - np.arange(4).reshape(2, 2)], axis=1)
    lonely = replace(graph, edges=far[:, (far < 596).all(0) | (far >= 596).all(0)])
    for seed in range(8):
        assert connected_part(lonely, 300, seed).num_nodes == 300


def test_errors(graph, small_graph):
    with pytest.raises(DataError, match=r"max-nodes: at least 4"):
        connected_part(graph, 2, 0)
    with pytest.raises(DataError, match=r"no 'test' nodes in the part"):
        connected_part(small_graph, 5, 0)
    assert connected_part(graph, 10**6, 0) is graph
