"""GAMLP: H = MLP(sum_i theta_i A-hat^i X) + MLP(H_Y) with attention over the hops (Appendix A.2); psi is the MLP.

PyG has no GAMLP. Fed by rows of features propagated once, so its memory is set by the batch, not by the graph.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import MLP

from labeldeconv.gnns.base import GNN, register, require
from labeldeconv.gnns.label_branch import LabelBranch
from labeldeconv.gnns.norms import make_norm, mlp_norm


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
        hop_layers: layers of an own MLP per hop before the attention; 0 for none.
        mlp_layers: layers of the initial-residual MLP.
        alpha: share of its input in each of its layers.
        norm: 'batch', 'layer' or 'none' inside the MLPs.
        label_hops: hops of the label branch; 0 for none. The authors have 9.
        label_layers: its MLP's layers.
        label_dropout: on the label inputs.
    """

    feed = "rows"

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
        mlp_layers: int = 2,
        alpha: float = 0.5,
        norm: str = "batch",
        label_hops: int = 0,
        label_layers: int = 4,
        label_dropout: float = 0.5,
    ) -> None:
        super().__init__(in_dim, out_dim)
        require(attention in ("recursive", "jk"), GAMLP, "attention", "'recursive' or 'jk'", attention)
        require(label_hops >= 0, GAMLP, "label_hops", "of at least 0", label_hops)
        self._hops, self.attention, self.label_hops = layers, attention, label_hops
        width = hidden if hop_layers else in_dim
        mlp = {"dropout": dropout, **mlp_norm(norm)}
        self.hop_mlps = nn.ModuleList(
            MLP([in_dim, *[hidden] * hop_layers], **mlp) for _ in range(layers + 1 if hop_layers else 0)
        )
        self.reference = MLP([width * (layers + 1), hidden, width], **mlp) if attention == "jk" else None
        self.attend = nn.Linear(2 * width, 1)
        self.residual = nn.Linear(in_dim, width, bias=False)
        self.activation = nn.PReLU()
        self.head = InitialResidualMLP(width, hidden, out_dim, mlp_layers, alpha, dropout, norm)
        self.labels = LabelBranch(out_dim, hidden, label_layers, dropout, label_dropout) if label_hops else None
        self.dropout, self.input_dropout, self.attention_dropout = dropout, input_dropout, attention_dropout
        self.psi_exact = not hop_layers  # with MLPs per hop, psi keeps that of hop 0 only

    @property
    def hops(self) -> int:
        """N: the hops whose features go in, beside the node's own."""
        return self._hops

    @property
    def output_bias(self) -> Tensor:
        """Of the last linear map."""
        return self.head.output.bias

    def forward(self, hop_features: Tensor, label_inputs: Tensor | None = None) -> Tensor:
        """Rows (b, h, d) of hop features, and (b, c) of label inputs, to logits (b, c)."""
        x = F.dropout(hop_features, self.input_dropout, self.training)
        z = [self._hop(i, x[:, i]) for i in range(self.hops + 1)]  # h times (b, width)
        weights = F.dropout(self._weights(z), self.attention_dropout, self.training)
        out = self._head(torch.einsum("bh,bhw->bw", weights, torch.stack(z, 1)), x[:, 0])
        return out if self.labels is None or label_inputs is None else out + self.labels(label_inputs)

    def psi(self, x: Tensor) -> Tensor:
        """Features (b, d) to logits (b, c): hop 0 alone, whose attention is then 1, without the label branch."""
        x = F.dropout(x, self.input_dropout, self.training)
        return self._head(self._hop(0, x), x)

    def _hop(self, i: int, x: Tensor) -> Tensor:
        return self.hop_mlps[i](x) if self.hop_mlps else x

    def _weights(self, z: list[Tensor]) -> Tensor:
        """theta (b, h): softmax over hops of the score of every hop against its reference."""
        together = self.reference(torch.cat(z, 1)) if self.reference is not None else None
        scores: list[Tensor] = []
        for i, z_i in enumerate(z):
            if together is not None:
                against = together
            elif i == 0:
                against = z_i
            else:
                so_far = torch.cat(scores, 1).softmax(1)  # (b, i)
                against = torch.einsum("bh,bhw->bw", so_far, torch.stack(z[:i], 1))
            scores.append(F.leaky_relu(self.attend(torch.cat([against, z_i], 1)), 0.2))  # (b, 1)
        return torch.cat(scores, 1).softmax(1)

    def _head(self, z: Tensor, x: Tensor) -> Tensor:
        h = self.activation(z + self.residual(x))
        return self.head(F.dropout(h, self.dropout, self.training))


class InitialResidualMLP(nn.Module):
    """h <- (1 - alpha) h + alpha h_0, linear, norm, PReLU, dropout in every hidden layer, then a linear layer.

    Args:
        in_dim: width of the input.
        hidden: width.
        out_dim: width of the output.
        layers: linear layers in all.
        alpha: share of h_0, the first hidden layer's output.
        dropout: between layers.
        norm: 'batch', 'layer' or 'none'.
    """

    def __init__(
        self, in_dim: int, hidden: int, out_dim: int, layers: int, alpha: float, dropout: float, norm: str
    ) -> None:
        super().__init__()
        widths = [in_dim, *[hidden] * (layers - 1)]
        self.linears = nn.ModuleList(nn.Linear(a, hidden) for a in widths[:-1])
        self.norms = nn.ModuleList(make_norm(norm, hidden) for _ in self.linears)
        self.activations = nn.ModuleList(nn.PReLU() for _ in self.linears)
        self.output = nn.Linear(widths[-1], out_dim)
        self.alpha, self.dropout = alpha, dropout

    def forward(self, x: Tensor) -> Tensor:
        """(b, in_dim) to (b, out_dim)."""
        h, first = x, None
        for linear, norm, activate in zip(self.linears, self.norms, self.activations, strict=True):
            if first is not None:
                h = (1 - self.alpha) * h + self.alpha * first
            h = F.dropout(activate(norm(linear(h))), self.dropout, self.training)
            first = h if first is None else first
        return self.output(h)
