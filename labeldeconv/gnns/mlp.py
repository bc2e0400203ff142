"""A multi-layer perceptron over a node's own features: no graph at all, the floor that a GNN has to clear.

hops = 0, so K = [Y] and label deconvolution is training on plain (pseudo) labels; psi is the MLP itself. Fed by rows
(b, 1, d) of the features, it needs no more memory than a batch.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from labeldeconv.gnns.base import GNN, register
from labeldeconv.gnns.norms import make_mlp


@register("mlp")
class NodeMLP(GNN):
    """A multi-layer perceptron, which does not look at the edges.

    Args:
        in_dim: d of the features.
        out_dim: c classes.
        layers: linear maps.
        hidden: width.
        dropout: between layers.
        norm: 'batch', 'layer' or 'none' between layers.
        input_dropout: on the features.
    """

    feed = "rows"
    psi_exact = True

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        layers: int = 2,
        hidden: int = 256,
        dropout: float = 0.5,
        norm: str = "batch",
        input_dropout: float = 0.3,
    ) -> None:
        super().__init__(in_dim, out_dim)
        self.mlp = make_mlp(in_dim, out_dim, layers, hidden, dropout, norm)
        self.input_dropout = input_dropout

    @property
    def hops(self) -> int:
        """0: there is no convolution."""
        return 0

    @property
    def output_bias(self) -> Tensor:
        """Of the last linear map."""
        return self.mlp.lins[-1].bias

    def forward(self, hop_features: Tensor) -> Tensor:
        """Rows (b, 1, d) of the features to logits (b, c)."""
        return self.psi(hop_features[:, 0])

    def psi(self, x: Tensor) -> Tensor:
        """Features (b, d) to logits (b, c): the MLP."""
        return self.mlp(F.dropout(x, self.input_dropout, self.training))
