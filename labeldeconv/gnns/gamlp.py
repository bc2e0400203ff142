"""GAMLP: H = MLP(sum_i theta_i A-hat^i X) + MLP(H_Y) with attention over the hops (Appendix A.2); psi is the MLP.

As published (Zhang et al., KDD 2022, and its code): an MLP of two layers with PReLU per hop; attention over the hops; a
residual of X; and an MLP of four layers, each with its own input and a share of the first layer's output added. Where
the published code normalises the logits too, the paper's psi(X) = MLP(X) is the default and the code's way is
`output_norm`. PyG has no GAMLP. Fed by rows of features propagated once, so its memory is set by the batch, not by the
graph.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import MLP

from labeldeconv.gnns.base import GNN, ROW_NORMALISED, register, require
from labeldeconv.gnns.hidden import Between, at_once, plainly, through
from labeldeconv.gnns.label_branch import LabelBranch
from labeldeconv.gnns.norms import make_norm, mlp_norm
from labeldeconv.propagation.dropout import hops_first
from labeldeconv.propagation.hop_sum import hop_sum


@register("gamlp")
class GAMLP(GNN):
    """Graph attention multi-layer perceptron.

    Args:
        in_dim: d of the features.
        out_dim: c classes.
        layers: hops N; N + 1 feature matrices A-hat^0 X .. A-hat^N X go in.
        hidden: width.
        dropout: between layers.
        attention: 'recursive' scores a hop against the mean of those before it, 'jk' against all of them together.
        input_dropout: on the features.
        attention_dropout: on the hop weights; the authors have 0.5.
        hop_layers: layers of an own MLP per hop before the attention; 0 for none. The authors have 2.
        jk_layers: layers of the MLP of all hops that 'jk' scores against.
        mlp_layers: layers of the initial-residual MLP; the authors have 4.
        alpha: share of its first layer's output in each of its layers.
        norm: 'batch', 'layer' or 'none' inside the MLPs per hop.
        head_norm: the same inside the initial-residual MLPs; 'layer' in the code of label deconvolution.
        output_norm: the same on the logits, 'none' in the paper; 'batch' in the code of GAMLP, 'layer' in that of label
            deconvolution.
        label_hops: hops of the label branch; 0 for none. The authors have 9.
        label_layers: its MLP's layers.
        label_dropout: on the label inputs.
    """

    feed = "rows"
    zero_is_none = ("hop_layers",)
    suggests = ROW_NORMALISED

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        layers: int = 2,
        hidden: int = 256,
        dropout: float = 0.5,
        attention: str = "recursive",
        input_dropout: float = 0.2,
        attention_dropout: float = 0.5,
        hop_layers: int = 2,
        jk_layers: int = 4,
        mlp_layers: int = 4,
        alpha: float = 0.5,
        norm: str = "batch",
        head_norm: str = "batch",
        output_norm: str = "none",
        label_hops: int = 0,
        label_layers: int = 4,
        label_dropout: float = 0.0,
    ) -> None:
        super().__init__(in_dim, out_dim)
        require(attention in ("recursive", "jk"), GAMLP, "attention", "'recursive' or 'jk'", attention)
        require(label_hops >= 0, GAMLP, "label_hops", "of at least 0", label_hops)
        self._hops, self.attention, self.label_hops = layers, attention, label_hops
        width = hidden if hop_layers else in_dim
        self.hop_mlps = nn.ModuleList(
            MLP([in_dim, *[hidden] * hop_layers], dropout=dropout, act=_prelu(hop_layers), **mlp_norm(norm))
            for _ in range(layers + 1 if hop_layers else 0)
        )
        jk, inner = attention == "jk", (alpha, dropout, head_norm)
        self.reference = InitialResidualMLP(width * (layers + 1), hidden, hidden, jk_layers, *inner) if jk else None
        self.attend = nn.Linear((hidden if jk else width) + width, 1)
        self.residual = nn.Linear(in_dim, width, bias=False)
        self.activation = nn.PReLU()
        self.head = InitialResidualMLP(width, hidden, out_dim, mlp_layers, *inner, output_norm)
        branch = (out_dim, hidden, label_layers, dropout, label_dropout)
        self.labels = LabelBranch(*branch, activation="prelu") if label_hops else None
        self.dropout, self.input_dropout, self.attention_dropout = dropout, input_dropout, attention_dropout
        self.psi_exact = not hop_layers  # with MLPs per hop, psi keeps that of hop 0 only

    @property
    def hops(self) -> int:
        """N: the hops whose features go in, beside the node's own."""
        return self._hops

    @property
    def hop_parts(self) -> Sequence[nn.Module]:
        """The MLP of every hop."""
        return list(self.hop_mlps)

    @property
    def output_bias(self) -> Tensor:
        """Of the last linear map, or of the normalisation after it."""
        return self.head.output_bias

    def forward(self, hop_features: Tensor, label_inputs: Tensor | None = None) -> Tensor:
        """Rows (b, h, d) of hop features, and (b, c) of label inputs, to logits (b, c)."""
        x = hops_first(hop_features, self.input_dropout, self.training)  # (h, b, d)
        z = [through(self.hop_mlps[i], x_i) if self.hop_mlps else x_i for i, x_i in enumerate(x)]  # h times (b, width)
        out = self._head(self._mixed(z, self._scores(z)), x[0], at_once)
        return out if self.labels is None or label_inputs is None else out + self.labels(label_inputs)

    def psi(self, x: Tensor) -> Tensor:
        """Features (b, d) to logits (b, c): hop 0 alone, whose attention is then 1, without the label branch."""
        x = F.dropout(x, self.input_dropout, self.training)
        return self._head(self.hop_mlps[0](x) if self.hop_mlps else x, x, plainly)

    def _scores(self, z: list[Tensor]) -> list[Tensor]:
        """The score (b, 1) of every hop against its reference.

        The map of a hop beside its reference is the sum of the maps of both, and that of a mean the mean of maps. So
        nothing but (b, 1) goes through the recursion: 2.7 GB less at the published 50,000 rows of 512.
        """
        width = z[0].shape[1]
        of_reference, of_hop = self.attend.weight.split([self.attend.in_features - width, width], 1)
        own = [F.linear(z_i, of_hop, self.attend.bias) for z_i in z]
        scores: list[Tensor] = []
        if self.reference is not None:
            together = self.reference(torch.cat(z, 1), at_once)
            together = at_once(together, None, self.activation, self.dropout, self.training)  # (b, hidden)
            against = F.linear(together, of_reference)
            return [F.leaky_relu(against + own_i, 0.2) for own_i in own]
        seen = [F.linear(z_i, of_reference) for z_i in z]
        for i, own_i in enumerate(own):
            against = self._mixed(seen[:i], scores) if i else seen[0]
            scores.append(F.leaky_relu(against + own_i, 0.2))
        return scores

    def _mixed(self, z: list[Tensor], scores: list[Tensor]) -> Tensor:
        """sum_i theta_i z_i (b, width) with theta the softmax of the scores over hops, under attention dropout."""
        theta = F.dropout(torch.cat(scores, 1).softmax(1), self.attention_dropout, self.training)  # (b, h)
        return hop_sum(theta, z, self.training)

    def _head(self, z: Tensor, x: Tensor, between: Between) -> Tensor:
        h = between(z + self.residual(x), None, self.activation, self.dropout, self.training)
        return self.head(h, between)


