"""The contract of a GNN: forward, psi, hops and how it is fed; its registry; and Psi, the head behind the encoder.

GNN(F; A, theta) is approximated by phi(A-hat) psi(F) (eqn:spectral_gnn): psi is the same network with A replaced by I
(Appendix A.2). BatchNorm inside psi sees encoder batches of a few nodes: by measurement (gnns/norms.py) its batch
statistics are best from about 9 nodes on, LayerNorm in its place at 4; moving averages do not learn. psi starts fresh:
weights of the first GNN changed LD with GCN by +0.3 +- 1.0 points (24 pairs) and made SAGN far worse (docs/log.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from labeldeconv.errors import ConfigError, DataError
from labeldeconv.gnns.norms import PsiNorm, replace_batch_norms
from labeldeconv.gnns.precision import in_float32
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.registry import Registry

Step = Callable[[Tensor, Adjacency], Tensor]
# A-hat = D^-1 A without self-loops, which Appendix A.2 has: what GNNs suggest that keep a node's own part elsewhere.
ROW_NORMALISED = {"gnn.adjacency.normalization": "row", "gnn.adjacency.self_loops": False}


class GNN(nn.Module, ABC):
    """A graph neural network over node features.

    `feed` says what forward takes: 'graph' means forward(x, adj) with x (n, d) and an `Adjacency`; 'rows' means
    forward(hop_features) with (b, hops + 1, d), rows of the features propagated once.
    Constructors take (in_dim, out_dim, *, layers, hidden, dropout, ...); further keywords are the GNN's own options.
    `labeldeconv.testing.check_gnn` tells whether a GNN keeps the contract.

    Attributes:
        psi_exact: phi(I) psi(x) equals forward where every node is its own and only neighbour. A psi of its own that is
            not that says so: by `hop_parts`, or by `psi_differs`, a sentence why.
        stepwise: forward also comes as `steps`, one per convolution; False says that there are none.
        least_layers: fewest layers with which it is what its name says; a suggestion of fewer is raised to it.
        suggests: settings by dotted names that it brings; they stand under what the user and the data set say.
        edge_dim: width of the edge features it reads from `adj.edge_values`; 0 for none.
        label_hops: hops over which train labels are propagated into the second input (b, c) of a GNN fed by rows; 0 for
            none.
        reads_labels: forward(x, adj, label_inputs) of a GNN fed by a graph takes labels (n, c) that it is shown, and
            its own predictions of the others; psi and forward without them take zeros.
        zero_is_none: options that count something and may be 0 although their default is not.
    """

    feed: ClassVar[Literal["graph", "rows"]]
    least_layers: ClassVar[int] = 1
    suggests: ClassVar[Mapping[str, Any]] = {}
    stepwise: bool = False
    psi_exact: bool = False
    psi_differs: str = ""
    edge_dim: int = 0
    label_hops: int = 0
    reads_labels: bool = False
    zero_is_none: ClassVar[tuple[str, ...]] = ()

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.in_dim, self.out_dim = in_dim, out_dim
        self.register_forward_pre_hook(_check_forward)

    @property
    @abstractmethod
    def hops(self) -> int:
        """Number of convolutions: the default N of label deconvolution."""

    @property
    def output_bias(self) -> Tensor | None:
        """Bias (c,) of the last linear map, so that outputs can start at the labels' frequencies; None: has none."""
        return None

    @property
    def phi_of_identity(self) -> Tensor | float:
        """phi(I), the factor between psi and forward with A = I; 1 unless phi has coefficients of its own."""
        return 1.0

    @property
    def phi_coefficients(self) -> Tensor | None:
        """theta (N + 1,) where forward is sum_i theta_i A-hat^i psi(x) and nothing else; None for other GNNs."""
        return None

    @property
    def hop_parts(self) -> Sequence[nn.Module]:
        """Modules of which there is one per hop, hop 0 first: psi keeps the first, and is exact where all are equal."""
        return ()

    def psi(self, x: Tensor) -> Tensor:
        """Features (b, d) to logits (b, c) with the same weights and A replaced by I; here forward itself, with I."""
        if self.feed == "rows":
            return self(x.unsqueeze(1).expand(-1, self.hops + 1, -1))
        return in_float32(lambda wide: self(wide, Adjacency.identity(len(x))), x)  # kernels know no bfloat16

    def steps(self) -> Sequence[Step] | None:
        """Forward as steps of one convolution each: step(h (s, .), rows of A-hat (t, s)) gives (t, .).

        They let a feed sample neighbours and infer layer by layer. None: only whole graphs and clusters.
        """
        return None

    def forward(self, *inputs: Any) -> Tensor:
        """All steps on the whole graph, for feed 'graph': features (n, d) and A-hat to logits (n, c)."""
        x, adj = inputs
        for step in self.steps() or ():
            x = step(x, adj)
        return x

    def enter(self, x: Tensor) -> Tensor:
        """Floating x in the type of the weights, unless autocast chooses the types: features of any precision go in.

        forward and `Psi` do it by themselves; the first of `steps` has to.
        """
        weight = next(self.parameters(), None)
        if weight is None or not x.is_floating_point() or _autocasts(x.device):
            return x
        return x.to(weight.dtype)

    def check_input(self, x: Tensor, kind: Literal["graph", "rows"]) -> None:
        """Raise a DataError that names this GNN unless x is (n, d), or (b, hops + 1, d) for rows, and floating."""
        wanted = ("n", self.in_dim) if kind == "graph" else ("b", self.hops + 1, self.in_dim)
        fits = isinstance(x, Tensor) and x.ndim == len(wanted) and tuple(x.shape[1:]) == wanted[1:]
        if not fits or not x.is_floating_point():
            got = f"{tuple(x.shape)} {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
            shape = ", ".join(map(str, wanted))
            raise DataError(f"{type(self).__name__}: features ({shape}) of a floating type expected, got {got}")


