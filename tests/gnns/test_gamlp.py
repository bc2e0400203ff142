"""GAMLP: both attentions and the initial residual by hand."""

import torch

from labeldeconv.gnns.gamlp import GAMLP, InitialResidualMLP

n, d, c = 12, 6, 4


def test_gamlp_recursive_attention_by_hand():
    """theta_i from the score of hop i against the attention-weighted mean of those before it (GAMLP, eq. 7)."""
    gnn = GAMLP(d, c, layers=2, hidden=8, hop_layers=0).eval()
    z = [torch.randn(n, d) for _ in range(3)]

    def score(reference, hop):
        return torch.nn.functional.leaky_relu(gnn.attend(torch.cat([reference, hop], 1)), 0.2)

    s0 = score(z[0], z[0])
    s1 = score(z[0], z[1])
    w = torch.cat([s0, s1], 1).softmax(1)
    s2 = score(w[:, :1] * z[0] + w[:, 1:] * z[1], z[2])
    torch.testing.assert_close(gnn._weights(z), torch.cat([s0, s1, s2], 1).softmax(1))


def test_jk_attention_by_hand():
    """Every hop is scored against one reference: an MLP of all hops beside each other."""
    gnn = GAMLP(d, c, layers=1, hidden=8, hop_layers=0, attention="jk").eval()
    z = [torch.randn(n, d) for _ in range(2)]
    reference = gnn.reference(torch.cat(z, 1))
    scores = [gnn.attend(torch.cat([reference, hop], 1)) for hop in z]
    expected = torch.nn.functional.leaky_relu(torch.cat(scores, 1), 0.2).softmax(1)
    torch.testing.assert_close(gnn._weights(z), expected)


def test_initial_residual_by_hand():
    """h_1 = relu(x), h_2 = relu(2 (0.75 h_1 + 0.25 h_1)), h_3 = relu(2 (0.75 h_2 + 0.25 h_1)), then 10 h_3."""
    mlp = InitialResidualMLP(1, 1, 1, layers=4, alpha=0.25, dropout=0.0, norm="none")
    with torch.no_grad():
        for linear, weight in zip(mlp.linears, (1.0, 2.0, 2.0), strict=True):
            linear.weight.fill_(weight)
            linear.bias.zero_()
        mlp.output.weight.fill_(10.0)
        mlp.output.bias.zero_()
    assert mlp(torch.tensor([[4.0]])).item() == 10 * 2 * (0.75 * 8 + 0.25 * 4)
