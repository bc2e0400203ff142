"""SAGN: psi is MLP_0, and attention over the hops by hand."""

import torch

from labeldeconv.gnns.sagn import SAGN

n, d, c = 12, 6, 4


def test_sagn_psi_is_mlp_0():
    gnn = SAGN(d, c, layers=2, hidden=8).eval()
    x = torch.randn(n, d)
    rows = torch.stack([x, *torch.randn(2, n, d)], 1)
    for mlp in gnn.mlps[1:]:  # hops without weight: their scores are far below
        mlp.forward = lambda x: torch.full((n, 8), -1e4) * torch.sign(gnn.attend_hop.weight)
    torch.testing.assert_close(gnn(rows), gnn.psi(x))


def test_attention_over_hops_by_hand():
    """theta_i = softmax of leaky_relu(a_self z_0 + a_hop z_i); the head gets sum theta_i z_i and a residual of x."""
    torch.manual_seed(0)
    gnn = SAGN(d, c, layers=2, hidden=8).eval()
    rows = torch.randn(n, 3, d)
    z = [mlp(rows[:, i]) for i, mlp in enumerate(gnn.mlps)]
    own = z[0] @ gnn.attend_self.weight.t()
    scores = torch.cat([own + z_i @ gnn.attend_hop.weight.t() for z_i in z], 1)  # (n, 3)
    theta = torch.where(scores > 0, scores, 0.2 * scores).softmax(1)
    mixed = sum(theta[:, i : i + 1] * z_i for i, z_i in enumerate(z))
    h = gnn.norm(mixed + rows[:, 0] @ gnn.residual.weight.t()).relu()
    torch.testing.assert_close(gnn(rows), gnn.head(h))
