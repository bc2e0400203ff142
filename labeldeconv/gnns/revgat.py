"""RevGAT: grouped reversible residual blocks of graph attention (Appendix A.2), from PyG's GroupAddRev.

H'_0 = sum_{j >= 2} H_j and H'_j = GAT_j(H'_{j-1}) + H_j over C groups, between an input and an output convolution. The
input of a block is recomputed from its output in backward, so activation memory does not grow with depth
(benchmarks/revgat_memory.py: 1.15 times as much at 48 layers as at 3; stored, 16 times). For that, all blocks of a pass
share one dropout mask and one draw of dropped edges, and moving averages of BatchNorm move with every recomputation.
phi = A-hat^(N C) and psi is an N-layer reversible network.

OGB's leaderboard has it with `label_inputs` beside the features (label reuse, training/label_reuse.py) and attention
between roots of degrees (`symmetric_norm`, "NormAdj"); both ask for the whole graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GroupAddRev

from labeldeconv.gnns.attention import Attention, Roots, degree_roots, drop_edges
from labeldeconv.gnns.base import GNN, Step, register, require
from labeldeconv.gnns.hidden import at_once, plainly
from labeldeconv.gnns.norms import make_norm
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.dropout import dropout


class _Group(nn.Module):
    """GAT_j of one group: normalise, activate, shared dropout, convolve."""

    def __init__(self, width: int, conv: Attention, norm: str) -> None:
        super().__init__()
        self.norm, self.activation, self.conv = make_norm(norm, width), nn.ReLU(), conv

    def forward(
        self,
        h: Tensor,
        edges: Tensor | None,
        mask: Tensor | None,
        roots: Roots | None = None,
        targets: int | None = None,
    ) -> Tensor:
        """(s, width) to (t, width); without edges every node is its own neighbour."""
        between = plainly if edges is None else at_once
        h = between(h, self.norm, self.activation, 0.0, self.training)
        h = h if mask is None else h * mask
        if edges is None:
            return self.conv.alone(h)
        return self.conv(h, edges, len(h) if targets is None else targets, roots=roots)


@register("revgat")
class RevGAT(GNN):
    """Reversible graph attention network.

    Args:
        in_dim: d of the features.
        out_dim: c classes.
        layers: N: input convolution, N - 2 reversible blocks, output convolution.
        hidden: width of every head.
        dropout: between layers.
        heads: attention heads, concatenated.
        groups: C groups of every block; divides `hidden`.
        feature_dropout: on the features, before they are normalised, and not in psi; 0.4 in the authors' code.
        input_dropout: on the features, normalised.
        attention_dropout: on the attention weights.
        edge_dropout: share of the edges left out in training.
        attend_target: let the score of an edge depend on its target too.
        input_norm: normalise the features.
        norm: 'batch', 'layer' or 'none'.
        symmetric_norm: D^1/2 A(H) D^-1/2 in place of the attention A(H).
        label_inputs: read labels (n, c) beside the features (label reuse).
    """

    feed = "graph"
    least_layers = 3  # one reversible block
    suggests: ClassVar[Mapping[str, Any]] = {  # the authors', but for their warm-up and epochs (docs/gnns.md)
        "gnn.layers": 3,
        "gnn.dropout": 0.75,
        "gnn.optimizer": "rmsprop",
        "gnn.lr": 0.002,
        "gnn.weight_decay": 0.0,
    }
    stepwise = True
    psi_exact = True

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        layers: int = 3,
        hidden: int = 256,
        dropout: float = 0.75,
        heads: int = 3,
        groups: int = 2,
        feature_dropout: float = 0.0,
        input_dropout: float = 0.25,
        attention_dropout: float = 0.0,
        edge_dropout: float = 0.3,
        attend_target: bool = False,
        input_norm: bool = True,
        norm: str = "batch",
        symmetric_norm: bool = False,
        label_inputs: bool = False,
    ) -> None:
        super().__init__(in_dim, out_dim)
        require(layers >= 2, RevGAT, "layers", "of at least 2", layers)
        require(groups >= 2 and hidden % groups == 0, RevGAT, "groups", f"from 2 that divide hidden {hidden}", groups)

        def conv(d_in: int, d_out: int, count: int) -> Attention:
            return Attention(d_in, d_out, count, attend_target=attend_target, attention_dropout=attention_dropout)

        width = heads * hidden
        part = width // groups
        read = in_dim + out_dim if label_inputs else in_dim
        self.input_norm = make_norm(norm if input_norm else "none", read)
        self.input = conv(read, hidden, heads)
        self.blocks = nn.ModuleList(
            GroupAddRev(nn.ModuleList(_Group(part, conv(part, hidden // groups, heads), norm) for _ in range(groups)))
            for _ in range(layers - 2)
        )
        self.norm, self.activation = make_norm(norm, width), nn.ReLU()
        self.output = conv(width, out_dim, 1)
        self.groups, self.symmetric_norm, self.reads_labels = groups, symmetric_norm, label_inputs
        self.stepwise = not (symmetric_norm or label_inputs)
        self.dropout, self.input_dropout, self.edge_dropout = dropout, input_dropout, edge_dropout
        self.feature_dropout = feature_dropout

    @property
    def hops(self) -> int:
        """N: layers, as the paper counts them; a block has one convolution per group."""
        return len(self.blocks) + 2

    @property
    def output_bias(self) -> Tensor:
        """Of the last convolution."""
        return self.output.skip.bias  # type: ignore[union-attr]

    def forward(self, x: Tensor, adj: Adjacency, label_inputs: Tensor | None = None) -> Tensor:
        """Features (n, d), A-hat and label inputs (n, c) to logits (n, c); blocks are reversible where a gradient is
        wanted.
        """
        every = adj.edge_index(x.device)
        roots = degree_roots(every, adj.num_sources, adj.num_nodes) if self.symmetric_norm else None
        edges, _ = drop_edges(every, None, self.edge_dropout, self.training)
        h = self._first(x, edges, adj.num_nodes, label_inputs, roots)
        with torch.autocast(x.device.type, enabled=False):  # a rounded block is not the inverse of its inverse
            h = self.enter(h)
            mask = dropout(torch.ones_like(h), self.dropout, True) if self.training and self.dropout else None
            block: Any
            for block in self.blocks:
                block.disable = not torch.is_grad_enabled()  # it frees its input's memory, which inference forbids
                h = block(h, edges, mask, roots)
            if self.training and self.blocks:
                h = h.clone()  # backward frees what a block gave, which it cannot where numpy has seen it
        return self._last(h, edges, adj.num_nodes, roots)

    def psi(self, x: Tensor) -> Tensor:
        """Features (b, d) to logits (b, c): the reversible network with attention 1."""
        h = self._first(x, None, len(x))
        mask = self._mask(h)
        block: Any
        for block in self.blocks:
            h = block._forward(h, None, mask)  # a few rows: nothing to save
        return self._last(h, None, len(x))

    def steps(self) -> Sequence[Step] | None:
        """One per convolution, so C per block; on sampled rows nothing is recomputed and dropout is not shared.

        None with label inputs, which are made from predictions of the whole graph, and with degrees, which a sample
        does not know.
        """
        if not self.stepwise:
            return None
        groups = [partial(self._group, b, j) for b in self.blocks for j in range(self.groups)]
        first: Step = lambda x, adj: self._first(x, self._edges(adj, x), adj.num_nodes)  # noqa: E731
        last: Step = lambda h, adj: self._last(h, self._edges(adj, h), adj.num_nodes)  # noqa: E731
        return [first, *groups, last]

    def _group(self, block: Any, j: int, h: Tensor, adj: Adjacency) -> Tensor:
        """H'_j takes the place of H_j; the other groups pass through."""
        parts = list(h.chunk(self.groups, dim=1))
        mask = self._mask(parts[0])
        z = block.convs[j](sum(parts[1:]) if j == 0 else parts[j - 1], self._edges(adj, h), mask, None, adj.num_nodes)
        parts = [p[: adj.num_nodes] for p in parts]
        parts[j] = parts[j] + z
        return torch.cat(parts, dim=1)

    def _first(
        self,
        x: Tensor,
        edges: Tensor | None,
        targets: int,
        label_inputs: Tensor | None = None,
        roots: Roots | None = None,
    ) -> Tensor:
        x = self.enter(x)
        if edges is not None:  # behind the encoder `train.dropout` has this place
            x = dropout(x, self.feature_dropout, self.training)
        if self.reads_labels:
            x = torch.cat([x, x.new_zeros(len(x), self.out_dim) if label_inputs is None else label_inputs.to(x)], 1)
        x = self.input_norm(x)
        if edges is None:
            return self.input.alone(F.dropout(x, self.input_dropout, self.training))
        return self.input(dropout(x, self.input_dropout, self.training), edges, targets, roots=roots)

    def _last(self, h: Tensor, edges: Tensor | None, targets: int, roots: Roots | None = None) -> Tensor:
        between = plainly if edges is None else at_once
        h = between(h, self.norm, self.activation, self.dropout, self.training)
        return self.output.alone(h) if edges is None else self.output(h, edges, targets, roots=roots)

    def _edges(self, adj: Adjacency, h: Tensor) -> Tensor:
        return drop_edges(adj.edge_index(h.device), None, self.edge_dropout, self.training)[0]

    def _mask(self, h: Tensor) -> Tensor | None:
        """One dropout mask (n, heads * hidden) for all blocks."""
        if not self.training or self.dropout == 0.0:
            return None
        return torch.empty_like(h).bernoulli_(1 - self.dropout).div_(1 - self.dropout)
