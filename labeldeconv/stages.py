"""The stages of a run, each cached by content key and resumable: tokens, encode, gnn, pseudo, hops, train, features.

A stage's key holds only what its result depends on, so methods and seeds share what they can: X_PNE is encoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from labeldeconv.adjacency import Adjacency
from labeldeconv.config import Config, Settings
from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.tokens import TokenStore, write_tokens
from labeldeconv.gnns.base import GNN, Psi
from labeldeconv.graph import AttributedGraph
from labeldeconv.labels.hops import write_hop_labels
from labeldeconv.labels.pseudo import pseudo_labels
from labeldeconv.record import Cache, Stage
from labeldeconv.task import Task
from labeldeconv.train.encoder import train_encoder
from labeldeconv.train.features import export_features
from labeldeconv.train.feed import make_feed
from labeldeconv.train.gnn import train_gnn
from labeldeconv.train.objective import Objective
from labeldeconv.train.optim import autocast_type


@dataclass
class Job:
    """One run: the graph, its settings, builders instead of names, and the stages used so far, by label.

    Args:
        build_encoder: makes the pre-trained encoder; `encoder_identity` is its content hash.
        build_gnn: makes a GNN for features of the given size.
    """

    graph: AttributedGraph
    config: Config
    cache: Cache
    build_encoder: Callable[[], Encoder]
    encoder_identity: str
    build_gnn: Callable[[int], GNN]
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    used: dict[str, Stage] = field(default_factory=dict)

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
    def precision(self) -> str:
        """The type the encoder computes in, as it goes into keys."""
        return str(autocast_type(self.config.train.precision, self.device) or torch.float32)

    def stage(
        self, label: str, name: str, parts: Mapping[str, Any], build: Callable[[Path], Mapping[str, Any] | None]
    ) -> Stage:
        """Run or recall a stage and remember it under `label`."""
        self.used[label] = self.cache.stage(name, parts, build)
        return self.used[label]


def tokens(job: Job) -> Stage:
    """All attributes, tokenised once."""
    encoder = job.config.encoder
    parts = {
        "texts": job.graph.fingerprint("texts"),
        "encoder": job.encoder_identity,
        "max_tokens": encoder.max_tokens,
    }

    def build(folder: Path) -> None:
        write_tokens(job.build_encoder(), job.graph.texts, encoder.max_tokens, folder)

    return job.stage("tokens", "tokens", parts, build)


def encode(job: Job) -> Stage:
    """X_PNE: features of the pre-trained encoder."""
    return _export(job, "encode", None)


def features(job: Job, trained: Stage) -> Stage:
    """F of the trained encoder over all nodes (Algorithm 1, line 12)."""
    return _export(job, "features", trained)


def _export(job: Job, label: str, trained: Stage | None) -> Stage:
    store_stage = tokens(job)
    parts = {
        "tokens": store_stage.key,
        "weights": trained.key if trained else job.encoder_identity,
        "pooling": job.config.encoder.pooling,
        "precision": job.precision,
    }

    def build(folder: Path) -> Mapping[str, Any]:
        encoder = job.build_encoder()
        if trained:
            encoder.restore(trained.path / "encoder")
        encoder.to(job.device)
        store = TokenStore.open(store_stage.path, encoder.pad_id)
        return {"seconds": export_features(encoder, store, folder, job.config.train.precision, label)}

    return job.stage(label, "features", parts, build)


def load_features(stage: Stage) -> np.ndarray:
    """features.npy (n, d) of a stage, memory-mapped."""
    return np.load(stage.path / "features.npy", mmap_mode="r")


def gnn(job: Job, inputs: Stage, label: str = "gnn") -> Stage:
    """A GNN trained on fixed features (Algorithm 1, lines 14-17): logits.npy (n, c), weights and scores."""
    config, seed = job.config.gnn, job.config.seed
    parts = {
        "features": inputs.key,
        "graph": job.graph.fingerprint("edges", "labels", "split"),
        "gnn": _key(config),
        "seed": seed,
    }

    def build(folder: Path) -> Mapping[str, Any]:
        x = load_features(inputs)
        torch.manual_seed(seed)
        model = job.build_gnn(x.shape[1]).to(job.device)
        adj = Adjacency.from_edges(job.graph.edges, job.graph.num_nodes, config.adjacency)
        feed = make_feed(model, x, adj, config.batch_rows, folder, job.device)
        run = train_gnn(model, feed, job.task, job.graph.labels, job.graph.split, config, seed, folder)
        np.save(folder / "logits.npy", run.logits)
        save_file(model.state_dict(), folder / "gnn.safetensors")
        (folder / "checkpoint.safetensors").unlink(missing_ok=True)
        scores = {"val": run.val, "test": run.test, "best_epoch": run.best_epoch, "epochs": run.epochs}
        return {**scores, "seconds": run.seconds}

    return job.stage(label, "gnn", parts, build)


def pseudo(job: Job) -> Stage:
    """(Pseudo) labels Y (n, c): X_PNE, a first GNN on it, its softened predictions off the train nodes."""
    first = gnn(job, encode(job), label="first gnn")
    temperature = job.config.labels.temperature
    parts = {"gnn": first.key, "temperature": temperature}

    def build(folder: Path) -> None:
        logits = np.load(first.path / "logits.npy")
        Y = pseudo_labels(job.task, job.graph.labels, job.graph.split.train, logits, temperature)
        np.save(folder / "pseudo_labels.npy", Y)

    return job.stage("pseudo", "pseudo", parts, build)


def hops(job: Job, Y: Stage, number: int) -> Stage:
    """K_i = A-hat^i Y for i = 0..number (Algorithm 1, line 4): hop_labels.npy (n, number + 1, c)."""
    adjacency = job.config.labels.adjacency
    parts = {
        "labels": Y.key,
        "edges": job.graph.fingerprint("edges"),
        "adjacency": adjacency.model_dump(),
        "hops": number,
    }

    def build(folder: Path) -> None:
        adj = Adjacency.from_edges(job.graph.edges, job.graph.num_nodes, adjacency)
        write_hop_labels(adj, np.load(Y.path / "pseudo_labels.npy"), number, folder / "hop_labels.npy")

    return job.stage("hops", "hops", parts, build)


def train(job: Job, targets: Callable[[], nn.Module], nodes: np.ndarray, target_key: Mapping[str, Any]) -> Stage:
    """The encoder phase (Algorithm 1, lines 5-11) on `nodes`; `target_key` says what the targets are made of."""
    config, seed = job.config, job.config.seed
    store_stage = tokens(job)
    first = gnn(job, encode(job), label="first gnn") if config.train.psi_init == "gnn" else None
    parts = {
        "tokens": store_stage.key,
        "encoder": job.encoder_identity,
        "pooling": config.encoder.pooling,
        "lora": config.encoder.lora_rank,
        "psi": _key(config.gnn, only=("name", "layers", "hidden", "dropout", "options")),
        "psi_weights": first.key if first else None,
        "targets": target_key,
        "split": job.graph.fingerprint("split"),
        "train": _key(config.train),
        "precision": job.precision,
        "seed": seed,
    }

    def build(folder: Path) -> Mapping[str, Any]:
        torch.manual_seed(seed)
        encoder = job.build_encoder()
        psi = job.build_gnn(encoder.dim)
        if first:
            psi.load_state_dict(load_file(first.path / "gnn.safetensors"))
        gold = job.graph.split.roles == 0
        objective = Objective(
            encoder, Psi(psi), targets(), job.task, config.train.dropout, config.labels.pseudo_weight, gold
        ).to(job.device)
        store = TokenStore.open(store_stage.path, encoder.pad_id)
        run = train_encoder(objective, store, nodes, config.train, seed, folder)
        encoder.save(folder / "encoder")
        save_file(psi.state_dict(), folder / "psi.safetensors")
        (folder / "checkpoint.safetensors").unlink(missing_ok=True)
        return {"steps": run.steps, "loss": run.loss, "gamma": run.gamma, "seconds": run.seconds}

    return job.stage("train", "train", parts, build)


def _key(settings: Settings, only: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Settings as they go into a key: all but those that cannot change the result."""
    return settings.model_dump(include=set(only) if only else None, exclude={"checkpoint_minutes"})
