"""Edge features on the entries of A-hat: duplicates, directions, self-loops."""

import numpy as np
import torch

from labeldeconv.propagation import edge_features
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import AdjacencyConfig

CPU = torch.device("cpu")
#                 0->1 again 1->0 2->1 3->3 (dropped)
EDGES = np.array([[0, 0, 1, 2, 3], [1, 1, 0, 1, 3]])
VALUES = np.array([[10.0], [11.0], [12.0], [13.0], [14.0]], dtype=np.float32)


def table(config):
    adj = Adjacency.from_edges(EDGES, 4, config).with_edge_features(EDGES, VALUES)
    pairs = map(tuple, adj.edge_index(CPU).T.tolist())
    return dict(zip(pairs, adj.edge_values(CPU)[:, 0].tolist(), strict=True))


def test_own_direction_first_then_the_opposite():
    assert table(AdjacencyConfig()) == {(1, 0): 12.0, (0, 1): 10.0, (2, 1): 13.0, (1, 2): 13.0, (3, 3): 12.0}


def test_directed():
    got = table(AdjacencyConfig(undirected=False))
    assert got == {(1, 0): 12.0, (0, 1): 10.0, (2, 1): 13.0, (2, 2): 12.0, (3, 3): 12.0}


def test_an_edge_whose_opposite_would_stand_behind_the_last_entry():
    edges = np.array([[0, 2], [2, 1]])
    adj = Adjacency.from_edges(edges, 3, AdjacencyConfig(undirected=False)).with_edge_features(edges, VALUES[:2])
    pairs = map(tuple, adj.edge_index(CPU).T.tolist())
    assert dict(zip(pairs, adj.edge_values(CPU)[:, 0].tolist(), strict=True)) == {
        (0, 0): 10.5, (2, 1): 11.0, (0, 2): 10.0,
    }  # fmt: skip


def test_self_loops_get_the_mean():
    got = table(AdjacencyConfig(self_loops=True))
    assert [got[i, i] for i in range(4)] == [12.0] * 4


def test_without_features_and_without_edges():
    adj = Adjacency.from_edges(EDGES, 4)
    assert adj.edge_values(CPU) is None
    empty = Adjacency.from_edges(np.zeros((2, 0), int), 2).with_edge_features(np.zeros((2, 0), int), np.zeros((0, 3)))
    assert empty.edge_values(CPU).shape == (2, 3)


def test_float16_values_come_out_as_float32():
    adj = Adjacency.from_edges(EDGES, 4).with_edge_features(EDGES, VALUES.astype(np.float16))
    assert adj.edge_values(CPU).dtype == torch.float32


def test_values_in_threads_are_those_of_numpy(monkeypatch):
    """float32 goes through the kernel, float16 through numpy; a memory map, read-only, is as good."""
    monkeypatch.setattr(edge_features, "SMALL", 0)
    rng = np.random.default_rng(0)
    edges, values = rng.integers(0, 50, (2, 300)), rng.normal(size=(300, 3)).astype(np.float16)
    adj = Adjacency.from_edges(edges, 50, AdjacencyConfig(self_loops=True))
    expected = adj.with_edge_features(edges, values).edge_values(CPU)
    for dtype in (np.float16, np.float32, np.float64):
        given = values.astype(dtype)
        given.flags.writeable = False
        found = adj.with_edge_features(edges, given).edge_values(CPU)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
