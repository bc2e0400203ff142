"""What leads to a node, against dense powers of A-hat."""

import numpy as np
import pytest
import torch

from labeldeconv.prediction.reach import Layers, hop_weights, part_of_graph, within
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.grown import GrownAdjacency
from labeldeconv.settings.models import AdjacencyConfig
from tests.samples import random_edges

N = 30
EDGES = random_edges(N, 40)
NEW = np.array([[30, 3, 31], [5, 30, 30]])
KINDS = [
    AdjacencyConfig(),
    AdjacencyConfig(normalization="symmetric", self_loops=True),
    AdjacencyConfig(undirected=False),
]


def grown(config, new=True):
    adj = Adjacency.from_edges(EDGES, N, config)
    return GrownAdjacency.of(adj, config, 2 if new else 0, NEW if new else NEW[:, :0])


def dense(config, new=True):
    edges = np.concatenate([EDGES, NEW], axis=1) if new else EDGES
    return Adjacency.from_edges(edges, N + 2 if new else N, config).dense()


@pytest.mark.parametrize("config", KINDS)
@pytest.mark.parametrize("node", [3, 30])
def test_hop_weights_are_rows_of_powers(config, node):
    A = dense(config)
    for i, (nodes, weights) in enumerate(hop_weights(grown(config), node, 3)):
        row = np.zeros(N + 2)
        row[nodes] = weights
        np.testing.assert_allclose(row, np.linalg.matrix_power(A, i)[node], atol=1e-6)
        assert (np.diff(nodes) > 0).all()
        assert (weights != 0).all()


@pytest.mark.parametrize("config", KINDS)
@pytest.mark.parametrize("node", [3, 30])
def test_distances_count_edges(config, node):
    A = (dense(config) > 0).astype(float)
    powers = [np.linalg.matrix_power(A + np.eye(N + 2), i)[node] > 0 for i in range(4)]
    want = {int(u): i for i in (3, 2, 1, 0) for u in np.flatnonzero(powers[i])}
    nodes, distance = within(grown(config), node, 3)
    assert dict(zip(nodes.tolist(), distance.tolist(), strict=True)) == want


def test_a_search_may_end_early():
    whole = grown(KINDS[0])
    few, _ = within(whole, 30, 9, most=1)
    assert 1 < len(few) < len(within(whole, 30, 9)[0])


def test_layers_are_the_steps_on_the_whole_graph():
    config = KINDS[1]
    A, x = torch.from_numpy(dense(config)).float(), torch.randn(N + 2, 4, generator=torch.Generator().manual_seed(0))
    steps = [lambda h, rows: torch.from_numpy(rows.dense()).float() @ h.relu() + h[: rows.num_nodes]] * 3
    h = x
    for _ in steps:
        h = A @ h.relu() + h
    for node in (7, 31):
        layers = Layers(steps, grown(config), node)
        torch.testing.assert_close(layers(x[layers.sources]), h[[node]])
        assert set(layers.sources.tolist()) == set(within(grown(config), node, 3)[0].tolist())


@pytest.mark.parametrize("config", KINDS)
def test_a_part_has_the_factors_of_the_whole(config):
    part = grown(config)
    nodes, _ = within(part, 30, 2)
    A = dense(config)[np.ix_(nodes, nodes)]
    np.testing.assert_allclose(part_of_graph(part, nodes).dense(), A, atol=1e-6)
    assert len(nodes) < N  # else nothing was left out
