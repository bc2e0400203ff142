"""weighted_sum and its gradients on both paths, against dense algebra."""

import pytest
import torch

from labeldeconv.propagation import weighted_sum as module
from labeldeconv.propagation.weighted_sum import weighted_sum

n, e = 20, 70


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weighted_sum_and_its_gradients(dtype, monkeypatch):
    """float32 on a CPU takes the numba kernels, float64 the chunks of torch; both equal dense algebra."""
    monkeypatch.setattr(module, "CHUNK", 16)
    torch.manual_seed(0)
    edges = torch.randint(0, n, (2, e))
    alpha = torch.rand(e, 3, dtype=dtype, requires_grad=True)
    x = torch.randn(n, 3, 4, dtype=dtype, requires_grad=True)
    out = weighted_sum(alpha, x, edges, n)
    dense = torch.zeros(n, 3, 4, dtype=dtype).index_add(0, edges[1], alpha[..., None] * x[edges[0]])
    torch.testing.assert_close(out, dense)
    upstream = torch.randn_like(out)
    mine = torch.autograd.grad(out, (alpha, x), upstream)
    torch.testing.assert_close(mine, torch.autograd.grad(dense, (alpha, x), upstream))


def test_by_hand():
    """Node 1 gets 2 x_0 + 3 x_1, node 0 nothing."""
    x = torch.tensor([[[1.0, 10.0]], [[2.0, 20.0]]])
    out = weighted_sum(torch.tensor([[2.0], [3.0]]), x, torch.tensor([[0, 1], [1, 1]]), 2)
    assert out.tolist() == [[[0.0, 0.0]], [[8.0, 80.0]]]


def test_fewer_targets_than_sources():
    """A block of a mini-batch: the first 3 of 20 sources are targets."""
    torch.manual_seed(0)
    edges = torch.stack([torch.randint(0, n, (e,)), torch.randint(0, 3, (e,))])
    alpha, x = torch.rand(e, 2), torch.randn(n, 2, 4)
    torch.testing.assert_close(weighted_sum(alpha, x, edges, 3), weighted_sum(alpha, x, edges, n)[:3])


@pytest.mark.parametrize("types", [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.bfloat16)])
def test_low_precision_is_summed_in_float32(types):
    """Autocast gives weights and inputs of different types; gradients come back in the types of what was given."""
    torch.manual_seed(0)
    edges = torch.randint(0, n, (2, e))
    alpha = torch.rand(e, 3, dtype=types[0], requires_grad=True)
    x = torch.randn(n, 3, 4, dtype=types[1], requires_grad=True)
    out = weighted_sum(alpha, x, edges, n)
    dense = torch.zeros(n, 3, 4).index_add(0, edges[1], alpha.float()[..., None] * x.float()[edges[0]])
    torch.testing.assert_close(out, dense)
    out.sum().backward()
    assert (alpha.grad.dtype, x.grad.dtype) == types


@pytest.mark.parametrize(("dtype", "kernels"), [(torch.float32, True), (torch.float64, False)])
def test_kernels_work_on_every_head_and_every_edge_of_float32(dtype, kernels, monkeypatch):
    """Bounds of the chunks: heads in both sums, edges in the products; float64 is left to torch."""
    bounds, real = [], module.run_chunks

    def run_chunks(work, cuts):
        bounds.append(cuts.tolist())
        real(work, cuts)

    monkeypatch.setattr(module, "run_chunks", run_chunks)
    alpha = torch.rand(e, 3, dtype=dtype, requires_grad=True)
    x = torch.randn(n, 3, 4, dtype=dtype, requires_grad=True)
    weighted_sum(alpha, x, torch.randint(0, n, (2, e)), n).sum().backward()
    if not kernels:
        assert bounds == []
        return
    forward, backward, products = bounds
    assert forward == backward == [0, 1, 2, 3]
    assert products == sorted(products)
    assert (products[0], products[-1]) == (0, e)
