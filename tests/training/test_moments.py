"""AdamW with short moments: torch's step, numbers rounded as often up as they are owed, and a state that resumes."""

import numpy as np
import pytest
import torch
from torch import nn

from labeldeconv.training import moments
from labeldeconv.training.moments import MOMENTS, CompactAdamW, is_compact, lower, moment_bytes, raised

ALL = slice(None)


def parameters():
    """A matrix, a stack of matrices, a vector and a narrow matrix."""
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(*shape)) for shape in ((6, 32), (3, 2, 16), (5,), (4, 3))]


def trained(states, steps, start=None, **options):
    """Parameters and optimizer after steps with random gradients, after `start` steps if that has a state to go on."""
    held = parameters()
    options = {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.99), **options}
    kind = torch.optim.AdamW if states is None else CompactAdamW
    optimizer = kind(held, **options) if states is None else CompactAdamW(held, states, **options)
    first = 0
    if start is not None:
        first, (weights, state) = start[0], start[1]
        for parameter, value in zip(held, weights, strict=True):
            parameter.data.copy_(value)
        optimizer.load_state_dict(state)
    for step in range(first, steps):
        for i, parameter in enumerate(held):
            generator = torch.Generator().manual_seed(100 * step + i)
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
        optimizer.zero_grad()
    return held, optimizer


@pytest.mark.parametrize("fused", [False, True])
def test_float32_is_torchs_to_the_bit(fused):
    for ours, theirs in zip(trained("float32", 5, fused=fused)[0], trained(None, 5, fused=fused)[0], strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("states", "apart"), [("bfloat16", 0.01), ("8bit", 0.1)])
def test_weights_stay_near_those_of_torch(states, apart, fused):
    """And those of vectors and narrow rows are equal."""
    for ours, theirs, start in zip(
        trained(states, 40, fused=fused)[0], trained(None, 40, fused=fused)[0], parameters(), strict=True
    ):
        assert torch.equal(ours, theirs) == (not is_compact(ours, states))
        assert (ours - theirs).norm() <= apart * (theirs - start).norm()


def kept(values, states, count=1):
    """A matrix of values as a moment each, and what is read back of them."""
    like = nn.Parameter(values)
    state = CompactAdamW([like], states).start(like)
    for name in MOMENTS:
        lower(state, name, ALL, values if name == "exp_avg" else values.abs(), torch.tensor(float(count)))
    return [raised(state, name, ALL) for name in MOMENTS]


@pytest.mark.parametrize(("states", "step"), [("bfloat16", 2**-7), ("8bit", 2**-3)])
def test_what_is_kept_of_a_number(states, step):
    """It is within one step of the format, over 16 octaves; zeros and signs stay."""
    values = torch.logspace(-4, 0, 96, base=10).reshape(3, 32) * 3e-5
    values[1] *= -1
    values[2, ::2] = 0.0
    first, second = kept(values, states)
    torch.testing.assert_close(first, values, rtol=step, atol=0)
    held = values != 0
    torch.testing.assert_close(second[held], values.abs()[held], rtol=step, atol=0)
    assert (second >= 0).all()
    assert (second[~held] <= values.abs().max() * 2**-31).all()
    for zeros in kept(torch.zeros(2, 16), states):
        assert torch.equal(zeros, torch.zeros(2, 16))


def test_eight_bits_reach_down_16_octaves_and_32():
    """Below, the first moment is 0 and the second is not: a weight without a gradient rests, and none is thrown."""
    values = 2.0 ** -torch.arange(0, 48.0, 3).reshape(1, 16)
    first, second = kept(values, "8bit")
    assert ((first > 0) == (values > 2.0**-16)).all()
    near = values > 2.0**-31
    torch.testing.assert_close(second[near], values[near], rtol=2**-3, atol=0)
    assert (second[~near] == second.min()).all()
    assert 2.0**-33 < second.min() < 2.0**-31


@pytest.mark.parametrize(("states", "error"), [("bfloat16", 0.01), ("8bit", 0.05)])
def test_over_the_steps_nothing_is_lost_to_rounding(states, error):
    """The second moment after 1,500 steps of a thousandth each, against float64; and v falls when gradients vanish.

    Rounded to the nearest the mean would be 19% too high in bfloat16 and 75% too low in 8 bits.
    """
    parameter, generator = nn.Parameter(torch.zeros(4, 64)), torch.Generator().manual_seed(1)
    optimizer = CompactAdamW([parameter], states, lr=1e-3, fused=True)
    scale, expected = np.logspace(-4, 0, 64), np.zeros((4, 64))
    for _ in range(1500):
        gradient = torch.randn(4, 64, generator=generator) * torch.from_numpy(scale).float()
        expected = 0.999 * expected + 0.001 * gradient.double().numpy() ** 2
        parameter.grad = gradient
        optimizer.step()
    found = raised(optimizer.state[parameter], "exp_avg_sq", ALL).numpy()
    assert np.mean(found / expected) == pytest.approx(1, abs=error)
    for _ in range(700):
        parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    fallen = raised(optimizer.state[parameter], "exp_avg_sq", ALL).numpy()
    assert np.mean(fallen / found) == pytest.approx(0.999**700, rel=0.06)


@pytest.mark.parametrize("states", ["bfloat16", "8bit"])
def test_pieces_change_nothing(states, monkeypatch):
    whole = trained(states, 6, fused=True)[0]
    monkeypatch.setattr(moments, "PIECE", 64)
    for one, other in zip(whole, trained(states, 6, fused=True)[0], strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("states", ["float32", "bfloat16", "8bit"])
def test_a_loaded_state_goes_on_to_the_bit(states):
    straight, last = trained(states, 9)
    weights, optimizer = trained(states, 4)
    resumed, after = trained(states, 9, start=(4, (weights, optimizer.state_dict())))
    for one, other in zip(straight, resumed, strict=True):
        assert torch.equal(one, other)
        for name, tensor in last.state[one].items():
            assert (name, tensor.dtype) == (name, after.state[other][name].dtype)
            assert torch.equal(tensor, after.state[other][name])


@pytest.mark.parametrize("states", ["float32", "bfloat16", "8bit"])
def test_the_bytes_that_are_told_are_those_that_are_held(states):
    held, optimizer = trained(states, 1)
    found = sum(tensor.nbytes for state in optimizer.state.values() for name, tensor in state.items() if name != "step")
    assert moment_bytes(held, states) == found
    held[0].requires_grad_(False)
    assert moment_bytes(held, states) < found
