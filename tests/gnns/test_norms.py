"""BatchNorm behind the encoder: batches of one, moving averages, LayerNorm."""

import pytest
import torch
from torch import nn

from labeldeconv.errors import ConfigError
from labeldeconv.gnns.base import GNNS, Psi
from labeldeconv.gnns.norms import RunningNorm, SmallBatchNorm, make_norm, mlp_norm

d, c = 5, 3


@pytest.mark.parametrize("norm", ["batch", "running", "layer"])
@pytest.mark.parametrize("name", GNNS)
def test_psi_trains_on_any_batch(name, norm):
    torch.manual_seed(0)
    gnn = GNNS[name](d, c, layers=3, hidden=8)
    psi = Psi(gnn, norm).train()
    for rows in (1, 4, 9):
        x = torch.randn(rows, d, requires_grad=True)
        psi(x).square().sum().backward()
        assert x.grad.isfinite().all()
    kinds = {type(m).__name__ for m in gnn.modules()}
    assert "BatchNorm1d" not in kinds


def test_scale_and_shift_are_kept_and_batch_is_batch_norm():
    gnn = GNNS["gcn"](d, c, hidden=8, dropout=0.0).train()
    nn.init.uniform_(gnn.norms[0].weight)
    x = torch.randn(6, d)
    expected, weight = gnn.psi(x), gnn.norms[0].weight.detach().clone()
    torch.testing.assert_close(Psi(gnn, "batch")(x), expected)
    layer = Psi(gnn, "layer")  # replaces what is there, whatever it was
    torch.testing.assert_close(layer.gnn.norms[0].weight, weight)
    assert isinstance(layer.gnn.norms[0], nn.LayerNorm)


def test_running_rows_do_not_see_their_batch():
    torch.manual_seed(0)
    gnn = GNNS["gcn"](d, c, hidden=8, dropout=0.0)
    psi = Psi(gnn, "running")
    data = 3 + 2 * torch.randn(400, d)
    for rows in data.split(4):
        psi.train()(rows)
    norm = gnn.norms[0]
    h = gnn.convs[0].lin(data) + gnn.convs[0].bias
    torch.testing.assert_close(norm.running_mean, h.mean(0), atol=1.0, rtol=0.3)
    psi.eval()
    torch.testing.assert_close(psi(data[:4])[0], psi(data[:1])[0])


def test_norm_names():
    assert isinstance(make_norm("none", 3), nn.Identity)
    assert mlp_norm("layer")["norm_kwargs"] == {"mode": "node"}
    assert mlp_norm("none") == {"norm": None}
    with pytest.raises(ConfigError, match="did you mean 'layer'"):
        make_norm("layr", 3)


@pytest.mark.parametrize(("momentum", "step"), [(0.25, 0.25), (None, 0.1)])
def test_moving_averages_by_hand(momentum, step):
    """From mean 0 and variance 1: both take a step towards the batch, the variance around the old mean, then serve."""
    norm = RunningNorm(1, momentum=momentum).train()
    x = torch.tensor([[2.0], [4.0]])
    out = norm(x)
    mean, var = step * 3.0, (1 - step) + step * 10.0
    assert norm.running_mean.item() == pytest.approx(mean)
    assert norm.running_var.item() == pytest.approx(var)
    torch.testing.assert_close(out, (x - mean) / (var + 1e-5) ** 0.5)
    norm.eval()(x)
    assert norm.running_mean.item() == pytest.approx(mean)  # moved in training alone


def test_a_batch_of_one_takes_the_moving_averages():
    norm = SmallBatchNorm(1).train()
    norm(torch.tensor([[2.0], [4.0]]))  # mean 0.3, variance 0.9 + 0.1 * 2
    torch.testing.assert_close(norm(torch.tensor([[5.0]])), torch.tensor([[4.7 / (1.1 + 1e-5) ** 0.5]]))
    torch.testing.assert_close(norm(torch.tensor([[1.0], [3.0]])), torch.tensor([[-1.0], [1.0]]), atol=1e-4, rtol=0)


def test_mlp_norms_by_name():
    assert mlp_norm("batch") == {"norm": "batch_norm"}
    assert mlp_norm("layer")["norm"] == "layer_norm"
    with pytest.raises(ConfigError, match="unknown"):
        mlp_norm("bach")
