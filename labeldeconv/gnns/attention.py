"""One convolution with attention for GAT and RevGAT: PyG's GATConv with two methods written anew for large blocks.

out = MLP(A(H) H W) + H W_skip + b, where the MLP, NGNN's linear layers, is missing unless asked for.

GATConv widens edge features to (e, heads * width), which only serve one score per head: here they are folded into an
(edge_dim, heads) matrix. And it stores all messages, which `weighted_sum` avoids. The numbers are the same.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv
from torch_geometric.utils import softmax

from labeldeconv.gnns.precision import in_float32
from labeldeconv.propagation.weighted_sum import weighted_sum

Roots = tuple[Tensor, Tensor]  # square roots of the degrees of sources (s, 1) and targets (t, 1)


class Attention(GATConv):
    """GATConv without self-loops of its own, with a linear residual and attention over the target as an option.

    Args:
        in_dim: width of the input.
        out_dim: width of every head.
        heads: number of heads, concatenated.
        attend_target: let the score of an edge depend on its target too.
        attention_dropout: on the attention weights.
        edge_dim: width of the edge features; 0 for none.
        residual: add a linear map of the target's own input, after the linear layers of NGNN.
        ngnn: linear layers after the aggregation, each with a ReLU (NGNN); 0 for none.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        heads: int,
        *,
        attend_target: bool = True,
        attention_dropout: float = 0.0,
        edge_dim: int = 0,
        residual: bool = True,
        ngnn: int = 0,
    ) -> None:
        super().__init__(
            in_dim,
            out_dim,
            heads,
            dropout=attention_dropout,
            add_self_loops=False,
            edge_dim=edge_dim or None,
            bias=not residual,  # the residual has one
        )
        self.attend_target = attend_target
        if not attend_target:
            self.register_parameter("att_dst", None)
        width = heads * out_dim
        self.skip = nn.Linear(in_dim, width) if residual else None
        if self.skip is not None:
            nn.init.zeros_(self.skip.bias)
        self.ngnn = nn.ModuleList(nn.Linear(width, width) for _ in range(ngnn))

    def forward(
        self,
        h: Tensor,
        edge_index: Tensor,
        targets: int,
        edge_values: Tensor | None = None,
        roots: Roots | None = None,
    ) -> Tensor:
        """(s, in_dim) and edges (2, e) with values (e, edge_dim) to (targets, heads * out_dim).

        With `roots` the convolution is D^1/2 A(H) D^-1/2 H W, and A(H) is scored on D^-1/2 H W.
        """
        own, size = h[:targets], (len(h), targets)
        source = h if roots is None else h / roots[0].to(h.dtype)
        out = super().forward((source, own if self.attend_target else None), edge_index, edge_values, size=size)
        return self._transform(out if roots is None else out * roots[1].to(out.dtype), own)

    def alone(self, h: Tensor) -> Tensor:
        """The same where every node is its own and only neighbour: attention is 1."""
        out = self.lin(h)
        return self._transform(out if self.bias is None else out + self.bias, h)

    def _transform(self, out: Tensor, own: Tensor) -> Tensor:
        """The linear layers of NGNN on what was aggregated (t, heads * out_dim), and only then the residual."""
        for linear in self.ngnn:
            out = linear(out).relu()
        return out if self.skip is None else out + self.skip(own)

    def edge_update(
        self,
        alpha_j: Tensor,
        alpha_i: Tensor | None,
        edge_attr: Tensor | None,
        index: Tensor,
        ptr: Tensor | None,
        dim_size: int | None,
    ) -> Tensor:
        """Attention (e, heads); lin_edge and att_edge act as one (edge_dim, heads) matrix."""
        alpha = alpha_j if alpha_i is None else alpha_j + alpha_i
        if edge_attr is not None and self.lin_edge is not None:
            weight = self.lin_edge.weight.view(self.heads, self.out_channels, -1)  # (heads, width, edge_dim)
            alpha = alpha + edge_attr @ (weight * self.att_edge.view(self.heads, -1, 1)).sum(1).t()
        alpha = in_float32(lambda a: softmax(F.leaky_relu(a, self.negative_slope), index, ptr, dim_size), alpha)
        return F.dropout(alpha, self.dropout, self.training)

    def propagate(self, edge_index: Tensor, x: Any, alpha: Tensor, size: Any) -> Tensor:
        """Weighted sums (t, heads, width) of the sources."""
        return in_float32(lambda a, h: weighted_sum(a, h, edge_index, size[1]), alpha, x[0])


def degree_roots(edge_index: Tensor, sources: int, targets: int) -> Roots:
    """Square roots of how many of the edges (2, e) leave a source (s, 1) and reach a target (t, 1); at least 1."""
    ends = ((edge_index[0], sources), (edge_index[1], targets))
    left, reached = (torch.bincount(ids, minlength=count).clamp_min(1).sqrt().unsqueeze(1) for ids, count in ends)
    return left, reached


def drop_edges(
    edge_index: Tensor, edge_values: Tensor | None, share: float, training: bool
) -> tuple[Tensor, Tensor | None]:
    """Leave out a random `share` of the edges (2, e) and of their values in training."""
    if not training or share == 0.0:
        return edge_index, edge_values
    kept = torch.rand(edge_index.shape[1], device=edge_index.device) >= share
    return edge_index[:, kept], None if edge_values is None else edge_values[kept]
