"""GCN: H = sigma(A-hat H W) (Appendix A.2), from PyG's GCNConv; phi = A-hat^N and psi is an N-layer MLP.

`Convolutions` is what GNNs of this shape share; GraphSAGE (`gnns.sage`) is the other one.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from labeldeconv.gnns.base import GNN, Step, register
from labeldeconv.gnns.norms import make_norm
from labeldeconv.gnns.precision import convolved
from labeldeconv.propagation.adjacency import Adjacency


class Convolutions(GNN):
    """N convolutions with normalisation, ReLU and dropout between them; psi is the same with A = I.

    Args:
        in_dim: d of the features.
        out_dim: c classes.
        layers: convolutions, N.
        hidden: width.
        dropout: between layers.
        norm: 'batch', 'layer' or 'none' after every hidden convolution.
        input_dropout: on the features.
    """

    feed = "graph"
    stepwise = True
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
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__(in_dim, out_dim)
        widths = [in_dim, *[hidden] * (layers - 1), out_dim]
        self.convs = nn.ModuleList(self.convolution(a, b) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(make_norm(norm, w) for w in widths[1:-1])
        self.dropout, self.input_dropout = dropout, input_dropout

    @staticmethod
    @abstractmethod
    def convolution(in_dim: int, out_dim: int) -> nn.Module:
        """The weights of one convolution."""

    @abstractmethod
    def convolve(self, conv: Any, h: Tensor, adj: Adjacency | None) -> Tensor:
        """One convolution: (s, .) to (t, .); without A-hat every node is its own and only neighbour."""

    @property
    def hops(self) -> int:
        """N: one per convolution."""
        return len(self.convs)

    def steps(self) -> Sequence[Step]:
        """One per convolution."""
        return [partial(self._layer, i) for i in range(self.hops)]

    def psi(self, x: Tensor) -> Tensor:
        """Features (b, d) to logits (b, c): an N-layer MLP."""
        for i in range(self.hops):
            x = self._layer(i, x, None)
        return x

    def _layer(self, i: int, h: Tensor, adj: Adjacency | None) -> Tensor:
        """Layer i: (s, .) to (t, .)."""
        if i == 0:
            h = F.dropout(self.enter(h), self.input_dropout, self.training)
        h = self.convolve(self.convs[i], h, adj)
        if i < self.hops - 1:
            h = F.dropout(self.norms[i](h).relu(), self.dropout, self.training)
        return h


@register("gcn")
class GCN(Convolutions):
    """Graph convolutional network with batch normalisation between layers; psi is sigma(... sigma(x W1) ... WN)."""

    @staticmethod
    def convolution(in_dim: int, out_dim: int) -> nn.Module:
        """A-hat is made once by Adjacency, so the layers do not normalise again."""
        return GCNConv(in_dim, out_dim, normalize=False)

    @property
    def output_bias(self) -> Tensor:
        """Of the last convolution."""
        return self.convs[-1].bias  # type: ignore[return-value]

    def convolve(self, conv: Any, h: Tensor, adj: Adjacency | None) -> Tensor:
        """A-hat h W + b; without A-hat its linear map alone."""
        h = conv.lin(h)
        return (h if adj is None else convolved(h, adj)) + conv.bias
