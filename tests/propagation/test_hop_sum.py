"""The weighted sum over hops against torch's own operations."""

import pytest
import torch

from labeldeconv.propagation.hop_sum import SMALL, hop_sum


@pytest.mark.parametrize("rows", [5, 700])
def test_hop_sum_and_its_gradients(rows):
    torch.manual_seed(0)
    assert (rows * 130 >= SMALL) == (rows == 700)
    data = [torch.randn(rows, 3), *torch.randn(3, rows, 130)]
    grad, found = torch.randn(rows, 130), []
    for own in (True, False):
        theta, *z = (x.clone().requires_grad_() for x in data)
        out = hop_sum(theta, z, True) if own else sum(theta[:, [i]] * z_i for i, z_i in enumerate(z))
        out.backward(grad)
        found.append([out.detach(), theta.grad, *(z_i.grad for z_i in z)])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_outside_training_torch_does_it(monkeypatch):
    monkeypatch.setattr("labeldeconv.propagation.hop_sum._HopSum", None)
    theta, z = torch.randn(700, 2), list(torch.randn(2, 700, 130))
    torch.testing.assert_close(hop_sum(theta, z, False), theta[:, [0]] * z[0] + theta[:, [1]] * z[1])
