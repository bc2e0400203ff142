import numpy as np
import pytest
from conftest import random_edges

from labeldeconv.adjacency import Adjacency
from labeldeconv.config import AdjacencyConfig
from labeldeconv.gather import dequantize
from labeldeconv.labels.hops import hop_labels, write_hop_labels


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
