"""Joint training of encoder and GNN on sampled subgraphs (eqn:gnn_minibatch): the baseline that LD replaces.

SAGE samples neighbours of the batch B layer by layer and encodes every node of G(B). GAS takes a few METIS parts as B,
encodes them with some of their neighbours, and takes what else it needs from histories that earlier steps wrote; G(B)
is B and all its neighbours. Time grows with |G(B)|, not with |B|: the run reports both. Memory would, too, so nodes are
encoded in chunks whose activations are computed again in the backward pass: what stays per node is its feature vector.

The encoder runs in the precision of the settings, the GNN in float32.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.pretrained import Weights
from labeldeconv.encoders.tokens import Tokens, ahead
from labeldeconv.encoders.vocabulary import used_vocabulary
from labeldeconv.errors import ConfigError
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.gnns.base import GNN, Step
from labeldeconv.gnns.workload import Size, sampled_mib, training_mib
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.missing import hidden
from labeldeconv.graph.task import Task
from labeldeconv.progress import bar
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.sampling import METIS_BYTES, partition, sample_blocks, sample_rows
from labeldeconv.settings.models import GNNAdjacencyConfig, JointConfig, MetricName, RegressionLoss, TrainConfig
from labeldeconv.stages.keys import Idle, Reads, Younger
from labeldeconv.stages.memory import MIB
from labeldeconv.stages.memory_limit import check_room, room
from labeldeconv.stages.stage import Artefact, Folder, stage
from labeldeconv.training import layerwise
from labeldeconv.training.checkpoint import Checkpoint
from labeldeconv.training.encoder import (
    LOG,
    HasValues,
    TrainedEncoder,
    start_outputs,
    training_advice,
)
from labeldeconv.training.feed import GraphFeed, edge_values
from labeldeconv.training.finite import check_loss, check_rows, check_weights
from labeldeconv.training.gnn import TrainedGNN
from labeldeconv.training.layerwise import take_rows
from labeldeconv.training.moments import CompactAdamW, moment_bytes
from labeldeconv.training.recomputation import activations
from labeldeconv.training.steps import (
    autocast,
    encoder_autocast,
    fused_optimizer,
    open_log,
    parameter_groups,
    set_learning_rates,
)

READS = (  # of the settings of the encoder phase
    "lr", "psi_lr", "weight_decay", "warmup", "clip", "precision", "optimizer_states", "checkpoint_minutes",
)  # fmt: skip


HEAD_READS = tuple(name for name in READS if name not in ("lr", "precision"))  # the same, for the GNN alone
SAMPLING = ("batch_nodes", "part_nodes", "fanout", "max_neighbors", "gnn_lr")
Kind = Literal["gas", "sage"]
LESS = "lower joint.batch_nodes, joint.fanout or joint.chunk_nodes"


@stage(version=5)  # 5: sampled neighbours are drawn by node
def joint(
    out: Folder,
    kind: Kind,
    tokens: Tokens,
    encoder: Weights,
    features: HasValues | None,
    graph: Annotated[AttributedGraph, Reads("edges", "num_nodes", "train_labels", "split", "task", "num_classes")],
    architecture: Architecture,
    bias: np.ndarray | None,
    adjacency: GNNAdjacencyConfig,
    sampling: Annotated[JointConfig, Reads(*SAMPLING, "epochs", "chunk_nodes")],
    rates: Annotated[TrainConfig, Reads(*READS)],
    seed: int,
    edges: Annotated[AttributedGraph | None, Reads("edge_features")] = None,
    device: Annotated[torch.device, Idle] = torch.device("cpu"),
    weights: tuple[float, ...] | None = None,
    loss: Annotated[RegressionLoss, Younger] = "mse",
) -> TrainedEncoder:
    """Encoder and GNN trained together on true labels; the GNN's weights are the head.

    Args:
        features: X_PNE (n, d): what GAS histories start from, and all that a fixed encoder (`train.lr` 0) gives.
        bias: where outputs of a multi-label GNN start (c,).
        edges: the graph again, where the GNN reads edge features.
        weights: of the classes (c,) in the loss; None: all equal.
        loss: of a regression.
    """
    torch.manual_seed(seed)
    loaded = encoder.load()
    gnn = architecture.build(loaded.dim, graph.num_classes)
    if bias is not None:
        start_outputs(gnn, bias)
    fixed = None if features is None or rates.lr > 0 else features.values
    model = JointModel(loaded, gnn, fixed, rates.precision, sampling.chunk_nodes).to(device)
    if room() is not None:
        check_room(out.label, joint_bytes(kind, model, tokens, graph, adjacency, sampling, rates), LESS)
    adj = weighted_adjacency(graph.edges, graph.num_nodes, adjacency, edges, gnn.edge_dim)
    start = None if features is None else features.values
    sampler = make_sampler(kind, adj, graph.split.train, sampling, start)
    task = Task.of(graph, weights=weights, loss=loss)
    with used_vocabulary(loaded, tokens):
        run = train_joint(model, sampler, tokens, graph.train_labels, task, sampling, rates, sampling.epochs, seed, out)
    loaded.save(out.path / "encoder")
    save_file(model.gnn.state_dict(), out.path / "head.safetensors")
    return TrainedEncoder(
        encoder=out.path / "encoder",
        head=out.path / "head.safetensors",
        log=out.path / LOG,
        gamma=None,
        steps=run.steps,
        loss=run.loss,
        encoder_nodes=run.encoder_nodes,
        batch=round(run.batch, 1),
        subgraph=round(run.subgraph, 1),
        seconds=run.seconds,
        step_seconds={},
    )


@dataclass(frozen=True, eq=False)
class TrainedHead(Artefact):
    """A jointly trained GNN after further epochs of its own: its weights, the log of its steps, seconds."""

    head: Path
    log: Path
    seconds: float


class HasHead(Protocol):
    """An artefact with weights of a GNN as a head."""

    @property
    def head(self) -> Path:
        """The file of the weights."""
        ...

    @property
    def content_key(self) -> str:
        """The key of the stage that trained it."""
        ...


@stage(version=3)  # 3: as joint
def joint_head(
    out: Folder,
    kind: Kind,
    trained: TrainedEncoder,
    features: HasValues,
    graph: Annotated[AttributedGraph, Reads("edges", "num_nodes", "train_labels", "split", "task", "num_classes")],
    architecture: Architecture,
    adjacency: GNNAdjacencyConfig,
    sampling: Annotated[JointConfig, Reads(*SAMPLING, "gnn_epochs")],
    rates: Annotated[TrainConfig, Reads(*HEAD_READS)],
    seed: int,
    edges: Annotated[AttributedGraph | None, Reads("edge_features")] = None,
    device: Annotated[torch.device, Idle] = torch.device("cpu"),
    weights: tuple[float, ...] | None = None,
    loss: Annotated[RegressionLoss, Younger] = "mse",
) -> TrainedHead:
    """Further epochs of the jointly trained GNN alone, on the same samples of the features that its encoder gives."""
    torch.manual_seed(seed)
    x = features.values
    gnn = architecture.build(x.shape[1], graph.num_classes)
    gnn.load_state_dict(load_file(trained.head))
    model = JointModel(None, gnn, x).to(device)
    check_room(out.label, joint_bytes(kind, model, None, graph, adjacency, sampling, rates), LESS)
    adj = weighted_adjacency(graph.edges, graph.num_nodes, adjacency, edges, gnn.edge_dim)
    sampler = make_sampler(kind, adj, graph.split.train, sampling, x)
    task, epochs = Task.of(graph, weights=weights, loss=loss), sampling.gnn_epochs
    run = train_joint(model, sampler, None, graph.train_labels, task, sampling, rates, epochs, seed, out)
    save_file(gnn.state_dict(), out.path / "head.safetensors")
    return TrainedHead(out.path / "head.safetensors", out.path / LOG, run.seconds)


@stage(version=2)
def joint_gnn(
    out: Folder,
    trained: HasHead,
    features: HasValues,
    graph: Annotated[AttributedGraph, Reads("edges", "num_nodes", "known_labels", "split", "task", "num_classes")],
    architecture: Architecture,
    adjacency: GNNAdjacencyConfig,
    batching: str = "full",
    edges: Annotated[AttributedGraph | None, Reads("edge_features")] = None,
    device: Annotated[torch.device, Idle] = torch.device("cpu"),
    metric: MetricName | None = None,
) -> TrainedGNN:
    """The jointly trained GNN on the features of all nodes, without sampling.

    One pass over the whole graph where `batching` is 'full' and A-hat has at most `layerwise.LARGE` entries; layer by
    layer in blocks otherwise.
    """
    start = time.perf_counter()
    x, everyone = features.values, np.arange(graph.num_nodes)
    gnn = architecture.build(x.shape[1], graph.num_classes).to(device).eval()
    gnn.load_state_dict(load_file(trained.head))
    size = (graph.num_nodes, graph.edges.shape[1], adjacency)
    held, logits_bytes = Adjacency.held_bytes(*size), 8 * graph.num_nodes * graph.num_classes
    working = layerwise.inference_bytes(gnn, graph.num_nodes, held // 4) + logits_bytes
    check_room(out.label, max(Adjacency.building_bytes(*size), held + working), "take part of the graph (--max-nodes)")
    adj = weighted_adjacency(graph.edges, graph.num_nodes, adjacency, edges, gnn.edge_dim)
    with torch.inference_mode():
        if batching == "full" and len(adj.indices) <= layerwise.LARGE:
            logits = GraphFeed(x, adj, device).predict(gnn, everyone).cpu().numpy()
        else:
            logits = layerwise.infer(gnn, x, adj, everyone, out.path, device).numpy()
    check_rows(logits, out.label, "logits", "lower train.lr, train.psi_lr or joint.gnn_lr, or set train.clip")
    weights, log = out.path / "gnn.safetensors", out.path / "epochs.jsonl"
    save_file(gnn.state_dict(), weights)
    log.write_text("")
    train_labels = hidden(graph.known_labels, graph.split.roles == 0)
    task, nodes = Task.of(graph, metric, train_labels=train_labels), graph.split.val
    val = task.score(logits[nodes], graph.known_labels[nodes])
    return TrainedGNN(logits, weights, log, val, 0, 0, time.perf_counter() - start)


def joint_bytes(
    kind: Kind,
    model: JointModel,
    tokens: Tokens | None,
    graph: AttributedGraph,
    adjacency: GNNAdjacencyConfig,
    sampling: JointConfig,
    rates: TrainConfig,
) -> float:
    """Memory that joint training takes at its peak beside the weights: A-hat while it is built, or with a step.

    A step has |G(B)| at most, in GAS by the mean degree, a chunk of it inside the encoder, and what the GNN keeps.
    """
    n, size = graph.num_nodes, (graph.num_nodes, graph.edges.shape[1], adjacency)
    building, held = Adjacency.building_bytes(*size), Adjacency.held_bytes(*size)
    gnn, hops, batch = model.gnn, len(model.steps), min(sampling.batch_nodes, n)
    if kind == "sage":
        encoded = min(n, batch * (sampling.fanout + 1) ** hops)
        step = sampled_mib(gnn, n, batch, [sampling.fanout] * hops) * MIB
    else:
        encoded, entries = min(n, batch + sampling.max_neighbors), held // 4
        sources = min(n, batch + batch * entries // max(n, 1))
        widths = gnn.in_dim + (hops - 1) * max(p.shape[0] for p in gnn.parameters() if p.ndim == 2)
        step = training_mib(gnn, Size(sources, hops * batch * entries // max(n, 1), n, 0)) * MIB + 4 * n * widths
        building = max(building, held + METIS_BYTES * entries)
    if model.encoder is not None and tokens is not None:
        chunk = min(encoded, sampling.chunk_nodes or encoded)
        computing = encoder_autocast(model.encoder, tokens, rates.precision)
        step += activations(model.encoder, tokens, computing).peak(chunk, 0) + 72 * tokens.num_nodes
    weights = sum(p.numel() for p in model.parameters() if p.requires_grad)
    training = 8 * weights + moment_bytes(model.parameters(), rates.optimizer_states)
    return max(building, held + training + step + layerwise.FIXED)


def weighted_adjacency(
    ends: np.ndarray, num_nodes: int, config: GNNAdjacencyConfig, edges: AttributedGraph | None, width: int
) -> Adjacency:
    """A-hat of the edges `ends` (2, e), with the edge features (e, width) of the graph where the GNN reads some."""
    adj = Adjacency.from_edges(ends, num_nodes, config)
    return adj.with_edge_features(ends, edge_values(edges, width)) if width else adj


@dataclass(frozen=True)
class JointRun:
    """Optimiser steps, last loss, mean |B| and |G(B)|, nodes that went through the encoder, seconds."""

    steps: int
    loss: float
    batch: float
    subgraph: float
    encoder_nodes: int
    seconds: float


def convolutions(gnn: GNN) -> list[Step]:
    """The convolutions of a GNN, first to last; samplers need them one by one."""
    steps = gnn.steps()
    if steps is None:
        raise ConfigError(f"joint training: {type(gnn).__name__} cannot be run layer by layer; try gcn, gat")
    return list(steps)


class JointModel(nn.Module):
    """Encoder and GNN as one model over token rows.

    Args:
        encoder: tokens to features; None where `features` stand for it.
        gnn: what convolves the features of a subgraph.
        features: (n, d) of an encoder that is fixed; None encodes anew in every step.
        precision: of the encoder; the GNN computes in float32.
        chunk_nodes: nodes that are encoded at a time. More than one chunk are computed again in the backward pass.
    """

    def __init__(
        self,
        encoder: Encoder | None,
        gnn: GNN,
        features: np.ndarray | None = None,
        precision: str = "float32",
        chunk_nodes: int | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.gnn = gnn
        self.features = features
        self.precision, self.chunk_nodes = precision, chunk_nodes
        if features is not None and encoder is not None:
            encoder.requires_grad_(False)

    @property
    def steps(self) -> list[Step]:
        """The convolutions of the GNN, first to last."""
        return convolutions(self.gnn)

    def encode(self, tokens: Tokens | None, nodes: np.ndarray, device: torch.device) -> Tensor:
        """Features (m, d) of the nodes, with gradients unless they are fixed.

        Chunks hold nodes of similar length, for less padding. A chunk is given its node ids alone and reads its tokens
        itself, so that neither tokens nor activations of all nodes are ever there at once. Equal attributes are encoded
        once.
        """
        if self.features is not None:
            return take_rows(self.features, nodes).to(device)
        assert tokens is not None
        distinct, same = tokens.distinct(nodes)
        if same is not None:
            return self.encode(tokens, distinct, device)[torch.from_numpy(same).to(device)]
        size = self.chunk_nodes or len(nodes)
        if len(nodes) <= size:
            return self._chunk(tokens, torch.from_numpy(nodes).to(device))
        order = np.argsort(-tokens.lengths[nodes], kind="stable")
        # Ids as a tensor on the device: it tells `checkpoint` whose random state to keep for dropout.
        chunks = torch.from_numpy(nodes[order]).to(device).split(size)
        parts = [checkpoint(self._chunk, tokens, ids, use_reentrant=False) for ids in chunks]
        return torch.cat(parts)[torch.from_numpy(np.argsort(order)).to(device)]

    def _chunk(self, tokens: Tokens, ids: Tensor) -> Tensor:
        """Features (m, d) of the nodes `ids` (m,), encoded together."""
        assert self.encoder is not None
        input_ids, mask = (t.to(ids.device) for t in tokens.batch(ids.cpu().numpy()))
        with autocast(self.precision, ids.device):
            return self.encoder(input_ids, mask).float()


@dataclass(frozen=True, eq=False)
class Subgraph:
    """G(B) of a step.

    Args:
        batch: node ids of B (b,).
        nodes: all nodes whose features or histories the step uses (s,), B among them: |G(B)| is s.
        encoded: those that go through the encoder (m,).
        rows: of A-hat, one block per convolution.
    """

    batch: np.ndarray
    nodes: np.ndarray
    encoded: np.ndarray
    rows: list[Adjacency]


class SageSampler:
    """B: random train nodes; G(B): neighbours sampled per convolution."""

    def __init__(self, adj: Adjacency, train: np.ndarray, config: JointConfig) -> None:
        self.adj, self.train, self.config = adj, train, config
        self.histories: dict[int, Tensor] = {}  # none: every input is computed anew

    def targets(self, batch: np.ndarray) -> np.ndarray:
        """All nodes of a batch."""
        return batch

    def batches(self, generator: np.random.Generator) -> list[np.ndarray]:
        """All train nodes once, in random batches."""
        count = max(1, -(-len(self.train) // self.config.batch_nodes))
        return np.array_split(generator.permutation(self.train), count)

    def subgraph(self, batch: np.ndarray, hops: int, generator: np.random.Generator) -> Subgraph:
        """G(B) of a batch for so many convolutions; all of it is encoded."""
        nodes, blocks = sample_blocks(self.adj, batch, [self.config.fanout] * hops, generator)
        return Subgraph(batch, nodes, nodes, blocks)

    def forward(self, model: JointModel, tokens: Tokens | None, subgraph: Subgraph, device: torch.device) -> Tensor:
        """Logits (b, c) of the batch."""
        h = model.encode(tokens, subgraph.encoded, device)
        for step, rows in zip(model.steps, subgraph.rows, strict=True):
            h = step(h, rows)
        return h


class GasSampler:
    """B: a few METIS parts; their neighbours' inputs come from the encoder (some) and from histories (the rest)."""

    def __init__(self, adj: Adjacency, train: np.ndarray, config: JointConfig, features: np.ndarray) -> None:
        self.adj, self.config = adj, config
        parts = max(1, round(adj.num_nodes / min(config.part_nodes, config.batch_nodes)))
        self.parts = partition(adj, parts) if parts > 1 else [np.arange(adj.num_nodes)]
        self.wanted = np.zeros(adj.num_nodes, dtype=bool)
        self.wanted[train] = True
        # One history per convolution's input; the first starts as X_PNE, the others at zero.
        self.histories: dict[int, Tensor] = {0: torch.from_numpy(np.array(features, dtype=np.float32))}

    def batches(self, generator: np.random.Generator) -> list[np.ndarray]:
        """All parts, joined at random; a batch without train nodes only renews its histories."""
        order = generator.permutation(len(self.parts))
        count = max(1, round(self.adj.num_nodes / self.config.batch_nodes))
        groups = np.array_split(order, min(count, len(order)))
        return [np.concatenate([self.parts[i] for i in group]) for group in groups]

    def subgraph(self, batch: np.ndarray, hops: int, generator: np.random.Generator) -> Subgraph:
        """B and all its neighbours, the halo nodes; `max_neighbors` of those are encoded with B."""
        sources, rows = sample_rows(self.adj, batch, None)  # begins with the batch
        halo = sources[len(batch) :]
        chosen = np.sort(generator.choice(halo, min(len(halo), self.config.max_neighbors), replace=False))
        return Subgraph(batch, sources, np.concatenate([batch, chosen]), [rows] * hops)

    def forward(self, model: JointModel, tokens: Tokens | None, subgraph: Subgraph, device: torch.device) -> Tensor:
        """Logits of the batch's train nodes."""
        batch, sources, fresh = subgraph.batch, subgraph.nodes, subgraph.encoded
        order = np.argsort(sources)
        h = model.encode(tokens, fresh, device)
        self._push(0, fresh, h)
        for layer, (step, rows) in enumerate(zip(model.steps, subgraph.rows, strict=True)):
            inputs = self._pull(layer, sources, h.shape[1]).to(device)
            known = batch if layer else fresh  # whose inputs of this layer were just computed
            place = order[np.searchsorted(sources, known, sorter=order)]
            h = step(inputs.index_copy(0, torch.from_numpy(place).to(device), h), rows)
            if layer + 1 < len(subgraph.rows):
                self._push(layer + 1, batch, h)
        return h[torch.from_numpy(np.flatnonzero(self.wanted[batch])).to(device)]

    def targets(self, batch: np.ndarray) -> np.ndarray:
        """The train nodes of a batch."""
        return batch[self.wanted[batch]]

    def _push(self, layer: int, nodes: np.ndarray, h: Tensor) -> None:
        history = self._history(layer, h.shape[1])
        history[torch.from_numpy(nodes)] = h.detach().to(history)

    def _pull(self, layer: int, nodes: np.ndarray, width: int) -> Tensor:
        return self._history(layer, width)[torch.from_numpy(nodes)]

    def _history(self, layer: int, width: int) -> Tensor:
        if layer not in self.histories:
            self.histories[layer] = torch.zeros(self.adj.num_nodes, width)
        return self.histories[layer]


