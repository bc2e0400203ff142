"""The contract of a GNN: forward, psi, hops and how it is fed; and Psi, the head put behind the encoder.

GNN(F; A, theta) is approximated by phi(A-hat) psi(F) (eqn:spectral_gnn): psi is the same network with A replaced by I
(Appendix A.2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from torch import Tensor, nn


class GNN(nn.Module, ABC):
    """A graph neural network over node features.

    `feed` says what forward takes: 'graph' means forward(x, adj) with x (n, d) and an `Adjacency`; 'rows' means
    forward(hop_features) with (b, hops + 1, d), rows of the features propagated once.
    Constructors take (in_dim, out_dim, *, layers, hidden, dropout, ...); further keywords are the GNN's own options.
    """

    feed: ClassVar[Literal["graph", "rows"]]

    @property
    @abstractmethod
    def hops(self) -> int:
        """Number of convolutions: the default N of label deconvolution."""

    @abstractmethod
    def psi(self, x: Tensor) -> Tensor:
        """Features (b, d) to logits (b, c) with the same weights and A replaced by I."""


class Psi(nn.Module):
    """psi(.; theta) of a GNN as a module of its own; its parameters are the GNN's."""

    def __init__(self, gnn: GNN) -> None:
        super().__init__()
        self.gnn = gnn

    def forward(self, x: Tensor) -> Tensor:
        """Features (b, d) to logits (b, c)."""
        return self.gnn.psi(x)
