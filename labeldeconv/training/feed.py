"""How a GNN gets its input: the whole graph, sampled neighbours, clusters, or rows of features propagated once.

`gnn.feed` says whether it wants a graph or rows; `gnn.batching` in the settings cuts the graph. Whatever the batches,
predictions are made from the whole graph, never from a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from labeldeconv.encoders.tokens import ahead
from labeldeconv.errors import ConfigError
from labeldeconv.gnns.base import GNN
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.hop_rows import hop_features, read_rows
from labeldeconv.propagation.sampling import induced, partition, sample_blocks
from labeldeconv.settings.models import GNNConfig
from labeldeconv.training.layerwise import infer, take_rows


@dataclass(frozen=True)
class Batch:
    """Node ids (b,), and a function from a GNN to their logits (b, c).

    Where several ranks train, these are the share of one in the nodes `whole`.
    """

    ids: np.ndarray
    logits: Callable[[GNN], Tensor]
    whole: np.ndarray | None = None


class Feed(Protocol):
    """Gives a GNN its batches. `label_inputs` (n, c) goes to GNNs with a label branch, or that read labels."""

    adj: Adjacency
    label_inputs: np.ndarray | None

    def batches(self, nodes: np.ndarray, generator: np.random.Generator) -> Iterator[Batch]:
        """All `nodes` once, in random batches."""
        ...

    def predict(self, gnn: GNN, nodes: np.ndarray) -> Tensor:
        """Logits (m, c) of `nodes` (m,), without sampling."""
        ...


class GraphFeed:
    """The whole graph at once: features (n, d) and A-hat."""

    def __init__(self, features: np.ndarray, adj: Adjacency, device: torch.device) -> None:
        self.label_inputs: np.ndarray | None = None
        self.x = _tensor(features, device)
        self.adj = adj

    def batches(self, nodes: np.ndarray, generator: np.random.Generator) -> Iterator[Batch]:
        """One batch: all nodes."""
        yield Batch(nodes, partial(self.predict, nodes=nodes))

    def predict(self, gnn: GNN, nodes: np.ndarray) -> Tensor:
        """Logits (m, c)."""
        labels = None if self.label_inputs is None else _tensor(self.label_inputs, self.x.device)
        return _whole(gnn, self.x, self.adj, nodes, labels)


class NeighborFeed:
    """Batches of nodes with sampled neighbours, a fan-out per convolution; features stay where they are."""

    def __init__(
        self,
        features: np.ndarray,
        adj: Adjacency,
        batch_nodes: int,
        fanouts: list[int],
        folder: Path,
        device: torch.device,
    ) -> None:
        self.label_inputs: np.ndarray | None = None
        self.features, self.adj, self.folder, self.device = features, adj, folder, device
        self.batch_nodes, self.fanouts = batch_nodes, fanouts

    def batches(self, nodes: np.ndarray, generator: np.random.Generator) -> Iterator[Batch]:
        """Random batches of at most `batch_nodes`, drawn while the one before trains.

        Every batch draws by a key of its own, taken from the generator in this thread: others may use it meanwhile.
        """
        parts = shuffled(nodes, self.batch_nodes, generator)
        for seeds, x, blocks in ahead(self._sample, ((part, int(generator.integers(1 << 63))) for part in parts)):
            yield Batch(seeds, partial(along, x=x.to(self.device), blocks=blocks))

    def _sample(self, item: tuple[np.ndarray, int]) -> tuple[np.ndarray, Tensor, list[Adjacency]]:
        """Seeds (b,) and a key to the seeds, the inputs (s, d) of their neighbourhood and its blocks."""
        seeds, key = item
        ids, blocks = sample_blocks(self.adj, seeds, self.fanouts, np.random.default_rng(key))
        return seeds, take_rows(self.features, ids), blocks

    def predict(self, gnn: GNN, nodes: np.ndarray) -> Tensor:
        """Logits (m, c), layer by layer."""
        return infer(gnn, self.features, self.adj, nodes, self.folder, self.device)


class ClusterFeed:
    """Batches of METIS clusters and the edges inside and between them."""

    def __init__(
        self, features: np.ndarray, adj: Adjacency, parts: int, per_batch: int, folder: Path, device: torch.device
    ) -> None:
        self.label_inputs: np.ndarray | None = None
        self.features, self.adj, self.folder, self.device = features, adj, folder, device
        self.parts, self.per_batch = partition(adj, parts), per_batch

    def batches(self, nodes: np.ndarray, generator: np.random.Generator) -> Iterator[Batch]:
        """Random groups of clusters; those without any of `nodes` are skipped."""
        wanted = np.zeros(self.adj.num_nodes, dtype=bool)
        wanted[nodes] = True
        for group in shuffled(np.arange(len(self.parts)), self.per_batch, generator):
            members = np.concatenate([self.parts[k] for k in group])
            chosen = np.flatnonzero(wanted[members])
            if len(chosen):
                x, adj = _tensor(self.features[members], self.device), induced(self.adj, members)
                yield Batch(members[chosen], partial(_whole, x=x, adj=adj, nodes=chosen))

    def predict(self, gnn: GNN, nodes: np.ndarray) -> Tensor:
        """Logits (m, c), layer by layer; a GNN without steps takes the whole graph at once."""
        if gnn.steps() is None:
            return _whole(gnn, _tensor(self.features, self.device), self.adj, nodes)
        return infer(gnn, self.features, self.adj, nodes, self.folder, self.device)


class RowFeed:
    """Rows (b, h, d) of hop features [X, A-hat X, ..., A-hat^N X], propagated once into a memory map.

    Nodes that make one batch are the same rows in every epoch: the last two such batches are kept, those of training
    and of validation, hop by hop, as GNNs multiply them.
    """

    def __init__(
        self, features: np.ndarray, adj: Adjacency, hops: int, batch_rows: int, folder: Path, device: torch.device
    ) -> None:
        self.label_inputs: np.ndarray | None = None
        self.adj, self.batch_rows, self.device = adj, batch_rows, device
        self.rows = self._propagated(features, hops, folder)
        self._kept: list[tuple[np.ndarray, Tensor]] = []

    def batches(self, nodes: np.ndarray, generator: np.random.Generator) -> Iterator[Batch]:
        """Random batches of at most `batch_rows` nodes, read in the order of the file while the one before trains."""
        parts = shuffled(nodes, self.batch_rows, generator)
        for ids, x in map(self._keep, parts) if len(nodes) <= self.batch_rows else ahead(self._read, parts):
            yield Batch(ids, partial(self._logits, ids=ids, x=x))

    def predict(self, gnn: GNN, nodes: np.ndarray) -> Tensor:
        """Logits (m, c), block by block."""
        if len(nodes) <= self.batch_rows:
            return self._logits(gnn, *self._keep(nodes))
        blocks = (nodes[i : i + self.batch_rows] for i in range(0, len(nodes), self.batch_rows))
        return torch.cat([self._logits(gnn, ids, x) for ids, x in ahead(self._read, blocks)])

    def _propagated(self, features: np.ndarray, hops: int, folder: Path) -> np.ndarray:
        return hop_features(features, self.adj, hops, folder)

    def _read(self, ids: np.ndarray) -> tuple[np.ndarray, Tensor]:
        return ids, torch.from_numpy(read_rows(self.rows, ids)).to(self.device)

    def _keep(self, ids: np.ndarray) -> tuple[np.ndarray, Tensor]:
        """The rows of a batch that is all its nodes have, read once."""
        found = [kept for kept in self._kept if np.array_equal(kept[0], ids)]
        if not found:
            with torch.inference_mode(False):  # rows that were predicted may be trained on next
                _, x = self._read(ids)
                found = [(ids, x.transpose(0, 1).contiguous().transpose(0, 1))]
        self._kept = [*(kept for kept in self._kept if kept is not found[0])][-1:] + found
        return found[0]

    def _logits(self, gnn: GNN, ids: np.ndarray, x: Tensor) -> Tensor:
        return gnn(x) if self.label_inputs is None else gnn(x, _tensor(self.label_inputs[ids], self.device))


class InductiveFeed:
    """Batches from the graph of the train nodes (m,), numbered as in the whole; predictions from the whole graph."""

    def __init__(self, view: Feed, whole: Feed, nodes: np.ndarray) -> None:
        self.label_inputs: np.ndarray | None = None
        self.view, self.whole, self.nodes = view, whole, nodes
        self.adj = whole.adj

    def batches(self, nodes: np.ndarray, generator: np.random.Generator) -> Iterator[Batch]:
        """The view's batches; `nodes` are train nodes."""
        for batch in self.view.batches(np.searchsorted(self.nodes, nodes), generator):
            whole = None if batch.whole is None else self.nodes[batch.whole]
            yield Batch(self.nodes[batch.ids], batch.logits, whole)

    def predict(self, gnn: GNN, nodes: np.ndarray) -> Tensor:
        """Logits (m, c) on the whole graph."""
        return self.whole.predict(gnn, nodes)


