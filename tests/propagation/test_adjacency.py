"""A-hat by every setting against dense matrices, and its gradient."""

import numpy as np
import pytest
import torch

from labeldeconv.propagation.adjacency import Adjacency, convolve, propagate
from labeldeconv.settings.models import AdjacencyConfig
from tests.samples import random_edges

CONFIGS = [
    AdjacencyConfig(normalization=norm, self_loops=loops, undirected=both)
    for norm in ("row", "symmetric")
    for loops in (False, True)
    for both in (False, True)
]


def reference(edges: np.ndarray, n: int, config: AdjacencyConfig) -> np.ndarray:
    """A-hat written down densely."""
    A = np.zeros((n, n))
    A[edges[1], edges[0]] = 1
    if config.undirected:
        A = np.maximum(A, A.T)
    np.fill_diagonal(A, float(config.self_loops))
    A[A.sum(1) == 0] = np.eye(n)[A.sum(1) == 0]
    degree = A.sum(1)
    return A / degree[:, None] if config.normalization == "row" else A / np.sqrt(np.outer(degree, degree))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: "-".join(map(str, c.model_dump().values())))
def test_sparse_equals_dense(config):
    n, edges = 40, random_edges(40, 90)
    adj, A = Adjacency.from_edges(edges, n, config), reference(edges, n, config)
    x = np.random.default_rng(0).normal(size=(n, 5))
    np.testing.assert_allclose(adj.dense(), A, atol=1e-7)
    np.testing.assert_allclose(adj @ x, A @ x, atol=1e-6)
    np.testing.assert_allclose(adj.transposed @ x, A.T @ x, atol=1e-6)
    np.testing.assert_allclose(adj.on(torch.device("cpu")).to_dense(), A, atol=1e-6)
    for i, hop in enumerate(propagate(adj, x, 3)):
        np.testing.assert_allclose(hop, np.linalg.matrix_power(A, i) @ x, atol=1e-6)


def test_hand_computed():
    adj = Adjacency.from_edges(np.array([[0, 1], [1, 2]]), 4)
    hops = list(propagate(adj, np.array([[4.0], [8], [0], [5]]), 2))
    assert hops[1].ravel().tolist() == [8, 2, 8, 5]  # node 3 is isolated and keeps its own
    assert hops[2].ravel().tolist() == [2, 8, 2, 5]


def test_gradient_equals_numeric():
    adj = Adjacency.from_edges(random_edges(8, 12), 8, AdjacencyConfig(undirected=False))
    x = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    # 1/degree is kept in float32, so numeric and exact gradients agree to its precision
    assert torch.autograd.gradcheck(lambda v: convolve(adj, v), x, atol=1e-6)


def test_propagate_keeps_torch_on_the_tape():
    adj = Adjacency.from_edges(random_edges(8, 12), 8)
    x = torch.randn(8, 3, requires_grad=True)
    sum(h.sum() for h in propagate(adj, x, 2)).backward()
    A = torch.tensor(adj.dense(), dtype=torch.float32)
    expected = (torch.ones(8) + A.T @ torch.ones(8) + A.T @ A.T @ torch.ones(8))[:, None].expand(8, 3)
    torch.testing.assert_close(x.grad, expected)


def test_bit_equal_whatever_the_threads():
    adj = Adjacency.from_edges(random_edges(500, 4000), 500)
    x = np.random.default_rng(0).random((500, 17), dtype=np.float32)
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(adj @ x)
        assert torch.get_num_threads() == threads  # numba shares torch's OpenMP runtime and must not reset it
    torch.set_num_threads(1)
    assert np.array_equal(*results)


def test_row_sums_stay_one():
    adj = Adjacency.from_edges(random_edges(200, 300), 200)
    last = list(propagate(adj, np.full((200, 2), 0.5, np.float32), 6))[-1]
    np.testing.assert_allclose(last.sum(1), 1, atol=1e-6)


def test_no_edges_is_identity():
    adj = Adjacency.from_edges(np.zeros((2, 0), np.int32), 3)
    np.testing.assert_array_equal(adj.dense(), np.eye(3))


def test_identity_is_every_node_alone():
    """The same matrix as a graph without edges, without scales to multiply by."""
    adj = Adjacency.identity(5)
    np.testing.assert_array_equal(adj.dense(), np.eye(5))
    x = np.random.default_rng(0).random((5, 3), dtype=np.float32)
    np.testing.assert_array_equal(adj @ x, x)
    np.testing.assert_array_equal(adj.transposed @ x, x)
    assert adj.edge_index(torch.device("cpu")).tolist() == [[0, 1, 2, 3, 4]] * 2
    assert Adjacency.identity(0).num_nodes == 0


def test_low_precision_is_convolved_in_float32():
    """bfloat16, as autocast gives it to a GNN, against dense algebra; the gradient comes back in bfloat16."""
    edges = np.random.default_rng(0).integers(0, 12, (2, 30))
    adj = Adjacency.from_edges(edges, 12, AdjacencyConfig(normalization="symmetric", self_loops=True))
    dense = torch.from_numpy(adj.dense()).float()
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = convolve(adj, x)
    torch.testing.assert_close(out, dense @ x.detach().float())
    out.sum().backward()
    assert x.grad.dtype == torch.bfloat16
    torch.testing.assert_close(x.grad, (dense.T @ torch.ones(12, 3)).bfloat16())


def test_entries_of_some_rows():
    adj = Adjacency.from_edges(np.array([[0, 1, 3], [1, 2, 1]]), 5)
    indptr, indices = adj.rows_of(np.array([4, 1]))
    assert (indptr.tolist(), indices.tolist()) == ([0, 1, 4], [4, 0, 2, 3])  # a lone node has itself
    assert adj.rows_of(np.empty(0, np.int64))[1].tolist() == []
