"""Joint training of encoder and GNN on sampled subgraphs (eqn:gnn_minibatch): the baseline that LD replaces.

SAGE samples neighbours of the batch B layer by layer and encodes every node of G(B). GAS takes a few METIS parts as B,
encodes them with some of their neighbours, and takes what else it needs from histories that earlier steps wrote.
Memory grows with |G(B)|, not with |B|: the run reports both.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.pretrained import Weights
from labeldeconv.encoders.tokens import Tokens
from labeldeconv.encoders.vocabulary import used_vocabulary
from labeldeconv.errors import ConfigError
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.gnns.base import GNN, Step
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import Task
from labeldeconv.progress import bar
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.sampling import partition, sample_blocks, sample_rows
from labeldeconv.settings.models import GNNAdjacencyConfig, JointConfig, TrainConfig
from labeldeconv.stages.keys import Idle, Reads
from labeldeconv.stages.stage import Folder, stage
from labeldeconv.training.checkpoint import Checkpoint
from labeldeconv.training.encoder import LOG, HasValues, TrainedEncoder, start_outputs
from labeldeconv.training.feed import GraphFeed
from labeldeconv.training.gnn import TrainedGNN
from labeldeconv.training.steps import encoder_autocast, open_log, parameter_groups, set_learning_rates

READS = (  # of the settings of the encoder phase
    "lr", "psi_lr", "weight_decay", "warmup", "clip", "precision", "checkpoint_minutes",
)  # fmt: skip


@stage(version=1)
def joint(
    out: Folder,
    kind: Literal["gas", "sage"],
    tokens: Tokens,
    encoder: Weights,
    features: HasValues | None,
    graph: Annotated[AttributedGraph, Reads("edges", "num_nodes", "train_labels", "split", "task", "num_classes")],
    architecture: Architecture,
    bias: np.ndarray | None,
    adjacency: GNNAdjacencyConfig,
    sampling: Annotated[JointConfig, Reads("batch_nodes", "part_nodes", "fanout", "epochs", "max_neighbors")],
    rates: Annotated[TrainConfig, Reads(*READS)],
    seed: int,
    device: Annotated[torch.device, Idle] = torch.device("cpu"),
) -> TrainedEncoder:
    """Encoder and GNN trained together on true labels; the GNN's weights are the head.

    Args:
        features: X_PNE (n, d): what GAS histories start from, and all that a fixed encoder (`train.lr` 0) gives.
        bias: where outputs of a multi-label GNN start (c,).
    """
    torch.manual_seed(seed)
    loaded = encoder.load()
    gnn = architecture.build(loaded.dim, graph.num_classes)
    if bias is not None:
        start_outputs(gnn, bias)
    fixed = None if features is None or rates.lr > 0 else features.values
    model = JointModel(loaded, gnn, fixed).to(device)
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes, adjacency)
    sampler: GasSampler | SageSampler = SageSampler(adj, graph.split.train, sampling)
    if kind == "gas" and features is not None:
        sampler = GasSampler(adj, graph.split.train, sampling, features.values)
    with used_vocabulary(loaded, tokens):
        run = train_joint(model, sampler, tokens, graph.train_labels, Task.of(graph), sampling, rates, seed, out)
    loaded.save(out.path / "encoder")
    save_file(model.gnn.state_dict(), out.path / "head.safetensors")
    (out.path / "checkpoint.safetensors").unlink(missing_ok=True)
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


@stage(version=1)
def joint_gnn(
    out: Folder,
    trained: TrainedEncoder,
    features: HasValues,
    graph: Annotated[AttributedGraph, Reads("edges", "num_nodes", "known_labels", "split", "task", "num_classes")],
    architecture: Architecture,
    adjacency: GNNAdjacencyConfig,
    device: Annotated[torch.device, Idle] = torch.device("cpu"),
) -> TrainedGNN:
    """The jointly trained GNN on the features of all nodes, without sampling."""
    start = time.perf_counter()
    x = features.values
    gnn = architecture.build(x.shape[1], graph.num_classes).to(device)
    gnn.load_state_dict(load_file(trained.head))
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes, adjacency)
    with torch.inference_mode():
        logits = GraphFeed(x, adj, device).predict(gnn.eval(), np.arange(graph.num_nodes)).cpu().numpy()
    weights, log = out.path / "gnn.safetensors", out.path / "epochs.jsonl"
    save_file(gnn.state_dict(), weights)
    log.write_text("")
    val = Task.of(graph).score(logits[graph.split.val], graph.known_labels[graph.split.val])
    return TrainedGNN(logits, weights, log, val, 0, 0, time.perf_counter() - start)


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
    """Encoder and GNN as one model over token rows; `features` (n, d), if given, stand for an encoder that is fixed."""

    def __init__(self, encoder: Encoder, gnn: GNN, features: np.ndarray | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.gnn = gnn
        self.features = features
        if features is not None:
            encoder.requires_grad_(False)

    @property
    def steps(self) -> list[Step]:
        """The convolutions of the GNN, first to last."""
        return convolutions(self.gnn)

    def encode(self, tokens: Tokens, nodes: np.ndarray, device: torch.device) -> Tensor:
        """Features (m, d) of the nodes, with gradients unless they are fixed."""
        if self.features is not None:
            return torch.from_numpy(self.features[nodes].astype(np.float32)).to(device)
        input_ids, mask = (t.to(device) for t in tokens.batch(nodes))
        return self.encoder(input_ids, mask).float()


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

    def forward(
        self,
        model: JointModel,
        tokens: Tokens,
        batch: np.ndarray,
        generator: np.random.Generator,
        device: torch.device,
    ) -> tuple[Tensor, int]:
        """Logits (b, c) of the batch and |G(B)|."""
        steps = model.steps
        nodes, blocks = sample_blocks(self.adj, batch, [self.config.fanout] * len(steps), generator)
        h = model.encode(tokens, nodes, device)
        for step, rows in zip(steps, blocks, strict=True):
            h = step(h, rows)
        return h, len(nodes)


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

    def forward(
        self,
        model: JointModel,
        tokens: Tokens,
        batch: np.ndarray,
        generator: np.random.Generator,
        device: torch.device,
    ) -> tuple[Tensor, int]:
        """Logits of the batch's train nodes and |G(B)|, the nodes encoded anew."""
        sources, rows = sample_rows(self.adj, batch, None)  # begins with the batch
        order, halo = np.argsort(sources), sources[len(batch) :]
        chosen = np.sort(generator.choice(halo, min(len(halo), self.config.max_neighbors), replace=False))
        fresh = np.concatenate([batch, chosen])
        h = model.encode(tokens, fresh, device)
        self._push(0, fresh, h)
        for layer, step in enumerate(model.steps):
            inputs = self._pull(layer, sources, h.shape[1]).to(device)
            known = batch if layer else fresh  # whose inputs of this layer were just computed
            place = order[np.searchsorted(sources, known, sorter=order)]
            h = step(inputs.index_copy(0, torch.from_numpy(place).to(device), h), rows)
            if layer + 1 < len(model.steps):
                self._push(layer + 1, batch, h)
        return h[torch.from_numpy(np.flatnonzero(self.wanted[batch])).to(device)], len(fresh)

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