def make_feed(
    gnn: GNN, features: np.ndarray, adj: Adjacency, config: GNNConfig, folder: Path, device: torch.device
) -> Feed:
    """The feed that `gnn.feed` and the settings ask for; features (n, d) may be a memory map."""
    if gnn.feed == "rows":
        return RowFeed(features, adj, gnn.hops, config.batch_rows, folder, device)
    if gnn.reads_labels and config.batching != "full":
        raise ConfigError(f"gnn.batching '{config.batching}': {type(gnn).__name__} reads labels; 'full' expected")
    if config.batching == "full":
        return GraphFeed(features, adj, device)
    if config.batching == "clusters":
        return ClusterFeed(features, adj, config.clusters, config.clusters_per_batch, folder, device)
    return NeighborFeed(features, adj, config.batch_nodes, neighbor_fanouts(gnn, config), folder, device)


def neighbor_fanouts(gnn: GNN, config: GNNConfig) -> list[int]:
    """Neighbours drawn per convolution of a GNN that can be given sampled ones; an error where it cannot."""
    steps, name = gnn.steps(), type(gnn).__name__
    if steps is None:
        raise ConfigError(f"gnn.batching 'neighbors': {name} has no steps(); 'full' or 'clusters' expected")
    if len(config.fanouts) not in (1, len(steps)):
        raise ConfigError(f"gnn.fanouts: 1 or {len(steps)} numbers expected for {name}, got {config.fanouts}")
    return config.fanouts * len(steps) if len(config.fanouts) == 1 else config.fanouts


