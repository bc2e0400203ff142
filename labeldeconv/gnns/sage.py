"""GraphSAGE: H = sigma(H W + (A-hat H) W'), a node's own part and its neighbours' mean by weights of their own.

From PyG's SAGEConv. Where neighbours differ from a node (heterophily), W' can take the other sign than W, which a GCN
cannot. With A = I both meet in one linear map, so psi is an N-layer MLP of the weights W + W'; phi = A-hat^N. A-hat is
D^-1 A without self-loops (`suggests`); an isolated node is its own neighbour, as everywhere here, where PyG has 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from labeldeconv.gnns.base import GNN, ROW_NORMALISED, Step, register
from labeldeconv.gnns.norms import make_norm
from labeldeconv.gnns.precision import in_float32
from labeldeconv.propagation.adjacency import Adjacency, convolve


@register("sage")
class SAGE(GNN):
    """GraphSAGE with mean aggregation: own and neighbours' features have weights of their own.

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
    suggests = ROW_NORMALISED
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
        # lin_l, with the bias, is of the neighbours; lin_r of the node itself. The mean is made by Adjacency.
        self.convs = nn.ModuleList(SAGEConv(a, b) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(make_norm(norm, w) for w in widths[1:-1])
        self.dropout, self.input_dropout = dropout, input_dropout

    @property
    def hops(self) -> int:
        """N: one per convolution."""
        return len(self.convs)

    @property
    def output_bias(self) -> Tensor:
        """Of the last convolution."""
        return self.convs[-1].lin_l.bias  # type: ignore[union-attr, return-value]

    def steps(self) -> Sequence[Step]:
        """One per convolution."""
        return [partial(self._layer, i) for i in range(self.hops)]

    def psi(self, x: Tensor) -> Tensor:
        """Features (b, d) to logits (b, c): an MLP of the weights W + W'."""
        for i in range(self.hops):
            x = self._layer(i, x, None)
        return x

    def _layer(self, i: int, h: Tensor, adj: Adjacency | None) -> Tensor:
        """Layer i: (s, .) to (t, .); without A-hat every node is its own neighbour."""
        if i == 0:
            h = F.dropout(self.enter(h), self.input_dropout, self.training)
        conv: Any = self.convs[i]
        around = conv.lin_l(h) if adj is None else self._around(conv, h, adj)
        h = around + conv.lin_r(h[: len(around)])
        if i < self.hops - 1:
            h = F.dropout(self.norms[i](h).relu(), self.dropout, self.training)
        return h

    @staticmethod
    def _around(conv: Any, h: Tensor, adj: Adjacency) -> Tensor:
        """A-hat h W' + b (t, .), the narrower of h and h W' convolved."""
        if conv.lin_l.out_channels <= h.shape[1]:
            return in_float32(partial(convolve, adj), F.linear(h, conv.lin_l.weight)) + conv.lin_l.bias
        return conv.lin_l(in_float32(partial(convolve, adj), h))
