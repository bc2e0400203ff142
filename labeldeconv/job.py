"""Job: one run, its graph and settings, builders instead of names, and the stages it has used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeldeconv.config import Config
from labeldeconv.encoders.base import Encoder
from labeldeconv.gnns.base import GNN
from labeldeconv.graph import AttributedGraph
from labeldeconv.metrics import Log, Watch
from labeldeconv.progress import say
from labeldeconv.record import Cache, Stage
from labeldeconv.task import Task
from labeldeconv.train.optim import autocast_type


@dataclass(frozen=True)
class Soft:
    """Nodes `ids` (m,) that a GNN is taught with the pseudo labels of a stage, and the weight of their loss."""

    labels: Stage
    ids: np.ndarray
    weight: float


@dataclass
class Job:
    """One run: the graph, its settings, builders instead of names, and the stages used so far, by label.

    Args:
        build_encoder: makes the pre-trained encoder; `encoder_identity` is its content hash.
        build_gnn: makes a GNN for features of the given size; `new_gnn` gives its outputs their start.
        gnn_options: all options of the GNN, defaults included, for keys.
        log: where metrics go besides the stages' own files.
        adapted: the encoder phase whose encoder takes the place of the pre-trained one (`encoder.adapt`).
        psi: the last encoder phase whose head is psi of the GNN.
        final: the GNN of a method that trains its own; None for the others.
    """

    graph: AttributedGraph
    config: Config
    cache: Cache
    build_encoder: Callable[[], Encoder]
    encoder_identity: str
    build_gnn: Callable[[int], GNN]
    gnn_options: dict[str, Any] = field(default_factory=dict)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    used: dict[str, Stage] = field(default_factory=dict)
    adapted: Stage | None = None
    psi: Stage | None = None
    final: Stage | None = None
    log: Log | None = None

    @property
    def task(self) -> Task:
        """What the graph's labels ask."""
        return Task.of(self.graph)

    @property
    def hops(self) -> int:
        """N: as set, or the number of convolutions of the GNN."""
        hops = self.config.labels.hops
        return self.build_gnn(1).hops if hops is None else hops

    @property
    def all_labelled(self) -> bool:
        """Whether every node is a train node, as the inductive setting shows them: no pseudo labels are needed."""
        return bool((self.graph.split.roles == 0).all())

    def new_gnn(self, in_dim: int) -> GNN:
        """A GNN for features of this width; for a multi-label task its outputs start at the labels' frequencies.

        At even odds training first spends hundreds of steps on making rare labels rare (docs/gnns.md).
        """
        gnn = self.build_gnn(in_dim)
        bias = gnn.output_bias
        if bias is not None and self.task.kind == "multilabel" and self.config.gnn.output_bias == "frequency":
            with torch.no_grad():
                bias.copy_(self.task.frequency(self.graph.labels[self.graph.split.train]).logit())
        return gnn

    def first_encoder(self) -> Encoder:
        """The encoder that features and training start from: pre-trained, or adapted to the graph."""
        encoder = self.build_encoder()
        if self.adapted:
            encoder.restore(self.adapted.path / "encoder")
        return encoder

    @property
    def first_weights(self) -> str:
        """What `first_encoder` is, as it goes into keys."""
        return self.adapted.key if self.adapted else self.encoder_identity

    @property
    def precision(self) -> str:
        """The type the encoder computes in, as it goes into keys."""
        return str(autocast_type(self.config.train.precision, self.device) or torch.float32)

    def stage(
        self, label: str, name: str, parts: Mapping[str, Any], build: Callable[[Path], Mapping[str, Any] | None]
    ) -> Stage:
        """Run or recall a stage and remember it under `label`; rows of a recalled one are logged again.

        A stage that this run has used before keeps the label it had, so that it counts once.
        """
        stage = self.cache.stage(name, parts, build)
        for known in self.used.values():
            if known.key == stage.key:
                return known  # which knows whether this run computed it
        if stage.cached:
            self.watch(label).replay_stage(stage.path)
        told = " when computed, now from the cache" if stage.cached else ""
        say(f"[dim]{label:<10} {stage.seconds:8.1f} s{told}[/]")
        self.used[label] = stage
        return stage

    def watch(self, label: str) -> Watch:
        """What takes the rows of a stage while it trains."""
        return Watch(label, self.log)
