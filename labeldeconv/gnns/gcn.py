"""GCN: H = sigma(A-hat H W) (Appendix A.2), from PyG's GCNConv; phi = A-hat^N and psi is an N-layer MLP."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from labeldeconv.adjacency import Adjacency
from labeldeconv.gnns.base import GNN


class GCN(GNN):
    """Graph convolutional network with batch normalisation between layers.

    Args:
        in_dim: d of the features.
        out_dim: c classes.
        layers: convolutions, N.
        hidden: width.
        dropout: between layers.
        norm: 'batch', 'layer' or 'none' after every hidden convolution.
    """

    feed = "graph"

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        layers: int = 2,
        hidden: int = 256,
        dropout: float = 0.5,
        norm: str = "batch",
    ) -> None:
        super().__init__()
        widths = [in_dim, *[hidden] * (layers - 1), out_dim]
        # A-hat is made once by Adjacency, so the layers do not normalise again.
        self.convs = nn.ModuleList(GCNConv(a, b, normalize=False) for a, b in itertools.pairwise(widths))
        make = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm, "none": nn.Identity}[norm]
        self.norms = nn.ModuleList(make(w) for w in widths[1:-1])
        self.dropout = dropout

    @property
    def hops(self) -> int:
        """N: one per convolution."""
        return len(self.convs)

    def forward(self, x: Tensor, adj: Adjacency) -> Tensor:
        """Features (n, d) and A-hat to logits (n, c)."""
        matrix = adj.on(x.device)
        return self._layers(x, lambda conv, h: conv(h, matrix))

    def psi(self, x: Tensor) -> Tensor:
        """Features (b, d) to logits (b, c): sigma(... sigma(x W1) ... WN)."""
        return self._layers(x, lambda conv, h: conv.lin(h) + conv.bias)

    def _layers(self, h: Tensor, apply: Callable[[Any, Tensor], Tensor]) -> Tensor:
        for conv, norm in zip(self.convs[:-1], self.norms, strict=True):
            h = F.dropout(norm(apply(conv, h)).relu(), self.dropout, self.training)
        return apply(self.convs[-1], h)
