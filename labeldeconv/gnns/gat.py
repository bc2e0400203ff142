"""GAT: H = sigma(MLP(A(H, E) H W)) with edge features and NGNN linears (Appendix A.2), as the paper has it on proteins.

phi = A-hat^N and psi = sigma(MLP(... sigma(MLP(x W1)) ... WN)). A layer aggregates, applies NGNN's linear layers with a
ReLU each, adds a linear map of the node's own input, and then the output of the layer before; normalisation and
activation follow. A node does not attend to itself (`suggests`): the residual is its own part, as published.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from labeldeconv.gnns.attention import Attention, drop_edges
from labeldeconv.gnns.base import GNN, ROW_NORMALISED, Step, register, require
from labeldeconv.gnns.hidden import Between, at_once, plainly
from labeldeconv.gnns.norms import make_norm
from labeldeconv.propagation.adjacency import Adjacency


@register("gat")
class GAT(GNN):
    """Graph attention network with edge features.

    Args:
        in_dim: d of the features.
        out_dim: c classes.
        layers: convolutions, N.
        hidden: width of every head.
        dropout: between layers.
        heads: attention heads, concatenated.
        input_dropout: after the input layer.
        attention_dropout: on the attention weights.
        edge_dropout: share of the edges left out in training, drawn anew for every layer.
        attend_target: let the score of an edge depend on its target too.
        edge_dim: width of the graph's edge features; 0 does not use them.
        edge_hidden: width they are encoded to, in every layer.
        ngnn: linear layers with a ReLU between aggregation and residual (NGNN); the paper has 2.
        norm: 'batch', 'layer' or 'none'.
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
        heads: int = 3,
        input_dropout: float = 0.1,
        attention_dropout: float = 0.0,
        edge_dropout: float = 0.1,
        attend_target: bool = True,
        edge_dim: int = 0,
        edge_hidden: int = 16,
        ngnn: int = 0,
        norm: str = "batch",
    ) -> None:
        super().__init__(in_dim, out_dim)
        require(ngnn >= 0, GAT, "ngnn", "of at least 0", ngnn)
        width = heads * hidden
        self.input = nn.Linear(in_dim, hidden)
        settings: dict[str, Any] = {"attend_target": attend_target, "attention_dropout": attention_dropout}
        settings |= {"edge_dim": edge_hidden if edge_dim else 0, "ngnn": ngnn}
        self.convs = nn.ModuleList(Attention(width if i else hidden, hidden, heads, **settings) for i in range(layers))
        self.edge_inputs = nn.ModuleList(nn.Linear(edge_dim, edge_hidden) for _ in range(layers if edge_dim else 0))
        self.norms = nn.ModuleList(make_norm(norm, width) for _ in range(layers))
        self.output, self.activation = nn.Linear(width, out_dim), nn.ReLU()
        self.edge_dim, self.edge_dropout = edge_dim, edge_dropout
        self.dropout, self.input_dropout = dropout, input_dropout

    @property
    def hops(self) -> int:
        """N: one per convolution."""
        return len(self.convs)

    @property
    def output_bias(self) -> Tensor:
        """Of the last linear map."""
        return self.output.bias

    def steps(self) -> Sequence[Step]:
        """One per convolution."""
        return [partial(self._layer, i) for i in range(self.hops)]

    def psi(self, x: Tensor) -> Tensor:
        """Features (b, d) to logits (b, c): attention is 1, NGNN linears stay."""
        for i in range(self.hops):
            x = self._layer(i, x, None)
        return x

    def _layer(self, i: int, h: Tensor, adj: Adjacency | None) -> Tensor:
        """Layer i: (s, .) to (t, heads * hidden), before its normalisation; the last one to logits (t, c)."""
        between = plainly if adj is None else at_once
        z = self._activate(i - 1, h, between) if i else self._enter(h, between)
        conv: Any = self.convs[i]
        out = conv.alone(z) if adj is None else self._convolve(i, z, adj)
        if i > 0:
            out = out + h[: len(out)]
        return self.output(self._activate(i, out, between)) if i == self.hops - 1 else out

    def _enter(self, x: Tensor, between: Between) -> Tensor:
        return between(self.input(self.enter(x)), None, self.activation, self.input_dropout, self.training)

    def _activate(self, i: int, h: Tensor, between: Between) -> Tensor:
        return between(h, self.norms[i], self.activation, self.dropout, self.training)

    def _convolve(self, i: int, z: Tensor, adj: Adjacency) -> Tensor:
        values = adj.edge_values(z.device) if self.edge_dim else None
        edges, values = drop_edges(adj.edge_index(z.device), values, self.edge_dropout, self.training)
        if values is not None:
            values = self.edge_inputs[i](self.enter(values)).relu()  # (e, edge_hidden)
        return self.convs[i](z, edges, adj.num_nodes, values)
