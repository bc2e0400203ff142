"""Logits of new nodes by the GNN of a run: along its steps where it has some, on the whole grown graph where not."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from labeldeconv.errors import ConfigError
from labeldeconv.gnns.base import GNN, Step
from labeldeconv.prediction.attribution import Attribution, attribute
from labeldeconv.prediction.incremental import Inputs, along, chain, convolutions, new_only, reached
from labeldeconv.prediction.kept import activations
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.grown import GrownAdjacency
from labeldeconv.settings.models import AdjacencyConfig, GNNConfig
from labeldeconv.stages.keys import digest
from labeldeconv.training.feed import make_feed
from labeldeconv.training.label_reuse import LabelReuse
from labeldeconv.training.layerwise import take_rows

Mode = Literal["exact", "fast"]
MEAN_NODES = 1 << 16  # whose mean features are the baseline of explanations
COPIED = 1 << 21  # nodes of all copies of a graph together: marks of them, a byte each, are made anew at every step
ROWS = 1 << 14  # new nodes that go through a GNN fed by rows at a time


def reader(grown: GrownAdjacency, old: np.ndarray, new: np.ndarray) -> Inputs:
    """From node numbers (s,) of a grown graph to their rows (s, d) float32: of `old` (n, d), and of `new` (m, d).

    Where copies of the graph have grown, `new` has m rows of each, copy after copy.
    """
    n = grown.base.num_nodes

    def read(ids: np.ndarray) -> Tensor:
        inside = grown.inside(ids)
        known = inside < n
        if known.all():
            return take_rows(old, inside)
        out = torch.empty(len(ids), old.shape[1])
        out[torch.from_numpy(known)] = take_rows(old, inside[known])
        place = inside[~known] - n + ids[~known] // grown.size * grown.num_new
        out[torch.from_numpy(~known)] = take_rows(new, place)
        return out

    return read


@dataclass(frozen=True, eq=False)
class StepModel:
    """Steps over a graph with inputs (n, d), whose activations are kept under `key`."""

    steps: Sequence[Step]
    inputs: np.ndarray
    adj: Adjacency
    key: str

    @property
    def content_key(self) -> str:
        """Hash of all that decides about the activations."""
        return self.key

    @cached_property
    def kept(self) -> list[np.ndarray]:
        """Outputs (n, .) of all steps but the last."""
        return activations(self).open()

    def at(
        self,
        grown: GrownAdjacency,
        new_inputs: np.ndarray,
        seeds: np.ndarray,
        mode: Mode,
    ) -> list[Tensor]:
        """Input and output of every step at the new nodes `seeds` (s,); new_inputs (m, d) are of all new nodes."""
        read, count = reader(grown, self.inputs, new_inputs), len(self.steps)
        if mode == "fast":
            return along(self.steps, grown, read, seeds, self.kept, new_only(grown, count))
        if self.worth_keeping(grown):
            return along(self.steps, grown, read, seeds, self.kept, reached(grown, count))
        return along(self.steps, grown, read, seeds)

    def worth_keeping(self, grown: GrownAdjacency) -> bool:
        """Whether an exact prediction has anything to gain from kept activations.

        All neighbours of a new node change on an undirected graph, so two steps read nothing but features. Edge
        features of self-loops are the mean of all edges, which every new edge moves.
        """
        enough = len(self.steps) > (2 if grown.config.undirected else 1)
        return enough and grown.edge_features is None


@dataclass(frozen=True, eq=False)
class GraphModel:
    """A trained GNN on its graph.

    Args:
        gnn: in eval mode.
        features: what it reads of the old nodes (n, d).
        adj: A-hat of the old nodes, with edge features where the GNN reads some.
        config: how A-hat was made.
        edges: (2, e) as given, with features (e, k) where the GNN reads some: for GNNs without steps.
        labels: (n, c) of the taught nodes, zero elsewhere, for GNNs with a label branch; None for others.
        key: hash of all of this.
        reuse: what shows labels to a GNN that reads them beside its own predictions, which go round the whole graph.
    """

    gnn: GNN
    features: np.ndarray
    adj: Adjacency
    config: AdjacencyConfig
    edges: np.ndarray
    labels: np.ndarray | None = None
    key: str = ""
    reuse: LabelReuse | None = None
    _models: dict[str, StepModel] = field(default_factory=dict, repr=False)

    def grow(
        self, num_new: int, edges: np.ndarray, values: np.ndarray | None = None, copies: int = 1
    ) -> GrownAdjacency:
        """A-hat, or copies of it, with new nodes and edges (2, k), and their features where the GNN reads some."""
        return GrownAdjacency.of(self.adj, self.config, num_new, edges, values, copies)

    @property
    def most_copies(self) -> int:
        """Copies of the graph that may grow at a time: one for GNNs without steps or with edge features."""
        if self._steps is None or self.adj.edge_features is not None:
            return 1
        return max(1, COPIED // max(1, self.adj.num_nodes))

    def logits(
        self,
        grown: GrownAdjacency,
        new_features: np.ndarray,
        new_edges: np.ndarray,
        seeds: np.ndarray,
        mode: Mode = "exact",
    ) -> np.ndarray:
        """Logits (s, c) of the new nodes `seeds` (s,), ascending; new_features (m, d) are of all new nodes."""
        if mode not in get_args(Mode):
            raise ConfigError(f"mode '{mode}': {' or '.join(map(repr, get_args(Mode)))} expected")
        if not len(seeds):
            return np.empty((0, self.gnn.out_dim), np.float32)
        steps = self._steps
        with torch.inference_mode():
            if steps is None:
                return self.on_the_whole(grown, new_features, new_edges, seeds)
            outs = self._model("features", steps, self.features).at(grown, new_features, seeds, mode)
            if self.gnn.feed == "graph":
                return outs[-1].float().numpy()
            rows = torch.stack(outs, dim=1).half().float()  # (s, h, d), rounded as the run kept them
            given = [rows, *self._label_inputs(grown, seeds, mode)]
            parts = [self.gnn(*(x[i : i + ROWS] for x in given)) for i in range(0, len(seeds), ROWS)]
            return torch.cat(parts).float().numpy()

    def on_the_whole(
        self, grown: GrownAdjacency, new_features: np.ndarray, new_edges: np.ndarray, seeds: np.ndarray
    ) -> np.ndarray:
        """The same from a pass over the whole grown graph, built anew: the slow way, for every GNN."""
        gnn, n = self.gnn, grown.num_nodes
        edges = np.concatenate([self.edges, np.asarray(new_edges, self.edges.dtype)], axis=1)
        adj = Adjacency.from_edges(edges, n, self.config)
        if self.adj.edge_features is not None:
            old = self.adj.edge_features.values
            new = np.empty((0, old.shape[1])) if grown.new_values is None else grown.new_values
            adj = adj.with_edge_features(edges, np.concatenate([old, new.astype(old.dtype)]))
        x = np.concatenate([self.features, new_features.astype(self.features.dtype)])
        with tempfile.TemporaryDirectory(prefix="labeldeconv-") as scratch, torch.inference_mode():
            feed = make_feed(gnn, x, adj, GNNConfig(batching="full"), Path(scratch), torch.device("cpu"))
            if self.labels is not None:
                Y = np.concatenate([self.labels, np.zeros((grown.num_new, self.labels.shape[1]), np.float32)])
                for _ in range(gnn.label_hops):
                    Y = adj @ Y
                feed.label_inputs = Y
            if self.reuse is not None:
                nobody = np.zeros((grown.num_new, *self.reuse.labels.shape[1:]), self.reuse.labels.dtype)  # never read
                shown = replace(self.reuse, labels=np.concatenate([self.reuse.labels, nobody]))
                shown.show(gnn, feed, shown.train)
            return feed.predict(gnn, seeds).float().numpy()

    @property
    def _steps(self) -> Sequence[Step] | None:
        """Steps that a part of the graph suffices for; None for GNNs that need all of it."""
        return chain(self.gnn) if self.reuse is None else None

    @cached_property
    def mean(self) -> Tensor:
        """Mean inputs (d,) of the old nodes."""
        return mean_of(self.features)

    def attribution(
        self, grown: GrownAdjacency, new_features: np.ndarray, node: int, of: int, known: np.ndarray
    ) -> Attribution:
        """What carried the logit of class `of` at a node, old or new, whose logits (c,) are `known`."""
        if self.reuse is not None:
            raise ConfigError(
                "explain: the GNN reads its own predictions of the whole graph; label_inputs false expected"
            )
        read = reader(grown, self.features, new_features)
        labels: Inputs | None = None
        if self.labels is not None:
            labels = reader(grown, self.labels, np.zeros((grown.num_new, self.labels.shape[1]), np.float32))
        return attribute(self.gnn, grown, read, self.mean, node, of, labels, known)

    def _label_inputs(self, grown: GrownAdjacency, seeds: np.ndarray, mode: Mode) -> list[Tensor]:
        """A-hat^k Y (s, c) of the labels of taught old nodes; nothing for a GNN without a label branch."""
        if self.labels is None:
            return []
        none = np.zeros((len(grown.new_nodes), self.labels.shape[1]), np.float32)
        model = self._model("labels", convolutions(self.gnn.label_hops), self.labels)
        return [model.at(grown, none, seeds, mode)[-1]]

    def _model(self, what: str, steps: Sequence[Step], inputs: np.ndarray) -> StepModel:
        if what not in self._models:
            self._models[what] = StepModel(steps, inputs, self.adj, digest([self.key, what]))
        return self._models[what]


def mean_of(features: np.ndarray) -> Tensor:
    """The mean (d,) of features (n, d); of many nodes, of `MEAN_NODES` of them, evenly taken."""
    some = features[:: max(1, len(features) // MEAN_NODES)]
    return torch.from_numpy(np.asarray(some).mean(0, dtype=np.float64).astype(np.float32))
