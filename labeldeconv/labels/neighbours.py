"""Neighbourhood prediction, the supervision of GIANT: which nodes does a node link to?

Rows of the adjacency matrix are the labels of an extreme multi-label task. Nodes are clustered into a balanced binary
tree on PIFA features (TF-IDF of the attributes, averaged over neighbours). A level of the tree asks which clusters a
node has neighbours in; the level below all others asks for the neighbours themselves. The encoder is trained from
coarse to fine. Node labels are never used.

The loss of a node is a binary cross entropy over all outputs, clusters or nodes, of which there may be very many. So a
batch has the outputs that are true of some node in it, and others that are drawn and weighted, so that the loss is what
all outputs would give, on average.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import Task
from labeldeconv.graph.texts import Texts
from labeldeconv.labels.word_sketch import PUBLISHED, residue_runs, write_sketches
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.outofcore import block_bytes, release, write_hops
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.stages.files import scratch
from labeldeconv.stages.keys import Reads
from labeldeconv.stages.memory_limit import check_room
from labeldeconv.stages.stage import Artefact, Folder, stage

DIM = 128  # width of the sketches that nodes are clustered by
ROWS = 1 << 14  # nodes in a block


@dataclass(frozen=True, eq=False)
class ClusterTree(Artefact):
    """Clusters of all nodes, `levels` (l, n) int32: level k has 2^(k + 1) clusters of equal size."""

    levels: np.ndarray

    def clusters(self, level: int) -> np.ndarray:
        """The output (n,) that stands for every node: its cluster on `level`, or below the last level itself."""
        return self.levels[level] if level < len(self.levels) else np.arange(self.levels.shape[1])

    def outputs(self, level: int) -> int:
        """Number of clusters of the level, or of nodes below the last one."""
        return 2 ** (level + 1) if level < len(self.levels) else self.levels.shape[1]

    def parents(self, level: int, above: int) -> np.ndarray:
        """For every output of `level` the cluster (outputs,) of the level `above` that holds it."""
        if level == len(self.levels):
            return np.asarray(self.levels[above])
        return np.arange(self.outputs(level)) >> (level - above)


@stage(version=2)
def tree(
    out: Folder,
    graph: Annotated[AttributedGraph, Reads("texts", "edges", "num_nodes")],
    adjacency: AdjacencyConfig,
    residues: int | None,
    levels: int,
    seed: int,
) -> ClusterTree:
    """The tree of all nodes; `residues` in a word of a protein, None for texts.

    Memory is 400 MiB (`propagation.outofcore`), 100 MB of word counts and some 40 bytes a node, besides A-hat and the
    tree itself; 3 * 4 * DIM bytes a node lie on disk meanwhile.
    """
    n, size = graph.num_nodes, (graph.num_nodes, graph.edges.shape[1], adjacency)
    working = block_bytes(n) + (100 << 20) + (40 + 4 * levels) * n
    needed = max(Adjacency.building_bytes(*size), Adjacency.held_bytes(*size) + working)
    check_room(out.label, needed, "take part of the graph (--max-nodes)")
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes, adjacency)
    return ClusterTree(balanced_tree(pifa_features(graph.texts, adj, residues, out.path, seed), levels, seed=seed))


@dataclass(frozen=True, eq=False)
class NeighbourTargets:
    """What a node's neighbours are on one level of a tree; `adj` is the A-hat that made the tree.

    Args:
        level: of the tree; the number of levels stands for the nodes themselves.
        negatives: outputs drawn for a batch; None takes all outputs.
    """

    tree: ClusterTree
    level: int
    adj: Adjacency = field(metadata={"idle": True})  # the tree's key has it
    negatives: int | None = None

    @property
    def outputs(self) -> int:
        """Number of clusters, or of nodes."""
        return self.tree.outputs(self.level)

    @property
    def task(self) -> Task:
        """One binary label per output."""
        return Task("multilabel", self.outputs)

    def build(self) -> NeighbourOutputs:
        """Node ids to targets of some outputs."""
        return NeighbourOutputs(self.adj, self.tree.clusters(self.level), self.outputs, self.negatives)


@dataclass(frozen=True, eq=False)
class SomeOutputs:
    """Targets of some outputs for a batch of b nodes.

    Args:
        outputs: which ones (m,) int64.
        targets: 1 where an output is true of a node (b, m), else 0.
        weights: how many outputs each stands for (m,).
        share: the sum over outputs is divided by it.
    """

    outputs: Tensor
    targets: Tensor
    weights: Tensor
    share: float

    def loss(self, logits: Tensor) -> Tensor:
        """Binary cross entropy (b,) of logits (b, m): the weighted sum over outputs, per neighbour."""
        each = F.binary_cross_entropy_with_logits(logits, self.targets.to(logits), reduction="none")
        return (each * self.weights.to(logits)).sum(-1) / self.share


class NeighbourOutputs(nn.Module):
    """Node ids (b,) to `SomeOutputs`: those in which some of the nodes have neighbours, and drawn ones.

    Args:
        clusters: the output (n,) that stands for each node.
        outputs: how many there are.
        negatives: how many are drawn, with replacement, from torch's generator; those that are true of some node
            of the batch are dropped, the others weigh outputs / negatives, so that the expected loss is that of all.
    """

    def __init__(self, adj: Adjacency, clusters: np.ndarray, outputs: int, negatives: int | None = None) -> None:
        super().__init__()
        self.adj = adj
        self.clusters = clusters
        self.outputs = outputs
        self.negatives = negatives
        # Neighbours of a node on average. A mean over outputs instead would leave gradients of the size of Adam's
        # epsilon where outputs are many.
        self.share = max(1.0, len(adj.indices) / max(1, adj.num_nodes))

    def forward(self, ids: np.ndarray) -> SomeOutputs:
        """Targets of the nodes."""
        rows, true = self._pairs(ids)
        if self.negatives is None:
            chosen, weights = np.arange(self.outputs), np.ones(self.outputs)
        else:
            positive = np.unique(true)
            drawn = torch.randint(self.outputs, (self.negatives,)).numpy()
            others, times = np.unique(drawn[~np.isin(drawn, positive)], return_counts=True)
            chosen = np.concatenate([positive, others])
            weights = np.concatenate([np.ones(len(positive)), times * (self.outputs / self.negatives)])
        place = np.argsort(chosen)
        targets = torch.zeros(len(ids), len(chosen))
        targets[rows, place[np.searchsorted(chosen[place], true)]] = 1.0
        return SomeOutputs(torch.from_numpy(chosen), targets, torch.from_numpy(weights).float(), self.share)

    def counts(self, nodes: np.ndarray) -> Tensor:
        """Of how many of the nodes (m,) each output is true: (outputs,) float32."""
        total = np.zeros(self.outputs, np.int64)
        for lo in range(0, len(nodes), ROWS):
            rows, true = self._pairs(nodes[lo : lo + ROWS])
            once = np.unique(rows * self.outputs + true) % self.outputs
            total += np.bincount(once, minlength=self.outputs)
        return torch.from_numpy(total).float()

    def _pairs(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places in the batch and outputs, of every neighbour of every node."""
        starts, ends = self.adj.indptr[ids], self.adj.indptr[ids + 1]
        counts = ends - starts
        flat = np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
        rows = np.repeat(np.arange(len(ids)), counts)
        return rows, self.clusters[self.adj.indices[flat]].astype(np.int64)