def train_joint(
    model: JointModel,
    sampler: SageSampler | GasSampler,
    tokens: Tokens,
    labels: np.ndarray,
    task: Task,
    config: JointConfig,
    rates: TrainConfig,
    seed: int,
    out: Folder,
) -> JointRun:
    """Train encoder and GNN together on true labels; rates, warm-up, decay and clipping as in the encoder phase."""
    watch = out.watch
    device = next(model.parameters()).device
    torch.manual_seed(seed)
    groups = parameter_groups(model.encoder.parameters(), rates.lr, rates.weight_decay)
    groups += parameter_groups(model.gnn.parameters(), rates.psi_lr, rates.weight_decay)
    optimizer = torch.optim.AdamW(groups, fused=True)
    checkpoint = Checkpoint(out.path / "checkpoint.safetensors", model, optimizer, rates.checkpoint_minutes)
    state: dict[str, Any] = {"epoch": 0, "batch": 0, "step": 0, "nodes": 0, "targets": 0, "loss": float("nan")}
    if restored := checkpoint.load():
        state = restored[0]
        sampler.histories.update({int(k): v for k, v in restored[1].items()})
    model.train()
    computing = encoder_autocast(model.encoder, tokens, rates.precision)
    with (
        open_log(out.path / LOG, state["step"], watch) as log,
        bar(out.label, config.epochs, "epochs", state["epoch"]) as advance,
    ):
        for epoch in range(state["epoch"], config.epochs):
            batches = sampler.batches(np.random.default_rng([seed, epoch]))
            for k in range(state["batch"], len(batches)):
                set_learning_rates(optimizer, (epoch + (k + 0.5) / len(batches)) / config.epochs, rates.warmup)
                generator = np.random.default_rng([seed, epoch, k])
                with computing:
                    logits, size = sampler.forward(model, tokens, batches[k], generator, device)
                ids = sampler.targets(batches[k])
                if len(ids):
                    targets = torch.from_numpy(task.targets(labels[ids])).to(device)
                    loss = task.loss(logits.float(), targets).mean()
                    loss.backward()
                    if rates.clip > 0:
                        nn.utils.clip_grad_norm_(model.parameters(), rates.clip)
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
                    state["loss"] = float(loss.detach())
                state = {"epoch": epoch, "batch": k + 1, "step": state["step"] + 1, "loss": state["loss"],
                         "nodes": state["nodes"] + size, "targets": state["targets"] + len(batches[k])}  # fmt: skip
                row = {"step": state["step"], "epoch": epoch, "loss": state["loss"], "subgraph": size}
                log.write(json.dumps(row) + "\n")
                watch(row)
                advance(1 / len(batches), f"epoch {epoch + 1}/{config.epochs} loss {state['loss']:.3f}")
                if checkpoint.due:
                    log.flush()
                    checkpoint.save(state, {str(k): v for k, v in sampler.histories.items()})
            state = {**state, "epoch": epoch + 1, "batch": 0}
    model.eval()
    steps = max(state["step"], 1)
    sizes = state["targets"] / steps, state["nodes"] / steps
    encoded = state["nodes"] if model.features is None else 0
    return JointRun(state["step"], state["loss"], *sizes, encoded, checkpoint.seconds)
