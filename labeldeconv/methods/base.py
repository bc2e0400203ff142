"""What a method is: a function from a frozen run to what it learned, and all else that is known of it, in one object.

    @method("mine", title="X_MINE", trained_on="true labels", nodes="train", color=9)
    def mine(run: Run) -> Learned:
        \"\"\"Features of an encoder fine-tuned my way.\"\"\"
        trained = run.train(TrueTargets(run.graph.train_labels, run.task), run.graph.split.train)
        X = run.features(trained)
        return Learned(X, run.gnn(X), encoder=trained, psi=trained)

`Run` has the words that methods are written in: each fills in what is the same for all methods (tokens, seed, device,
precision, the GNN's settings) and calls one stage.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from labeldeconv.encoders.pretrained import Weights
from labeldeconv.encoders.tokens import Tokens, tokens
from labeldeconv.errors import ConfigError
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.lead import Lead
from labeldeconv.graph.task import Task, class_weights
from labeldeconv.labels.hops import HopLabels
from labeldeconv.labels.kept_hops import KeptHops
from labeldeconv.labels.pseudo import Labels
from labeldeconv.labels.targets import Targets
from labeldeconv.registry import Registry
from labeldeconv.settings.models import Config, TrainConfig
from labeldeconv.settings.reading import load_config
from labeldeconv.training.encoder import Head, LinearHead, PsiHead, TrainedEncoder, train
from labeldeconv.training.features import Features, beside, features
from labeldeconv.training.gnn import KeptGNN, Taught, TrainedGNN, gnn, output_start
from labeldeconv.training.steps import resolved_precision
from labeldeconv.training.token_states import token_states


@dataclass(frozen=True, eq=False)
class Learned:
    """What a method has learned, all of one piece: the encoder and psi are those that made the features.

    Args:
        features: X of the method, of all nodes.
        gnn: the GNN on them, which predicts.
        encoder: the encoder phase that gave the features; None for methods that train none.
        psi: the encoder phase whose head, psi of the GNN or a linear layer, predicts classes; None where none does.
        labels: (pseudo) labels Y that were used.
        hop_labels: K, where there is one.
        alpha: share of the inverse labels in the targets; None for methods without them.
        method: its name, where it is one of several that were tried.
        tried: all of those, for the method 'auto'.
    """

    features: Features
    gnn: TrainedGNN
    encoder: TrainedEncoder | None = None
    psi: TrainedEncoder | None = None
    labels: Labels | None = None
    hop_labels: HopLabels | None = None
    alpha: float | None = None
    method: str | None = None
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True)
class Tried:
    """A method that was tried: passes of its encoder phase, and the validation score of the GNN on its features.

    `leads`: how far it leads what it would have replaced, by the name and epochs of that.
    """

    method: str
    epochs: int
    val: float
    leads: Mapping[str, Lead] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Run:
    """One run, frozen: the graph, the settings, the encoder and the GNN to be trained.

    Args:
        graph: what training may see; in the inductive setting the graph of the train nodes.
        whole: all nodes: what is encoded and predicted in the end.
        settings: resolved.
        encoder: the weights that features and training start from: pre-trained, or adapted to the graph first.
        architecture: of the GNN.
        device: where to compute.
        kept_gnn: weights of an earlier run that every GNN of this one begins with, as far as they fit.
        kept_hops: hop labels of an earlier run, whose rows are taken where nothing that they depend on has changed.
    """

    graph: AttributedGraph
    whole: AttributedGraph
    settings: Config
    encoder: Weights
    architecture: Architecture
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    kept_gnn: KeptGNN | None = None
    kept_hops: KeptHops | None = None

    @property
    def inductive(self) -> bool:
        """Whether evaluation nodes are hidden from training."""
        return self.graph is not self.whole

    @cached_property
    def task(self) -> Task:
        """What the labels ask."""
        return Task.of(self.graph, self.settings.metric, loss=self.settings.regression_loss)

    @cached_property
    def class_weights(self) -> tuple[float, ...] | None:
        """Weights of the classes (c,) in losses on true labels; None where all are equal."""
        graph = self.graph
        return class_weights(graph.task, graph.num_classes, graph.train_labels, self.settings.class_weights)

    @property
    def weighted_task(self) -> Task:
        """The task with the class weights in its loss, for encoders that learn true labels."""
        return replace(self.task, weights=self.class_weights)

    @property
    def label_store(self) -> str:
        """How hop labels are kept: as set, but numbers that are no shares have no fixed point."""
        return "float32" if self.task.kind == "regression" else self.settings.labels.store

    @property
    def all_labelled(self) -> bool:
        """Whether every node is a train node, as the inductive setting shows them: no pseudo labels are needed."""
        return bool((self.graph.split.roles == 0).all())

    @property
    def hops(self) -> int:
        """N: as set, or the number of convolutions of the GNN."""
        number = self.settings.labels.hops
        return self.architecture.hops if number is None else number

    @property
    def training(self) -> TrainConfig:
        """Settings of the encoder phase, with the precision that this device takes."""
        precision = resolved_precision(self.settings.train.precision, self.device)
        return self.settings.train.model_copy(update={"precision": precision})

    @cached_property
    def output_bias(self) -> np.ndarray | None:
        """Where outputs of a multi-label GNN and of its psi start (c,)."""
        return output_start(self.task, self.graph.train_labels, self.settings.gnn.output_bias)

    def with_settings(self, changes: Mapping[str, Any]) -> Run:
        """The same run with other settings, by dotted names, that need no other encoder and no other GNN."""
        return replace(self, settings=load_config(self.settings, changes))

    def tokens(self, graph: AttributedGraph | None = None) -> Tokens:
        """Tokens of all attributes of the training graph, or of another one."""
        texts, pretrained = (graph or self.graph).texts, self.encoder.pretrained
        return tokens(texts, pretrained.tokenizer, self.settings.encoder.max_tokens, pretrained.files_key(texts))

    def inputs(self, start: TrainedEncoder | None = None, graph: AttributedGraph | None = None) -> Tokens:
        """What the encoder trains on: tokens, or with `encoder.train_layers` the states of its frozen layers on them.

        Args:
            start: the phase that training goes on from. One that trained on the states of the first encoder has left
                the trunk as it was; one that trained all layers has a trunk of its own.
        """
        number = self.settings.encoder.train_layers
        if number is None:
            return self.tokens(graph)
        origin = self.encoder if start is None or self.has_first_trunk(start) else self.encoder.with_trained(start)
        label = "trunk" if graph is None or graph is self.graph else "trunk of all"
        return token_states.called(label)(self.tokens(graph), origin, number, self.training.precision, self.device)

    def has_first_trunk(self, trained: TrainedEncoder) -> bool:
        """Whether the trunk of a trained encoder is that of the encoder which the run started from."""
        return trained.trunk is not None and trained.trunk == self.inputs().content_key

    def encode(self) -> Features:
        """X_PNE of the training graph: features of the encoder as it is at the start."""
        return features.called("encode")(self.tokens(), self.encoder, self.training.precision, self.device)

    def features(self, trained: TrainedEncoder | None, label: str = "features") -> Features:
        """Features of all nodes, of the whole graph: Algorithm 1, line 12."""
        weights = self.encoder.with_trained(trained)
        split = trained is not None and self.has_first_trunk(trained)
        read = self.inputs(graph=self.whole) if split else self.tokens(self.whole)
        return features.called(label)(read, weights, self.training.precision, self.device)

    def psi(self, start: TrainedGNN | None = None, heads: int = 1) -> PsiHead:
        """psi of the GNN as the head behind the encoder, fresh or from a trained GNN; `heads` times as many outputs."""
        norm = self.settings.train.psi_norm
        return PsiHead(self.architecture, self.graph.num_classes, norm, self.output_bias, start, heads)

    def label_head(self) -> Head:
        """What FNE and GLEM put behind the encoder (`train.head`): a linear layer, or psi of the GNN."""
        if self.settings.train.head == "linear":
            return LinearHead(self.graph.num_classes, self.output_bias)
        return self.psi(self.first_gnn() if self.settings.train.psi_init == "gnn" else None)

    def train(
        self,
        targets: Targets,
        nodes: np.ndarray,
        *,
        head: Head | None = None,
        start: TrainedEncoder | None = None,
        epochs: int | None = None,
        pseudo_weight: float | None = None,
        label: str = "train",
    ) -> TrainedEncoder:
        """The encoder phase (Algorithm 1, lines 5-11) on the targets of `nodes` (m,) of the training graph.

        Args:
            head: what is put behind the encoder; psi of the GNN if None.
            start: go on from this phase's encoder instead of the first one.
            epochs: instead of `train.epochs`.
            pseudo_weight: share of the nodes without a true label in the loss; None is one plain mean.
        """
        settings = self.training if epochs is None else self.training.model_copy(update={"epochs": epochs})
        gold = None if pseudo_weight is None else self.graph.split.roles == 0
        weights = self.encoder.with_trained(start)
        arguments = (self.inputs(start), weights, head or self.psi(), targets, nodes, settings, self.settings.seed)
        return train.called(label)(*arguments, pseudo_weight, gold, self.device)

    def gnn(
        self,
        X: Features,
        *,
        taught: Taught | None = None,
        start: TrainedEncoder | None = None,
        label: str = "gnn",
    ) -> TrainedGNN:
        """The GNN phase (Algorithm 1, lines 13-17) on features of the whole graph, by the train nodes' labels."""
        return gnn.called(label)(*self._gnn_arguments(X, self.whole, self.inductive, taught, start))

    def last_gnn(self, X: Features, psi: TrainedEncoder | None = None) -> TrainedGNN:
        """The GNN that predicts; it starts from psi of the encoder phase where `gnn.init` says so.

        With `gnn.inputs` 'both' it reads X_PNE beside X. Statistics are of what training may see.
        """
        if self.settings.gnn.inputs == "both":
            X = beside(X, self.features(None, "encode all"), self.whole.split.train if self.inductive else None)
        return self.gnn(X, start=psi if self.settings.gnn.init == "psi" else None)

    def first_gnn(self, X: Features | None = None, label: str = "first gnn") -> TrainedGNN:
        """The GNN that makes the pseudo labels of the training graph: on X_PNE, or on features X of it."""
        return gnn.called(label)(*self._gnn_arguments(X or self.encode(), self.graph))

    def gnn_key(self, X: Features) -> str:
        """The key of `gnn` on features X: it stands for all that this training depends on."""
        return gnn.key(*self._gnn_arguments(X, self.whole, self.inductive))

    def _gnn_arguments(
        self,
        X: Features,
        graph: AttributedGraph,
        inductive: bool = False,
        taught: Taught | None = None,
        start: TrainedEncoder | None = None,
    ) -> tuple[Any, ...]:
        """Those of the stage `gnn`."""
        edges = graph if self.architecture.edge_dim else None
        settings, seed = self.settings.gnn, self.settings.seed
        return (
            X,
            graph,
            self.architecture,
            settings,
            seed,
            inductive,
            edges,
            taught,
            start or self.kept_gnn,
            self.device,
            self.settings.metric,
            self.class_weights,
            self.settings.regression_loss,
        )


