"""The batch of a GNN with sampled neighbours, over several ranks: every rank takes its share of the seeds.

The seeds of a step, and the key by which their neighbours are drawn, are those of one process. Which neighbours a node
draws depends on the key, the convolution and the node alone (propagation/kernel/draw.py), so that every rank draws for
its seeds what one process would, and the sum of the ranks' gradients (`sum_gradients`) is that of one process. Where
the neighbourhoods of two ranks meet, both compute the node: losses are the same, but BatchNorm (`SharedBatchNorm`)
counts it for each of them, and dropout is drawn by each rank for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from labeldeconv.encoders.tokens import ahead
from labeldeconv.gnns.base import GNN
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.stages import ranks
from labeldeconv.training.feed import Batch, NeighborFeed, along, shuffled
from labeldeconv.training.row_shares import own_rows


class SharedNeighborFeed(NeighborFeed):
    """Sampled neighbourhoods for this rank: of its share of every batch of seeds."""

    def batches(self, nodes: np.ndarray, generator: np.random.Generator) -> Iterator[Batch]:
        """The batches of one process, of which every rank draws the neighbours of its seeds."""
        parts = shuffled(nodes, self.batch_nodes, generator)
        for whole, x, blocks in ahead(self._sample, ((part, int(generator.integers(1 << 63))) for part in parts)):
            own = whole[own_rows(len(whole))]
            yield Batch(own, partial(_some, x=x.to(self.device), blocks=blocks, count=len(own)), whole)

    def _sample(self, item: tuple[np.ndarray, int]) -> tuple[np.ndarray, Tensor, list[Adjacency]]:
        whole, key = item
        own = own_rows(len(whole))
        seeds = whole[own] if own.start < own.stop else whole[:1]  # of which nothing is kept: kernels want a row
        _, x, blocks = super()._sample((seeds, key))
        return whole, x, blocks

    def predict(self, gnn: GNN, nodes: np.ndarray) -> Tensor:
        """Logits (m, c), layer by layer: by all ranks of one machine together, by rank 0 for those of several."""
        if ranks.one_machine():
            return super().predict(gnn, nodes)
        every = torch.zeros(len(nodes), gnn.out_dim)
        if ranks.leads():
            with ranks.by_itself():
                every = super().predict(gnn, nodes).float()
        ranks.add_up(every)  # the others add zeros: exact
        return every


def _some(gnn: GNN, x: Tensor, blocks: list[Adjacency], count: int) -> Tensor:
    """Logits (count, c) of the first seeds."""
    return along(gnn, x, blocks)[:count]
