"""SAGN: one MLP per hop and attention over the hops (Appendix A.2); psi is MLP_0 with the same head.

PyG has no SAGN. Fed by rows of features propagated once, so its memory is set by the batch, not by the graph.
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
from labeldeconv.propagation.dropout import hops_first
from labeldeconv.propagation.hop_sum import hop_sum


@register("sagn")
class SAGN(GNN):
    """Scalable and adaptive graph network.

    Args:
        in_dim: d of the features.
        out_dim: c classes.
        layers: hops N; N + 1 feature matrices A-hat^0 X .. A-hat^N X go in.
        hidden: width.
        dropout: between layers.
        input_dropout: on the features.
        attention_dropout: on the hop weights.
        mlp_layers: layers of every per-hop MLP and of the head.
        label_hops: hops of the label branch; 0 for none. The authors have 9.
        label_layers: its MLP's layers.
        label_dropout: on the label inputs.
    """

    feed = "rows"
    suggests = ROW_NORMALISED

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        layers: int = 2,
        hidden: int = 256,
        dropout: float = 0.5,
        input_dropout: float = 0.2,
        attention_dropout: float = 0.0,
        mlp_layers: int = 1,
        label_hops: int = 0,
        label_layers: int = 4,
        label_dropout: float = 0.5,
    ) -> None:
        super().__init__(in_dim, out_dim)
        require(label_hops >= 0, SAGN, "label_hops", "of at least 0", label_hops)
        self._hops, self.label_hops = layers, label_hops
        widths = [in_dim, *[hidden] * mlp_layers]
        self.mlps = nn.ModuleList(MLP(widths, dropout=dropout, norm="batch_norm") for _ in range(layers + 1))
        self.attend_self = nn.Linear(hidden, 1, bias=False)
        self.attend_hop = nn.Linear(hidden, 1, bias=False)
        self.residual = nn.Linear(in_dim, hidden, bias=False)
        self.norm, self.activation = nn.BatchNorm1d(hidden), nn.ReLU()
        self.head = MLP([hidden] * mlp_layers + [out_dim], dropout=dropout, norm="batch_norm")
        self.labels = LabelBranch(out_dim, hidden, label_layers, dropout, label_dropout) if label_hops else None
        self.dropout, self.input_dropout, self.attention_dropout = dropout, input_dropout, attention_dropout

    @property
    def hops(self) -> int:
        """N: the hops whose features go in, beside the node's own."""
        return self._hops

    @property
    def hop_parts(self) -> Sequence[nn.Module]:
        """The MLP of every hop."""
        return list(self.mlps)

    @property
    def output_bias(self) -> Tensor:
        """Of the last linear map."""
        return self.head.lins[-1].bias

    def forward(self, hop_features: Tensor, label_inputs: Tensor | None = None) -> Tensor:
        """Rows (b, h, d) of hop features, and (b, c) of label inputs, to logits (b, c)."""
        x = hops_first(hop_features, self.input_dropout, self.training)  # (h, b, d)
        z = [through(mlp, x_i) for mlp, x_i in zip(self.mlps, x, strict=True)]  # h times (b, hidden)
        own = self.attend_self(z[0])
        scores = F.leaky_relu(torch.cat([own + self.attend_hop(z_i) for z_i in z], 1), 0.2)  # (b, h)
        weights = F.dropout(scores.softmax(1), self.attention_dropout, self.training)
        out = self._head(hop_sum(weights, z, self.training), x[0], at_once)
        return out if self.labels is None or label_inputs is None else out + self.labels(label_inputs)

    def psi(self, x: Tensor) -> Tensor:
        """Features (b, d) to logits (b, c): hop 0 alone, whose attention is then 1."""
        x = F.dropout(x, self.input_dropout, self.training)
        return self._head(self.mlps[0](x), x, plainly)

    def _head(self, z: Tensor, x: Tensor, between: Between) -> Tensor:
        h = between(z + self.residual(x), self.norm, self.activation, self.dropout, self.training)
        return through(self.head, h) if between is at_once else self.head(h)
