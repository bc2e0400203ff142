"""Eigenvalues that the structure gives away, against the whole spectrum, a colouring by hand, and networkx."""

import numpy as np
import pytest

from labeldeconv.analysis.structure import _components, known_eigenvalues
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import AdjacencyConfig
from tests.samples import random_edges


def test_structure_matches_the_whole_spectrum():
    edges = np.concatenate([random_edges(80, 90), 80 + random_edges(40, 20, seed=1), [[130, 130], [131, 132]]], axis=1)
    adj = Adjacency.from_edges(edges, 140, AdjacencyConfig(normalization="symmetric"))
    values = np.linalg.eigvalsh(adj.dense())
    known = known_eigenvalues(adj)
    assert known[1.0] == (abs(values - 1) < 1e-5).sum()
    assert known[-1.0] == (abs(values + 1) < 1e-5).sum()
    assert 2 < known[0.0] <= (abs(values) < 1e-5).sum()


def test_components_against_colouring_by_hand():
    """A triangle, a path of three, a square and an isolated node: four components, of which two have two colours."""
    edges = np.array([[0, 1, 2, 3, 4, 6, 7, 8, 9], [1, 2, 0, 4, 5, 7, 8, 9, 6]])
    assert _components(Adjacency.from_edges(edges, 11)) == (4, 2)
    assert _components(Adjacency.from_edges(edges, 11, AdjacencyConfig(self_loops=True))) == (4, 0)


@pytest.mark.parametrize("seed", range(5))
def test_components_against_networkx(seed):
    networkx = pytest.importorskip("networkx")
    edges = random_edges(60, 25 + 5 * seed, seed)
    graph = networkx.Graph(zip(*edges.tolist(), strict=True))
    graph.add_nodes_from(range(60))
    graph.remove_edges_from([*networkx.selfloop_edges(graph)])
    parts = [graph.subgraph(nodes) for nodes in networkx.connected_components(graph)]
    two = sum(len(part) > 1 and networkx.is_bipartite(part) for part in parts)  # alone, a node is its own neighbour
    assert _components(Adjacency.from_edges(edges, 60)) == (len(parts), two)