def pifa_features(texts: Texts, adj: Adjacency, residues: int | None, folder: Path, seed: int = 0) -> np.ndarray:
    """PIFA (n, DIM) float32 on disk: TF-IDF of the attributes, projected, averaged over neighbours, of length 1."""
    n = len(texts)
    kinds = PUBLISHED if residues is None else residue_runs(residues)
    own = scratch(folder, "sketches", (n, DIM), np.dtype(np.float32))
    write_sketches(texts, kinds, own, seed)
    both = scratch(folder, "pifa", (n, 2, DIM), np.dtype(np.float32))
    write_hops(adj, own, 1, both, folder)
    for lo, hi in _blocks(n):
        averaged = both[lo:hi, 1]
        own[lo:hi] = averaged / np.linalg.norm(averaged, axis=1, keepdims=True).clip(1e-12)
        release(both, lo, hi)
        release(own, lo, hi)
    return own


def balanced_tree(features: np.ndarray, levels: int, seed: int = 0, steps: int = 8) -> np.ndarray:
    """Clusters (levels, n) int32: level k has 2^(k + 1) clusters of equal size, each split in two by balanced 2-means.

    A split orders a cluster's nodes by how much nearer they are to one centre than to the other and cuts in the middle.
    """
    n = len(features)
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)  # nodes, cluster after cluster
    bounds = np.array([0, n])
    out = np.zeros((levels, n), dtype=np.int32)
    for level in range(levels):
        middle = (bounds[:-1] + bounds[1:]) // 2
        for _ in range(steps):
            order = _halve(features, order, bounds, middle)
        bounds = np.sort(np.concatenate([bounds, middle]))
        out[level, order] = np.repeat(np.arange(len(bounds) - 1, dtype=np.int32), np.diff(bounds))
    return out


def _halve(features: np.ndarray, order: np.ndarray, bounds: np.ndarray, middle: np.ndarray) -> np.ndarray:
    """One step of balanced 2-means in all clusters at once: centres of both halves, then order by the difference."""
    n = len(order)
    edges = np.empty(2 * len(middle) + 1, np.int64)  # where halves begin and end
    edges[::2], edges[1::2] = bounds, middle
    sums = np.zeros((2 * len(middle), features.shape[1]))
    for lo, hi in _blocks(n):
        half = np.searchsorted(edges, np.arange(lo, hi), side="right") - 1
        first = np.flatnonzero(np.diff(half, prepend=-1))
        sums[half[first]] += np.add.reduceat(features[order[lo:hi]], first, axis=0, dtype=np.float64)
    centres = sums / np.maximum(np.diff(edges), 1)[:, None]
    direction = centres[1::2] - centres[::2]
    nearer = np.empty(n)
    cluster = np.repeat(np.arange(len(middle), dtype=np.int32), np.diff(bounds))
    for lo, hi in _blocks(n):
        nearer[lo:hi] = np.einsum("nd,nd->n", features[order[lo:hi]], direction[cluster[lo:hi]])
    return order[np.lexsort((nearer, cluster))]


def _blocks(n: int) -> Iterator[tuple[int, int]]:
    """Row ranges of at most ROWS rows."""
    return ((lo, min(lo + ROWS, n)) for lo in range(0, n, ROWS))