class InitialResidualMLP(nn.Module):
    """h_0 = norm(x W_0) + x, then h_i = norm(((1 - alpha) g + alpha h_0) W_i) + g with g = dropout(PReLU(h_{i-1})).

    A last linear map follows, on dropout(PReLU(h)); x is added to h_0 where the widths are the same.

    Args:
        in_dim: width of the input.
        hidden: width.
        out_dim: width of the output.
        layers: linear layers in all.
        alpha: share of h_0, the first layer's output before its activation.
        dropout: between layers.
        norm: 'batch', 'layer' or 'none'.
        output_norm: the same after the last linear map.
    """

    def __init__(
        self,
        in_dim: int,
        hidden: int,
        out_dim: int,
        layers: int,
        alpha: float,
        dropout: float,
        norm: str,
        output_norm: str = "none",
    ) -> None:
        super().__init__()
        widths = [in_dim, *[hidden] * (layers - 1)]
        self.linears = nn.ModuleList(nn.Linear(a, hidden, bias=norm == "none") for a in widths[:-1])
        self.norms = nn.ModuleList(make_norm(norm, hidden) for _ in self.linears)
        self.activation = nn.PReLU() if layers > 1 else nn.Identity()  # one for all layers
        self.output = nn.Linear(widths[-1], out_dim, bias=output_norm == "none")
        self.output_norm = make_norm(output_norm, out_dim)
        self.alpha, self.dropout = alpha, dropout

    @property
    def output_bias(self) -> Tensor:
        """Of the last linear map, or of the normalisation after it."""
        return self.output.bias if self.output.bias is not None else self.output_norm.bias

    def forward(self, x: Tensor, between: Between = plainly) -> Tensor:
        """(b, in_dim) to (b, out_dim)."""
        rest, fast = (self.activation, self.dropout, self.training), between is at_once
        g = x
        for i, (linear, norm) in enumerate(zip(self.linears, self.norms, strict=True)):
            if i == 0:
                first = norm(linear(x))
                first = first + x if first.shape == x.shape else first
                g = between(first, None, *rest)
            else:
                mixed = torch.lerp(g, first, self.alpha) if fast else (1 - self.alpha) * g + self.alpha * first
                g = between(linear(mixed), norm, *rest, added=g)
        return self.output_norm(self.output(g))


def _prelu(layers: int) -> nn.PReLU | str:
    """The activation of PyG's MLP, one for all its layers; a single layer has none to train."""
    return nn.PReLU() if layers > 1 else "relu"
