import numpy as np
from conftest import random_edges

from labeldeconv.adjacency import Adjacency
from labeldeconv.labels.hops import hop_labels, write_hop_labels


def test_on_disk_equals_in_memory(tmp_path):
    n, edges = 50, random_edges(50, 70)
    Y = np.random.default_rng(0).random((n, 3), dtype=np.float32)
    write_hop_labels(Adjacency.from_edges(edges, n), Y, 4, tmp_path / "k.npy")
    K = np.load(tmp_path / "k.npy", mmap_mode="r")
    assert K.shape == (n, 5, 3)
    np.testing.assert_array_equal(K, hop_labels(edges, Y, 4))
    np.testing.assert_array_equal(K[:, 0], Y)


def test_isolated_node_keeps_its_label():
    K = hop_labels(np.array([[0], [1]]), np.eye(3, dtype=np.float32), hops=3)
    np.testing.assert_array_equal(K[2], np.tile([0, 0, 1], (4, 1)))
