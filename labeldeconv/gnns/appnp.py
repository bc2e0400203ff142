"""APPNP: predict, then propagate. Z_0 = MLP(X) and Z_k = (1 - a) A-hat Z_{k-1} + a Z_0, K times.

A personalised PageRank over predictions: it reaches K hops without K layers, and the share `a` of Z_0, the teleport,
keeps a node from drowning in its neighbourhood. psi is the MLP, since Z_k = Z_0 where A = I, and phi is the polynomial
(1 - a)^K A-hat^K + a sum_{k<K} (1 - a)^k A-hat^k. By hand, with the project's own convolution; PyG's APPNP is its test.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from labeldeconv.gnns.base import GNN, Step, register, require
from labeldeconv.gnns.norms import make_mlp
from labeldeconv.gnns.precision import convolved, in_float32
from labeldeconv.propagation.adjacency import Adjacency, convolve


@register("appnp")
class APPNP(GNN):
    """An MLP whose predictions are propagated by personalised PageRank.

    Args:
        in_dim: d of the features.
        out_dim: c classes.
        layers: of the MLP.
        hidden: width.
        dropout: between layers.
        convolutions: K, the steps of propagation; the authors have 10.
        teleport: share a of a node's own prediction in every step; the authors have 0.1 (measured: docs/gnns.md).
        norm: 'batch', 'layer' or 'none' between layers of the MLP.
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
        convolutions: int = 5,
        teleport: float = 0.4,
        norm: str = "batch",
    ) -> None:
        super().__init__(in_dim, out_dim)
        require(convolutions >= 1, APPNP, "convolutions", "of at least 1", convolutions)
        require(0 <= teleport <= 1, APPNP, "teleport", "from 0 to 1", teleport)
        self.mlp = make_mlp(in_dim, out_dim, layers, hidden, dropout, norm)
        self.convolutions, self.teleport = convolutions, teleport

    @property
    def hops(self) -> int:
        """K, the steps of propagation."""
        return self.convolutions

    @property
    def phi_coefficients(self) -> Tensor:
        """a (1 - a)^k (K + 1,), the last one (1 - a)^K."""
        kept = (1 - self.teleport) ** torch.arange(self.hops + 1.0)
        return torch.cat([self.teleport * kept[:-1], kept[-1:]])

    @property
    def output_bias(self) -> Tensor:
        """Of the last linear map."""
        return self.mlp.lins[-1].bias

    def forward(self, x: Tensor, adj: Adjacency) -> Tensor:
        """Features (n, d) and A-hat to logits (n, c)."""

        def propagated(start: Tensor) -> Tensor:
            z = start
            for _ in range(self.hops):
                z = self._mixed(convolve(adj, z), start)
            return z

        return in_float32(propagated, self.mlp(x))

    def steps(self) -> Sequence[Step]:
        """One per convolution, over (s, 2c): Z_k beside Z_0."""
        return [partial(self._convolution, k) for k in range(1, self.hops + 1)]

    def psi(self, x: Tensor) -> Tensor:
        """Features (b, d) to logits (b, c): the MLP."""
        return self.mlp(x)

    def _convolution(self, k: int, h: Tensor, adj: Adjacency) -> Tensor:
        if k == 1:
            h = self.mlp(self.enter(h)).repeat(1, 2)  # (s, 2c)
        z, start = h.chunk(2, dim=1)
        start = start[: adj.num_nodes]
        z = self._mixed(convolved(z.contiguous(), adj), start)
        return z if k == self.hops else torch.cat([z, start], dim=1)

    def _mixed(self, around: Tensor, start: Tensor) -> Tensor:
        """(1 - a) A-hat Z + a Z_0."""
        return (1 - self.teleport) * around + self.teleport * start
