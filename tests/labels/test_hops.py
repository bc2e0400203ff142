"""Hop labels: on disk as in memory, by hand, and as a stage."""

import numpy as np
import pytest
import torch

from labeldeconv.graph.split import Split
from labeldeconv.labels.hops import hop_labels, hops, write_hop_labels
from labeldeconv.labels.pseudo import pseudo
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.fixed_point import dequantize
from labeldeconv.settings.models import AdjacencyConfig
from tests.samples import random_edges


@pytest.mark.parametrize(("store", "tolerance"), [("float32", 0), ("uint16", 0.51 / 65535)])
def test_on_disk_equals_in_memory(tmp_path, store, tolerance):
    n, edges = 50, random_edges(50, 70)
    Y = np.random.default_rng(0).random((n, 3), dtype=np.float32)
    write_hop_labels(Adjacency.from_edges(edges, n), Y, 4, tmp_path / "k.npy", store)
    K = np.load(tmp_path / "k.npy", mmap_mode="r")
    assert K.shape == (n, 5, 3)
    assert K.dtype == store
    error = np.abs(dequantize(K) - hop_labels(edges, Y, 4)).max(axis=(0, 2))
    assert (error <= tolerance * np.arange(1, 6)).all()  # one rounding per hop


def test_symmetric_products_leave_the_range_and_stay_float32(tmp_path):
    star = np.array([[0, 0, 0, 0], [1, 2, 3, 4]])
    adj = Adjacency.from_edges(star, 5, AdjacencyConfig(normalization="symmetric"))
    write_hop_labels(adj, np.ones((5, 1), np.float32), 1, tmp_path / "k.npy")
    K = np.load(tmp_path / "k.npy")
    assert K.dtype == np.float32
    assert K[0, 1, 0] == 2.0


def test_isolated_node_keeps_its_label():
    K = hop_labels(np.array([[0], [1]]), np.eye(3, dtype=np.float32), hops=3)
    np.testing.assert_array_equal(K[2], np.tile([0, 0, 1], (4, 1)))


def test_by_hand():
    """A path 0-1-2: K_1 of the middle is the mean of the ends, K_2 of an end is K_1 of the middle."""
    K = hop_labels(np.array([[0, 1], [1, 2]]), np.array([[1.0], [0.0], [0.5]]), hops=2)
    assert K[:, :, 0].tolist() == [[1.0, 0.0, 0.75], [0.0, 0.75, 0.0], [0.5, 0.0, 0.75]]


def test_tensors_are_taken_too():
    edges, Y = np.array([[0, 1], [1, 2]]), np.eye(3, dtype=np.float32)
    K = hop_labels(torch.from_numpy(edges), torch.from_numpy(Y), 2)
    np.testing.assert_array_equal(K, hop_labels(edges, Y, 2))


@pytest.mark.parametrize("store", ["uint16", "float32"])
def test_stage_equals_in_memory(small_graph, store):
    everyone = small_graph.with_split(Split(np.zeros(6, np.int8)))
    Y = pseudo(None, everyone)
    K = hops(Y, everyone, AdjacencyConfig(), 2, store)
    assert K.values.dtype == store
    np.testing.assert_allclose(dequantize(K.values), hop_labels(everyone.edges, Y.values, 2), atol=1.6e-5)
    assert K.content_key == hops(Y, everyone, AdjacencyConfig(), 2, store).content_key
    assert K.content_key != hops(Y, everyone, AdjacencyConfig(self_loops=True), 2, store).content_key
