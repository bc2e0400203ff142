"""What training a GNN costs, before it is trained: operations of an epoch and memory, from its weights and the graph.

Every weight matrix meets every row once forward and twice backward, and once more where the GNN is evaluated; edges
add the width of every convolution. Operations and not seconds: they are the same on every machine.

Measured at default settings on X_PNE, 10^9 of these operations per second of a core, citeseer (3,186 nodes) / a part of
debian (6,000 nodes): GCN 21 / 24, SAGE 34 / 42, GAT 30 / 32, RevGAT 29 / 28, GAMLP 24 / 25, SAGN 30 / 27, MLP 25 / 29.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labeldeconv.gnns.adapter import PyGModule
from labeldeconv.gnns.appnp import APPNP
from labeldeconv.gnns.attention import Attention
from labeldeconv.gnns.base import GNN
from labeldeconv.gnns.spectral import SpeGCN, SpeGNN

SPEED = 5e10  # operations a second of two ordinary cores, by the above
MIB = 1 << 20


@dataclass(frozen=True)
class Size:
    """A graph as far as costs go: nodes, entries of A-hat, train and validation nodes."""

    nodes: int
    entries: int
    train: int
    val: int


def epoch_work(gnn: GNN, size: Size) -> float:
    """Floating-point operations of one epoch and one evaluation."""
    weights = sum(p.numel() for p in gnn.parameters() if p.ndim > 1)
    if gnn.feed == "rows":  # rows of the train nodes, then of the validation nodes; propagated once, before
        return weights * (6.0 * size.train + 2.0 * size.val)
    return 8.0 * weights * size.nodes + 8.0 * size.entries * edge_width(gnn)


def training_mib(gnn: GNN, size: Size) -> float:
    """Memory of training on the whole graph: inputs, what layers keep for their gradients, messages of attention.

    GNNs fed by rows need a batch, which is taken to fit.
    """
    if gnn.feed == "rows":
        return 0.0
    kept = 3 * sum(p.shape[0] for p in gnn.parameters() if p.ndim == 2)  # output, its gradient, dropout or norm
    messages = 2 * edge_width(gnn) if keeps_messages(gnn) else 0  # and their gradient
    return 4 * (size.nodes * (gnn.in_dim + kept) + size.entries * messages) / MIB


def sampled_mib(gnn: GNN, num_nodes: int, batch_nodes: int, fanouts: Sequence[int]) -> float:
    """Memory of a step on a batch of nodes with sampled neighbours, and of the next one's inputs, drawn meanwhile.

    At most: no node is drawn twice, until all nodes are. `fanouts` are one per convolution.
    """
    rows = [min(batch_nodes, num_nodes)]  # of the last convolution's outputs, ..., of the first one's inputs
    for fanout in fanouts:
        rows.append(min(rows[-1] * (fanout + 1), num_nodes))
    kept = 3 * sum(p.shape[0] for p in gnn.parameters() if p.ndim == 2) / len(fanouts)  # of a convolution, on average
    messages = 2 * edge_width(gnn) / len(fanouts) if keeps_messages(gnn) else 0
    entries = sum(targets * (fanout + 1) for targets, fanout in zip(rows, fanouts, strict=False))
    return 4 * (2 * rows[-1] * gnn.in_dim + sum(rows[:-1]) * kept + entries * (messages + 2)) / MIB


def edge_width(gnn: GNN) -> int:
    """Numbers that flow along an edge in one pass, all convolutions together."""
    if isinstance(gnn, APPNP | SpeGCN | SpeGNN):  # they propagate predictions
        return gnn.hops * gnn.out_dim
    return gnn.hops * max((p.shape[0] for p in gnn.parameters() if p.ndim == 2), default=gnn.out_dim)


def keeps_messages(gnn: GNN) -> bool:
    """Whether every edge's message is held: attention and PyG's own layers do; `convolve` sums them on the way."""
    return isinstance(gnn, PyGModule) or any(isinstance(part, Attention) for part in gnn.modules())
