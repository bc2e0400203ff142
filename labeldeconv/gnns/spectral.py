"""SpeGCN and SpeGNN: the spectral approximations phi(A-hat) MLP(X) of Appendix A.4, with `propagate` as A-hat.

Written by hand since PyG's APPNP and SGConv have fixed coefficients and do not use the project's own `propagate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from labeldeconv.gnns.base import GNN, Step, register, require
from labeldeconv.gnns.norms import make_mlp
from labeldeconv.gnns.precision import convolved, in_float32
from labeldeconv.propagation.adjacency import Adjacency, propagate


@register("spegcn")
class SpeGCN(GNN):
    """A-hat^N MLP(X), the spectral twin of GCN.

    Args:
        in_dim: d of the features.
        out_dim: c classes.
        layers: of the MLP.
        hidden: width.
        dropout: between layers.
        convolutions: N; 0 takes `layers`, as the GCN of that many layers has.
        norm: 'batch', 'layer' or 'none' between layers.
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
        convolutions: int = 0,
        norm: str = "batch",
    ) -> None:
        super().__init__(in_dim, out_dim)
        require(convolutions >= 0, type(self), "convolutions", "of at least 0", convolutions)
        self.mlp = make_mlp(in_dim, out_dim, layers, hidden, dropout, norm)
        self._hops = convolutions or layers

    @property
    def hops(self) -> int:
        """N, the power of A-hat."""
        return self._hops

    @property
    def phi_coefficients(self) -> Tensor:
        """0, ..., 0, 1 (N + 1,)."""
        return torch.eye(self.hops + 1)[-1]

    @property
    def output_bias(self) -> Tensor:
        """Of the last linear map."""
        return self.mlp.lins[-1].bias

    def steps(self) -> Sequence[Step]:
        """The MLP and a first convolution, then convolutions alone."""
        first: Step = lambda x, adj: convolved(self.mlp(self.enter(x)), adj)  # noqa: E731
        return [first, *[convolved] * (self.hops - 1)]

    def psi(self, x: Tensor) -> Tensor:
        """Features (b, d) to logits (b, c): the MLP."""
        return self.mlp(x)


@register("spegnn")
class SpeGNN(GNN):
    """sum_i theta_i A-hat^i MLP(X), i = 0..N, with learned theta_i: the spectral twin of every GNN.

    Args:
        in_dim: d of the features.
        out_dim: c classes.
        layers: of the MLP.
        hidden: width.
        dropout: between layers.
        convolutions: N; 0 takes `layers`. The twin of a RevGAT of N layers and C groups has N C.
        norm: 'batch', 'layer' or 'none' between layers.
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
        convolutions: int = 0,
        norm: str = "batch",
    ) -> None:
        super().__init__(in_dim, out_dim)
        require(convolutions >= 0, type(self), "convolutions", "of at least 0", convolutions)
        self.mlp = make_mlp(in_dim, out_dim, layers, hidden, dropout, norm)
        count = (convolutions or layers) + 1
        self.theta = nn.Parameter(torch.full((count,), 1.0 / count))  # (h,) a mean over the hops at the start

    @property
    def hops(self) -> int:
        """N: the largest power of A-hat."""
        return len(self.theta) - 1

    @property
    def phi_of_identity(self) -> Tensor:
        """sum_i theta_i."""
        return self.theta.sum()

    @property
    def phi_coefficients(self) -> Tensor:
        """theta (N + 1,)."""
        return self.theta

    @property
    def output_bias(self) -> Tensor:
        """Of the last linear map."""
        return self.mlp.lins[-1].bias

    def forward(self, x: Tensor, adj: Adjacency) -> Tensor:
        """Features (n, d) and A-hat to logits (n, c)."""

        def mixed(z: Tensor) -> Tensor:
            hops = propagate(adj, z, self.hops)
            return torch.stack([t * z_i for t, z_i in zip(self.theta, hops, strict=True)]).sum(0)

        return in_float32(mixed, self.mlp(x))

    def steps(self) -> Sequence[Step]:
        """One per convolution, over (s, 2c): A-hat^i Z beside the sum so far."""
        return [partial(self._convolution, i) for i in range(1, self.hops + 1)]

    def psi(self, x: Tensor) -> Tensor:
        """Features (b, d) to logits (b, c): the MLP."""
        return self.mlp(x)

    def _convolution(self, i: int, h: Tensor, adj: Adjacency) -> Tensor:
        if i == 1:
            z = self.mlp(self.enter(h))
            h = torch.cat([z, self.theta[0] * z], dim=1)  # (s, 2c)
        z, total = h.chunk(2, dim=1)
        z = convolved(z.contiguous(), adj)
        total = total[: adj.num_nodes] + self.theta[i] * z
        return total if i == self.hops else torch.cat([z, total], dim=1)
