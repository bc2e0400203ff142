"""GAMLP: both attentions, the MLP with its initial residual and what is trained, by hand; whole: test_published.py."""

import torch
from torch import nn

from labeldeconv.gnns.gamlp import GAMLP, InitialResidualMLP

n, d, c = 12, 6, 4


def test_gamlp_recursive_attention_by_hand():
    """theta_i from the score of hop i against the attention-weighted mean of those before it (GAMLP, eq. 7)."""
    gnn = GAMLP(d, c, layers=2, hidden=8, hop_layers=0).eval()
    z = [torch.randn(n, d) for _ in range(3)]

    def score(reference, hop):
        return nn.functional.leaky_relu(gnn.attend(torch.cat([reference, hop], 1)), 0.2)

    s0 = score(z[0], z[0])
    s1 = score(z[0], z[1])
    w = torch.cat([s0, s1], 1).softmax(1)
    s2 = score(w[:, :1] * z[0] + w[:, 1:] * z[1], z[2])
    torch.testing.assert_close(torch.cat(gnn._scores(z), 1), torch.cat([s0, s1, s2], 1))


def test_jk_attention_by_hand():
    """Every hop is scored against one reference: PReLU of an MLP of all hops beside each other."""
    gnn = GAMLP(d, c, layers=1, hidden=8, hop_layers=0, attention="jk").eval()
    z = [torch.randn(n, d) for _ in range(2)]
    reference = gnn.reference(torch.cat(z, 1))
    reference = torch.where(reference > 0, reference, 0.25 * reference)  # where PReLU starts
    scores = [gnn.attend(torch.cat([reference, hop], 1)) for hop in z]
    torch.testing.assert_close(torch.cat(gnn._scores(z), 1), nn.functional.leaky_relu(torch.cat(scores, 1), 0.2))


def test_initial_residual_by_hand():
    """x = 4: h_0 = 4 + 4 = 8; h_1 = 2 (0.75 * 8 + 0.25 * 8) + 8 = 24; h_2 = 2 (0.75 * 24 + 0.25 * 8) + 24 = 64; 640."""
    mlp = InitialResidualMLP(1, 1, 1, layers=4, alpha=0.25, dropout=0.0, norm="none")
    with torch.no_grad():
        for linear, weight in zip(mlp.linears, (1.0, 2.0, 2.0), strict=True):
            linear.weight.fill_(weight)
            linear.bias.zero_()
        mlp.output.weight.fill_(10.0)
        mlp.output.bias.zero_()
    assert mlp(torch.tensor([[4.0]])).item() == 640.0
    # x = -4, PReLU leaves a quarter: h_0 = -8, h_1 = 2 (0.75 * -2 - 2) - 2 = -9, h_2 = 2 (0.75 * -2.25 - 2) - 2.25.
    assert mlp(torch.tensor([[-4.0]])).item() == 10 * 0.25 * -9.625


def test_the_published_sizes_are_the_defaults():
    """Two layers per hop with one PReLU, four in the MLP with one PReLU, no normalised logits, no label dropout."""
    gnn = GAMLP(d, c, label_hops=1)
    assert [len(mlp.lins) for mlp in gnn.hop_mlps] == [2, 2, 2]
    assert all(isinstance(mlp.act, nn.PReLU) for mlp in [*gnn.hop_mlps, gnn.labels.mlp])
    assert len(gnn.head.linears) + 1 == 4
    assert isinstance(gnn.head.output_norm, nn.Identity)
    assert gnn.labels.input_dropout == 0.0
    assert gnn.output_bias is gnn.head.output.bias
    normed = GAMLP(d, c, output_norm="batch")
    assert normed.output_bias is normed.head.output_norm.bias


def test_attention_dropout_reaches_the_references_too():
    torch.manual_seed(0)
    gnn = GAMLP(d, c, layers=2, hop_layers=0, attention_dropout=0.9, dropout=0.0, input_dropout=0.0).train()
    z = [torch.randn(n, d) for _ in range(3)]
    first, second = gnn._scores(z), gnn._scores(z)
    assert torch.equal(first[0], second[0])
    assert not torch.equal(first[2], second[2])


def test_one_layer_is_a_linear_map_and_trains_nothing_else():
    mlp = InitialResidualMLP(3, 8, 2, layers=1, alpha=0.5, dropout=0.5, norm="batch")
    assert [name for name, _ in mlp.named_parameters()] == ["output.weight", "output.bias"]
    x = torch.randn(n, 3)
    torch.testing.assert_close(mlp(x), x @ mlp.output.weight.t() + mlp.output.bias)
