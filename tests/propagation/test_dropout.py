"""Dropout by hashes, and the kernels of hidden layers, against torch's own operations."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labeldeconv.propagation.dropout import SMALL, activated, activates_here, dropout, hops_first

b, d = 700, 130  # more than one block of rows, and no whole number of vectors


def seeded(make, *args) -> Tensor:
    torch.manual_seed(0)
    return make(*args)


def test_a_share_is_dropped_and_the_mean_stays():
    x = torch.ones(2000, 500)
    for p in (0.1, 0.5, 0.75):
        y = seeded(dropout, x, p, True)
        assert set(y.unique().tolist()) == {0.0, float(torch.tensor(1 / (1 - p)))}
        assert abs(float((y == 0).float().mean()) - p) < 4 * (p * (1 - p) / x.numel()) ** 0.5


def test_draws_of_neighbouring_values_are_independent():
    kept = (seeded(dropout, torch.ones(2000, 500), 0.5, True) > 0).float() - 0.5
    pairs = [
        kept[:, 1:] * kept[:, :-1],
        kept[1:] * kept[:-1],
        kept[:, 16:] * kept[:, :-16],
        kept[1:, 1:] * kept[:-1, :-1],
    ]
    for product in pairs:
        assert abs(float(product.mean())) < 4 * 0.25 / product.numel() ** 0.5


def test_every_call_draws_anew_and_a_seed_repeats_it():
    x = torch.randn(b, d)
    torch.manual_seed(3)
    first, second = dropout(x, 0.5, True), dropout(x, 0.5, True)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.5, True), first)
    assert not torch.equal(first, second)


def test_draws_do_not_depend_on_threads():
    x, norm = torch.randn(b, d), nn.BatchNorm1d(d)
    threads = torch.get_num_threads()
    found = []
    for count in (1, 2):
        torch.set_num_threads(count)
        z = x.clone().requires_grad_()
        y = seeded(activated, z, norm, None, 0.5)
        y.sum().backward()
        found.append((seeded(dropout, x, 0.3, True), y.detach(), z.grad))
    torch.set_num_threads(threads)
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_the_gradient_passes_where_the_value_passed():
    x = torch.randn(b, d, requires_grad=True)
    y = dropout(x, 0.4, True)
    y.sum().backward()
    torch.testing.assert_close(x.grad, torch.where(y.detach() == 0, 0.0, 1 / 0.6))


@pytest.mark.parametrize("by_hop", [False, True])
def test_hops_first_is_dropout_of_every_hop(by_hop):
    """Whatever the order in memory, the same draws; hops are matrices without gaps."""
    rows = torch.randn(b, 3, d)
    laid = rows.transpose(0, 1).contiguous().transpose(0, 1) if by_hop else rows
    x = seeded(hops_first, laid, 0.2, True)
    assert x.is_contiguous()
    assert torch.equal(x, seeded(hops_first, rows, 0.2, True))
    whole = rows.transpose(0, 1)
    torch.testing.assert_close(x, torch.where(x == 0, 0.0, whole / 0.8))
    assert abs(float((x == 0).float().mean()) - 0.2) < 0.005
    assert torch.equal(hops_first(laid, 0.2, False), whole)


def test_few_values_and_other_types_are_left_to_torch():
    few, wide = torch.randn(4, 5), torch.randn(b, d, dtype=torch.float64)
    for x in (few, wide):
        assert torch.equal(seeded(dropout, x, 0.5, True), seeded(F.dropout, x, 0.5, True))
    assert few.numel() < SMALL <= wide.numel()
    assert not activates_here(few, nn.BatchNorm1d(5))
    assert not activates_here(wide, nn.BatchNorm1d(d))
    assert not activates_here(wide.float(), nn.BatchNorm1d(d, track_running_stats=False))


def expected(x, norm, slope, added):
    h = x if norm is None else norm(x)
    h = h if added is None else h + added
    return h.relu() if slope is None else F.prelu(h, slope)


@pytest.mark.parametrize(("normalised", "learned", "residual"), list(itertools.product([True, False], repeat=3)))
def test_activated_is_norm_activation_and_their_gradients(normalised, learned, residual):
    torch.manual_seed(1)
    data, more, grad = torch.randn(b, d) * 3 + 5, torch.randn(b, d), torch.randn(b, d)
    first = nn.BatchNorm1d(d)
    nn.init.uniform_(first.weight, 0.5, 2.0)
    nn.init.normal_(first.bias)
    second = nn.BatchNorm1d(d)
    second.load_state_dict(first.state_dict())
    found = []
    for norm, work in ((first, lambda x, n, s, a: activated(x, n, s, 0.0, a)), (second, expected)):
        x, added, slope = (v.clone().requires_grad_() for v in (data, more, torch.tensor([0.3])))
        y = work(x, norm if normalised else None, slope if learned else None, added if residual else None)
        y.backward(grad)
        found.append([y.detach(), x.grad, added.grad, slope.grad, norm.weight.grad, norm.bias.grad, *norm.buffers()])
    missing = [v is None for v in found[0][:6]]
    assert missing == [False, False, not residual, not learned, not normalised, not normalised]
    for mine, theirs in zip(*found, strict=True):
        if mine is not None or theirs is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_activated_drops_behind_the_activation():
    x, norm = torch.randn(b, d, requires_grad=True), nn.BatchNorm1d(d)
    y = seeded(activated, x, norm, None, 0.5)
    plain = expected(x, nn.BatchNorm1d(d), None, None)
    kept = y != 0
    torch.testing.assert_close(y, torch.where(kept, 2 * plain, 0.0), rtol=1e-5, atol=1e-5)
    assert abs(float(kept.float().mean()) - 0.25) < 0.01  # half of them positive, half of those kept
    y.sum().backward()
    mask = torch.where(kept, 2.0, 0.0)
    z = x.detach().clone().requires_grad_()
    (expected(z, nn.BatchNorm1d(d), None, None) * mask).sum().backward()
    torch.testing.assert_close(x.grad, z.grad, rtol=1e-4, atol=1e-4)