@dataclass(frozen=True)
class Work:
    """What a method costs at most: nodes that the encoder trains on, over all epochs; exports of all nodes; GNNs."""

    trained: float = 0
    exports: int = 1
    gnns: int = 1


@dataclass(frozen=True)
class Complexity:
    """The encoder phase in the paper's complexity table: time, memory, and what supervises the encoder."""

    time: str
    memory: str
    signals: str


@dataclass(frozen=True)
class Method:
    """A method and all that is known of it.

    Args:
        name: in settings and on the command line.
        learn: the function.
        title: its features in the paper, such as X_LD.
        trained_on: what the encoder is trained on, in words.
        nodes: the nodes it is trained on, in words.
        work: what it costs on a graph with some settings and a GNN.
        epochs: passes of its encoder phase, for time per epoch.
        complexity: in theory; None where no encoder is trained.
        needs: raises, before anything runs, what would fail after hours.
        adapts: whether it can start from an encoder adapted to the graph (`encoder.adapt`).
        color: its place in the palette of reports.
    """

    name: str
    learn: Callable[[Run], Learned]
    title: str = ""
    trained_on: str = "-"
    nodes: str = "-"
    work: Callable[[AttributedGraph, Config, int], Work] = lambda graph, settings, hops: Work()
    epochs: Callable[[Config], int] = lambda settings: settings.train.epochs
    complexity: Complexity | None = None
    needs: Callable[[Run], Any] = lambda run: None
    adapts: bool = True
    color: int = 9

    @property
    def summary(self) -> str:
        """What it is, in a sentence."""
        return (inspect.getdoc(self.learn) or "").partition("\n")[0]


METHODS: Registry[Method] = Registry(
    "method",
    "labeldeconv.methods",
    ("given", "pne", "fne", "wo-ld", "ld", "ld-heads", "glem", "giant", "joint-gas", "joint-sage", "auto"),
)


def method(name: str, **known: Any) -> Callable[[Callable[[Run], Learned]], Callable[[Run], Learned]]:
    """Register a function from `Run` to `Learned` under a name; keywords are the fields of `Method`."""

    def register(learn: Callable[[Run], Learned]) -> Callable[[Run], Learned]:
        made = Method(name, learn, **known)
        METHODS.add(name, made)
        learn.method = made  # type: ignore[attr-defined]
        return learn

    return register


def method_named(name: str | Method | Callable[[Run], Learned]) -> Method:
    """The method of a name, of 'package.module:name', or of a function decorated with `method`."""
    found: Any = METHODS.named(name) if isinstance(name, str) else name
    found = getattr(found, "method", found)
    if isinstance(found, Method):
        return found
    if callable(found):
        return Method(getattr(found, "__name__", "method"), found)
    raise ConfigError(f"method: a name or a function from Run to Learned expected, got {type(found).__name__}")
