"""Hidden layers: in one kernel or by torch, the same numbers; psi and evaluation always by torch."""

from functools import partial

import pytest
import torch
from torch import nn
from torch_geometric.nn import MLP

from labeldeconv.gnns.gamlp import GAMLP
from labeldeconv.gnns.hidden import at_once, plainly, through
from labeldeconv.gnns.norms import RunningNorm, SmallBatchNorm, make_mlp
from labeldeconv.gnns.sagn import SAGN
from labeldeconv.propagation import dropout as kernels

b, d = 700, 130


def test_kinds_that_go_at_once(monkeypatch):
    """BatchNorm of torch and of small batches do; moving averages in training and LayerNorm mean something else."""
    seen = []
    monkeypatch.setattr("labeldeconv.gnns.hidden.activated", lambda x, *rest: seen.append(type(rest[0])) or x)
    x = torch.randn(b, d)
    for norm in (nn.BatchNorm1d(d), SmallBatchNorm(d), RunningNorm(d), nn.LayerNorm(d), nn.BatchNorm1d(d).eval(), None):
        at_once(x, norm, nn.ReLU(), 0.5, True)
    at_once(x, None, nn.PReLU(d), 0.5, True)
    at_once(x, None, nn.Tanh(), 0.5, True)
    at_once(x, None, nn.ReLU(), 0.5, False)
    at_once(x[:4], None, nn.ReLU(), 0.5, True)
    assert seen == [nn.BatchNorm1d, SmallBatchNorm, type(None)]


@pytest.mark.parametrize("norm", [None, nn.LayerNorm(d)])
def test_at_once_is_plainly(norm):
    x, added = torch.randn(2, b, d)
    ways = [between(x, norm, nn.PReLU(), 0.0, True, added) for between in (plainly, at_once)]
    torch.testing.assert_close(*ways)


@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
@pytest.mark.parametrize("training", [True, False])
def test_through_is_the_mlp(norm, training):
    mlp = make_mlp(d, 5, 3, 120, 0.0, norm).train(training)
    x = torch.randn(b, d)
    torch.testing.assert_close(through(mlp, x), mlp(x), rtol=1e-4, atol=1e-4)
    assert isinstance(mlp, MLP)


@pytest.mark.parametrize(
    "make",
    [partial(SAGN, mlp_layers=2), GAMLP, partial(GAMLP, attention="jk")],
    ids=["sagn", "gamlp", "gamlp-jk"],
)
def test_a_training_step_is_that_of_torch(make, monkeypatch):
    """Without dropout, logits, all gradients and moving averages of a step with kernels and without are the same.

    Gradients are held to the length of their tensor, not entry by entry: the two ways round differently, and an
    activation within a rounding error of ReLU's kink gives or withholds a node's share. The worst of 510 was 1.7%.
    """
    torch.manual_seed(0)
    gnn = make(d, 5, hidden=120)
    for module in gnn.modules():
        for name in ("dropout", "input_dropout", "attention_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
        if isinstance(module, MLP):
            module.dropout = [0.0] * len(module.lins)
    rows, found, start = torch.randn(b, 3, d), [], {k: v.clone() for k, v in gnn.state_dict().items()}
    for small in (0, 1 << 40):
        for module in ("dropout", "hop_sum"):
            monkeypatch.setattr(f"labeldeconv.propagation.{module}.SMALL", small)
        gnn.load_state_dict(start)
        gnn.zero_grad()
        out = gnn(rows)
        out.square().mean().backward()
        found.append(([out.detach(), *(v.clone() for v in gnn.buffers())], [p.grad for p in gnn.parameters()]))
    assert kernels.SMALL == 1 << 40
    (ours, our_gradients), (theirs, their_gradients) = found
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    for mine, torchs in zip(our_gradients, their_gradients, strict=True):
        assert (mine - torchs).norm() <= 0.05 * torchs.norm() + 1e-6
