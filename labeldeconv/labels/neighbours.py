"""Neighbourhood prediction, the supervision of GIANT: which clusters of nodes does a node link to?

Rows of the adjacency matrix are the labels of an extreme multi-label task. Nodes are clustered into a balanced binary
tree on PIFA features (TF-IDF of the attributes, averaged over neighbours); a level of the tree gives that many targets,
and the encoder is trained from coarse to fine. Node labels are never used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import Task
from labeldeconv.propagation.adjacency import Adjacency, propagate
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.stages.keys import Reads
from labeldeconv.stages.stage import Artefact, Folder, stage


class HasTokens(Protocol):
    """An artefact with token ids, flat `ids` (total,), and `offsets` (n + 1,)."""

    @property
    def ids(self) -> np.ndarray:
        """Token ids (total,)."""
        ...

    @property
    def offsets(self) -> np.ndarray:
        """Where each node's begin and end (n + 1,)."""
        ...

    @property
    def content_key(self) -> str:
        """The key of the stage that made it."""
        ...


@dataclass(frozen=True, eq=False)
class ClusterTree(Artefact):
    """Clusters of all nodes, `levels` (l, n) int32: level k has 2^(k + 1) clusters of equal size."""

    levels: np.ndarray


@stage(version=1)
def tree(
    out: Folder,
    tokens: HasTokens,
    graph: Annotated[AttributedGraph, Reads("edges", "num_nodes")],
    adjacency: AdjacencyConfig,
    ngram: int,
    levels: int,
    seed: int,
) -> ClusterTree:
    """Clusters of all nodes at every level, from tokens and edges alone."""
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes, adjacency)
    pifa = pifa_features(np.asarray(tokens.ids), np.asarray(tokens.offsets), adj, ngram, seed=seed)
    return ClusterTree(balanced_tree(pifa, levels, seed=seed))


@dataclass(frozen=True, eq=False)
class NeighbourTargets:
    """The clusters of one level of a tree in which a node has neighbours; `adj` is the A-hat that made the tree."""

    tree: ClusterTree
    level: int
    adj: Adjacency = field(metadata={"idle": True})  # the tree's key has it

    @property
    def clusters(self) -> int:
        """Number of clusters of the level."""
        return 2 ** (self.level + 1)

    @property
    def task(self) -> Task:
        """One binary label per cluster."""
        return Task("multilabel", self.clusters)

    def build(self) -> NeighbourClusters:
        """Node ids to multi-hot targets."""
        return NeighbourClusters(self.adj, self.tree.levels[self.level])


def pifa_features(
    tokens: np.ndarray, offsets: np.ndarray, adj: Adjacency, ngram: int = 1, dim: int = 128, seed: int = 0
) -> np.ndarray:
    """PIFA (n, dim) float32: normalised TF-IDF of runs of `ngram` tokens, randomly projected, averaged over neighbours.

    The projection keeps inner products (Johnson-Lindenstrauss), so no (n, vocabulary) matrix is ever made.
    """
    tokens = _runs(tokens, offsets, ngram)
    n, vocabulary = len(offsets) - 1, int(tokens.max(initial=0)) + 1
    rows = np.repeat(np.arange(n), np.diff(offsets))
    pairs = np.unique(rows * vocabulary + tokens)  # each word once per node: document frequency
    frequency = np.bincount(pairs % vocabulary, minlength=vocabulary)
    idf = np.log((1 + n) / (1 + frequency)) + 1
    rng = np.random.default_rng(seed)
    table = (rng.standard_normal((vocabulary, dim)) * idf[:, None]).astype(np.float32)
    flat = torch.from_numpy(np.asarray(tokens).astype(np.int64))
    starts = torch.from_numpy(np.asarray(offsets[:-1]).astype(np.int64))
    projected = torch.nn.functional.embedding_bag(flat, torch.from_numpy(table), starts, mode="sum").numpy()
    projected /= np.linalg.norm(projected, axis=1, keepdims=True).clip(1e-12)
    *_, averaged = propagate(adj, projected, 1)
    return averaged / np.linalg.norm(averaged, axis=1, keepdims=True).clip(1e-12)


def _runs(tokens: np.ndarray, offsets: np.ndarray, length: int) -> np.ndarray:
    """For every token the run of `length` tokens that starts there, as one number; shorter at a node's end."""
    last = offsets[1:][np.diff(offsets) > 0] - 1
    for _ in range(length - 1):
        following = np.append(tokens[1:], 0).astype(np.int64) + 1
        following[last] = 0
        tokens = np.unique(tokens * (following.max(initial=0) + 1) + following, return_inverse=True)[1]
    return tokens


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
        out[level, order] = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    return out


def _halve(features: np.ndarray, order: np.ndarray, bounds: np.ndarray, middle: np.ndarray) -> np.ndarray:
    """One step of balanced 2-means in all clusters at once: centres of both halves, then order by the difference."""
    x = features[order]
    total = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, axis=0, dtype=np.float64)])
    left = (total[middle] - total[bounds[:-1]]) / np.maximum(middle - bounds[:-1], 1)[:, None]
    right = (total[bounds[1:]] - total[middle]) / np.maximum(bounds[1:] - middle, 1)[:, None]
    cluster = np.repeat(np.arange(len(middle)), np.diff(bounds))
    nearer = np.einsum("nd,nd->n", x, (right - left)[cluster])
    return order[np.lexsort((nearer, cluster))]


class NeighbourClusters(nn.Module):
    """Node ids (b,) to multi-hot targets (b, clusters): the clusters in which a node has neighbours."""

    def __init__(self, adj: Adjacency, clusters: np.ndarray) -> None:
        super().__init__()
        self.adj = adj
        self.clusters = clusters
        self.num_clusters = int(clusters.max(initial=0)) + 1

    def forward(self, ids: np.ndarray) -> Tensor:
        """Targets (b, clusters) of the nodes."""
        starts, ends = self.adj.indptr[ids], self.adj.indptr[ids + 1]
        counts = ends - starts
        flat = np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
        out = torch.zeros(len(ids), self.num_clusters)
        rows = torch.from_numpy(np.repeat(np.arange(len(ids)), counts))
        out[rows, torch.from_numpy(self.clusters[self.adj.indices[flat]].astype(np.int64))] = 1.0
        return out