def edge_values(graph: AttributedGraph | None, width: int) -> np.ndarray:
    """The graph's edge features (e, width), as option edge_dim of the GNN asks."""
    values = None if graph is None else graph.edge_features
    if values is None or values.shape[1:] != (width,):
        got = "none" if values is None else f"shape {values.shape}"
        raise ConfigError(f"gnn.options.edge_dim {width}: edge features (e, {width}) expected in the data, got {got}")
    return values


def _whole(gnn: GNN, x: Tensor, adj: Adjacency, nodes: np.ndarray, label_inputs: Tensor | None = None) -> Tensor:
    """Logits (m, c) of some nodes from features (n, d), and label inputs (n, c), of all."""
    out = gnn(x, adj) if label_inputs is None else gnn(x, adj, label_inputs)
    return out[torch.from_numpy(nodes).to(x.device)]


def along(gnn: GNN, x: Tensor, blocks: list[Adjacency]) -> Tensor:
    """Logits (b, c) from features (s, d) of the first block's sources, a step per block."""
    gnn.check_input(x, "graph")
    for step, rows in zip(gnn.steps() or (), blocks, strict=True):
        x = step(x, rows)
    return x


def shuffled(nodes: np.ndarray, size: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """Even parts of at most `size`, each ascending: no lone last one, which BatchNorm could not take."""
    count = max(1, -(-len(nodes) // size))
    for part in np.array_split(generator.permutation(nodes), count):
        yield np.sort(part)


def _tensor(x: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(np.array(x, dtype=np.float32)).to(device)  # a copy: memory maps are read-only