GNNS: Registry[type[GNN]] = Registry(
    "gnn.name",
    "labeldeconv.gnns",
    ("gcn", "sage", "gat", "revgat", "gamlp", "sagn", "appnp", "spegcn", "spegnn", "mlp"),
)
Kind = TypeVar("Kind", bound=type[GNN])


def register(name: str) -> Callable[[Kind], Kind]:
    """Give a GNN its name in settings and on the command line."""

    def add(kind: Kind) -> Kind:
        GNNS.add(name, kind)
        return kind

    return add


class Psi(nn.Module):
    """psi(.; theta) of a GNN as a module of its own; its parameters are the GNN's.

    Args:
        gnn: built for this purpose: its BatchNorms are replaced in place.
        norm: what they become behind the encoder, see `labeldeconv.gnns.norms`.
    """

    def __init__(self, gnn: GNN, norm: PsiNorm = "batch") -> None:
        super().__init__()
        replace_batch_norms(gnn, norm)
        self.gnn = gnn

    def forward(self, x: Tensor) -> Tensor:
        """Features (b, d) to logits (b, c)."""
        self.gnn.check_input(x, "graph")
        return self.gnn.psi(self.gnn.enter(x))


def require(condition: bool, gnn: type[GNN], option: str, accepted: str, got: Any) -> None:
    """Raise a ConfigError that names the GNN and its option unless the condition holds."""
    if not condition:
        raise ConfigError(f"{gnn.__name__}: {option} {accepted} expected, got {got!r}")


def _autocasts(device: torch.device) -> bool:
    """Whether autocast chooses the types of what is computed on a device now."""
    try:
        return torch.is_autocast_enabled(device.type)
    except RuntimeError:  # a device of a kind that has no autocast
        return False


def _check_forward(gnn: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse features that do not fit; features and label inputs take the type of the weights."""
    assert isinstance(gnn, GNN)
    gnn.check_input(inputs[0], gnn.feed)
    return tuple(gnn.enter(x) if isinstance(x, Tensor) else x for x in inputs)