def make_sampler(
    kind: Kind, adj: Adjacency, train: np.ndarray, config: JointConfig, features: np.ndarray | None
) -> SageSampler | GasSampler:
    """The sampler of a method; GAS needs features (n, d) for its histories to start from."""
    if kind == "sage":
        return SageSampler(adj, train, config)
    assert features is not None
    return GasSampler(adj, train, config, features)


def train_joint(
    model: JointModel,
    sampler: SageSampler | GasSampler,
    tokens: Tokens | None,
    labels: np.ndarray,
    task: Task,
    config: JointConfig,
    rates: TrainConfig,
    epochs: int,
    seed: int,
    out: Folder,
) -> JointRun:
    """Train encoder and GNN together on true labels; warm-up, decay and clipping as in the encoder phase.

    A model with fixed features trains its GNN alone. The next subgraph is sampled in a thread while this one trains.
    """
    watch = out.watch
    device = next(model.gnn.parameters()).device
    torch.manual_seed(seed)
    groups = parameter_groups(model.gnn.parameters(), config.gnn_lr or rates.psi_lr, rates.weight_decay)
    if model.encoder is not None:
        groups = parameter_groups(model.encoder.parameters(), rates.lr, rates.weight_decay) + groups
    optimizer = CompactAdamW(groups, rates.optimizer_states, fused=fused_optimizer(device))
    saved = Checkpoint(out.path / "checkpoint.safetensors", model, optimizer, rates.checkpoint_minutes)
    state: dict[str, Any] = {"epoch": 0, "batch": 0, "step": 0, "nodes": 0, "encoded": 0, "targets": 0}
    state["loss"] = float("nan")
    if restored := saved.load():
        state = restored[0]
        sampler.histories.update({int(k): v for k, v in restored[1].items()})
    model.train()
    if model.encoder is not None and tokens is not None:
        encoder_autocast(model.encoder, tokens, rates.precision)  # mends what cannot compute in bfloat16
    hops, advice = len(model.steps), training_advice(rates, model.encoder is not None)
    with (
        open_log(out.path / LOG, state["step"], watch) as log,
        bar(out.label, epochs, "epochs", state["epoch"]) as advance,
    ):
        for epoch in range(state["epoch"], epochs):
            batches = sampler.batches(np.random.default_rng([seed, epoch]))
            draw = partial(_draw, sampler, batches, hops, [seed, epoch])
            for k, subgraph in enumerate(ahead(draw, range(state["batch"], len(batches))), start=state["batch"]):
                set_learning_rates(optimizer, (epoch + (k + 0.5) / len(batches)) / epochs, rates.warmup)
                logits = sampler.forward(model, tokens, subgraph, device)
                ids = sampler.targets(batches[k])
                if len(ids):
                    targets = torch.from_numpy(task.targets(labels[ids])).to(device)
                    loss = task.loss(logits.float(), targets).mean()
                    loss.backward()
                    state["loss"] = float(loss.detach())
                    check_loss(state["loss"], ids, out.label, f"epoch {epoch + 1}, step {state['step'] + 1}", advice)
                    if rates.clip > 0:
                        nn.utils.clip_grad_norm_(model.parameters(), rates.clip)
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
                state |= {"epoch": epoch, "batch": k + 1, "step": state["step"] + 1}
                sizes = {"nodes": subgraph.nodes, "encoded": subgraph.encoded, "targets": subgraph.batch}
                state |= {name: state[name] + len(ids) for name, ids in sizes.items()}
                row = {"step": state["step"], "epoch": epoch, "loss": state["loss"], "subgraph": len(subgraph.nodes)}
                log.write(json.dumps(row) + "\n")
                watch(row)
                advance(1 / len(batches), f"epoch {epoch + 1}/{epochs} loss {state['loss']:.3f}")
                if saved.due:
                    check_weights(model, out.label, advice)  # the checkpoint before stays
                    log.flush()
                    saved.save(state, {str(k): v for k, v in sampler.histories.items()}, [out.path / LOG])
            state |= {"epoch": epoch + 1, "batch": 0}
    model.eval()
    check_weights(model, out.label, advice)  # the last step's loss was of the weights before it
    steps = max(state["step"], 1)
    encoded = state["encoded"] if model.features is None else 0
    return JointRun(
        state["step"], state["loss"], state["targets"] / steps, state["nodes"] / steps, encoded, saved.seconds
    )


def _draw(
    sampler: SageSampler | GasSampler, batches: list[np.ndarray], hops: int, seeds: list[int], k: int
) -> Subgraph:
    """G(B) of the k-th batch, by a generator of its own."""
    return sampler.subgraph(batches[k], hops, np.random.default_rng([*seeds, k]))
