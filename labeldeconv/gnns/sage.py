"""GraphSAGE: H = sigma(H W + (A-hat H) W'), a node's own part and its neighbours' mean by weights of their own.

From PyG's SAGEConv. Where neighbours differ from a node (heterophily), W' can take the other sign than W, which a GCN
cannot. With A = I both meet in one linear map, so psi is an N-layer MLP of the weights W + W'; phi = A-hat^N. A-hat is
D^-1 A without self-loops (`suggests`); an isolated node is its own neighbour, as everywhere here, where PyG has 0.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from labeldeconv.gnns.base import ROW_NORMALISED, register
from labeldeconv.gnns.gcn import Convolutions
from labeldeconv.gnns.precision import convolved
from labeldeconv.propagation.adjacency import Adjacency


@register("sage")
class SAGE(Convolutions):
    """GraphSAGE with mean aggregation: own and neighbours' features have weights of their own."""

    suggests = ROW_NORMALISED

    @staticmethod
    def convolution(in_dim: int, out_dim: int) -> nn.Module:
        """lin_l, with the bias, is of the neighbours; lin_r of the node itself. The mean is made by Adjacency."""
        return SAGEConv(in_dim, out_dim)

    @property
    def output_bias(self) -> Tensor:
        """Of the last convolution."""
        return self.convs[-1].lin_l.bias  # type: ignore[union-attr, return-value]

    def convolve(self, conv: Any, h: Tensor, adj: Adjacency | None) -> Tensor:
        """h W + (A-hat h) W' + b, the narrower of h and h W' convolved; without A-hat h (W + W') + b."""
        if adj is None:
            around = conv.lin_l(h)
        elif conv.lin_l.out_channels <= h.shape[1]:
            around = convolved(F.linear(h, conv.lin_l.weight), adj) + conv.lin_l.bias
        else:
            around = conv.lin_l(convolved(h, adj))
        return around + conv.lin_r(h[: len(around)])
