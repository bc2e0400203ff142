"""How a GNN gets its input: the whole graph, or rows of features propagated once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from labeldeconv.adjacency import Adjacency, propagate
from labeldeconv.gnns.base import GNN


class Feed(Protocol):
    """Gives a GNN its batches."""

    def batches(
        self, gnn: GNN, nodes: np.ndarray, generator: np.random.Generator
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Node ids (b,) with their logits (b, c), over all `nodes` once."""
        ...

    def predict(self, gnn: GNN) -> Tensor:
        """Logits (n, c) of all nodes, without sampling."""
        ...


class GraphFeed:
    """The whole graph at once: features (n, d) and A-hat."""

    def __init__(self, features: np.ndarray, adj: Adjacency, device: torch.device) -> None:
        self.x = torch.from_numpy(np.asarray(features, dtype=np.float32)).to(device)
        self.adj = adj

    def batches(
        self, gnn: GNN, nodes: np.ndarray, generator: np.random.Generator
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        """One batch: all nodes."""
        yield nodes, gnn(self.x, self.adj)[torch.from_numpy(nodes)]

    def predict(self, gnn: GNN) -> Tensor:
        """Logits (n, c)."""
        return gnn(self.x, self.adj)


class RowFeed:
    """Rows (b, h, d) of hop features [X, A-hat X, ..., A-hat^N X], propagated once into a memory map."""

    def __init__(
        self, features: np.ndarray, adj: Adjacency, hops: int, batch_rows: int, folder: Path, device: torch.device
    ) -> None:
        n, d = features.shape
        self.batch_rows = batch_rows
        self.device = device
        path = folder / "hop_features.npy"
        self.rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(n, hops + 1, d))
        for i, x in enumerate(propagate(adj, np.asarray(features, dtype=np.float32), hops)):
            self.rows[:, i] = x
        path.unlink()  # the open map keeps it alive; nothing is left behind after a kill

    def batches(
        self, gnn: GNN, nodes: np.ndarray, generator: np.random.Generator
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Shuffled batches of at most `batch_rows` nodes; a last batch of one joins its neighbour (BatchNorm)."""
        order = generator.permutation(nodes)
        count = max(1, -(-len(order) // self.batch_rows))
        for ids in np.array_split(order, count):
            yield ids, gnn(self._take(ids))

    def predict(self, gnn: GNN) -> Tensor:
        """Logits (n, c), block by block."""
        blocks = range(0, len(self.rows), self.batch_rows)
        return torch.cat([gnn(self._take(slice(i, i + self.batch_rows))) for i in blocks])

    def _take(self, ids: np.ndarray | slice) -> Tensor:
        return torch.from_numpy(np.asarray(self.rows[ids], dtype=np.float32)).to(self.device)


def make_feed(
    gnn: GNN, features: np.ndarray, adj: Adjacency, batch_rows: int, folder: Path, device: torch.device
) -> Feed:
    """The feed that `gnn.feed` asks for."""
    if gnn.feed == "rows":
        return RowFeed(features, adj, gnn.hops, batch_rows, folder, device)
    return GraphFeed(features, adj, device)
