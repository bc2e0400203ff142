"""The stages of a run, each cached by content key and resumable: tokens, encode, gnn, pseudo, hops, train, features.

A stage's key holds only what its result depends on, so methods and seeds share what they can: X_PNE is encoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from labeldeconv.adjacency import Adjacency
from labeldeconv.config import Settings
from labeldeconv.data.inductive import training_view
from labeldeconv.encoders.tokens import TokenStore, write_tokens
from labeldeconv.encoders.vocabulary import used_vocabulary
from labeldeconv.errors import ConfigError
from labeldeconv.gather import dequantize
from labeldeconv.gnns.base import GNN, Psi
from labeldeconv.graph import AttributedGraph
from labeldeconv.job import Job, Soft
from labeldeconv.labels.choice import LEAST, MARGIN, choose_gamma
from labeldeconv.labels.hops import write_hop_labels
from labeldeconv.labels.pseudo import pseudo_labels
from labeldeconv.record import Stage, array_key
from labeldeconv.task import Task
from labeldeconv.train.encoder import train_encoder
from labeldeconv.train.features import export_features
from labeldeconv.train.feed import Feed, InductiveFeed, make_feed
from labeldeconv.train.gnn import train_gnn
from labeldeconv.train.objective import Objective
from labeldeconv.train.self_training import SoftLabels

PREDICT_ROWS = 1 << 14  # features that go through psi at a time


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


def features(job: Job, trained: Stage, label: str = "features") -> Stage:
    """F of the trained encoder over all nodes (Algorithm 1, line 12)."""
    return _export(job, label, trained)


def _export(job: Job, label: str, trained: Stage | None) -> Stage:
    store_stage = tokens(job)
    parts = {
        "tokens": store_stage.key,
        "weights": trained.key if trained else job.first_weights,
        "pooling": job.config.encoder.pooling,
        "precision": job.precision,
    }

    def build(folder: Path) -> Mapping[str, Any]:
        encoder = job.first_encoder()
        if trained:
            encoder.restore(trained.path / "encoder")
        encoder.to(job.device)
        store = TokenStore.open(store_stage.path, encoder.pad_id)
        seconds = export_features(encoder, store, folder, job.config.train.precision, label)
        return {"seconds": seconds, "encoder_nodes": job.graph.num_nodes}

    return job.stage(label, "features", parts, build)


def load_features(stage: Stage) -> np.ndarray:
    """features.npy (n, d) of a stage, memory-mapped."""
    return np.load(stage.path / "features.npy", mmap_mode="r")


def gnn(job: Job, inputs: Stage, label: str = "gnn", soft: Soft | None = None, start: Stage | None = None) -> Stage:
    """A GNN trained on fixed features (Algorithm 1, lines 14-17): logits.npy (n, c), weights and scores.

    `soft` adds nodes taught by pseudo labels; `start` is an encoder phase whose psi the GNN begins as.
    """
    config, seed = job.config.gnn, job.config.seed
    parts = {
        "features": inputs.key,
        "graph": job.graph.fingerprint("edges", "labels", "split"),
        "gnn": {**settings_key(config, without=("init",)), "options": job.gnn_options},
        "seed": seed,
    }
    if start:
        parts["init"] = start.key
    if job.config.setting == "inductive":
        parts["setting"] = "inductive"
    if soft:
        parts["soft"] = {"labels": soft.labels.key, "ids": array_key(soft.ids), "weight": soft.weight}
    if config.options.get("edge_dim"):
        parts["edge_features"] = job.graph.fingerprint("edge_features")

    def build(folder: Path) -> Mapping[str, Any]:
        x = load_features(inputs)
        torch.manual_seed(seed)
        model = job.build_gnn(x.shape[1]).to(job.device)
        if start:
            model.load_state_dict(load_file(start.path / "psi.safetensors"))
        adj = Adjacency.from_edges(job.graph.edges, job.graph.num_nodes, config.adjacency)
        if model.edge_dim:
            adj = adj.with_edge_features(job.graph.edges, _edge_features(job.graph, model.edge_dim))
        feed = make_feed(model, x, adj, config, folder, job.device)
        if job.config.setting == "inductive":
            feed = _inductive_feed(job, model, x, feed, folder)
        given = SoftLabels(load_pseudo_labels(soft.labels), soft.ids, soft.weight) if soft else None
        run = train_gnn(
            model, feed, job.task, job.graph.labels, job.graph.split, config, seed, folder, given, job.watch(label)
        )
        np.save(folder / "logits.npy", run.logits)
        save_file(model.state_dict(), folder / "gnn.safetensors")
        (folder / "checkpoint.safetensors").unlink(missing_ok=True)
        scores = {"val": run.val, "test": run.test, "best_epoch": run.best_epoch, "epochs": run.epochs}
        return {**scores, "seconds": run.seconds}

    return job.stage(label, "gnn", parts, build)


def _inductive_feed(job: Job, model: GNN, x: np.ndarray, whole: Feed, folder: Path) -> Feed:
    """Training batches from the graph of the train nodes alone, predictions from the whole graph."""
    config = job.config.gnn
    if model.label_hops or config.consistency.weight or config.self_training.stages > 1:
        raise ConfigError(
            f"setting 'inductive': {config.name} with label inputs, consistency or self-training uses others"
        )
    view = training_view(job.graph)
    adj = Adjacency.from_edges(view.edges, view.num_nodes, config.adjacency)
    if model.edge_dim:
        adj = adj.with_edge_features(view.edges, _edge_features(view, model.edge_dim))
    nodes = job.graph.split.train
    inner = folder / "view"
    inner.mkdir(exist_ok=True)
    return InductiveFeed(make_feed(model, x[nodes], adj, config, inner, job.device), whole, nodes)


def _edge_features(graph: AttributedGraph, width: int) -> np.ndarray:
    """The graph's edge features (e, width), as option edge_dim of the GNN asks."""
    if graph.edge_features is None or graph.edge_features.shape[1:] != (width,):
        got = "none" if graph.edge_features is None else f"shape {graph.edge_features.shape}"
        raise ConfigError(f"gnn.options.edge_dim {width}: edge features (e, {width}) expected in the data, got {got}")
    return graph.edge_features


def first_gnn(job: Job, X: Stage | None = None, suffix: str = "") -> Stage:
    """The GNN that makes the pseudo labels: on X_PNE, or on features `X`."""
    return gnn(job, X or encode(job), label=f"first gnn{suffix}")


def pseudo(job: Job, X: Stage | None = None, suffix: str = "") -> Stage:
    """(Pseudo) labels Y (n, c): true on train nodes, softened predictions of the first GNN elsewhere."""
    label = f"pseudo{suffix}"
    if (job.graph.split.roles != 0).any():
        return soften(job, first_gnn(job, X, suffix), job.config.labels.temperature, label)

    def build(folder: Path) -> None:  # the inductive setting: every node is a train node, nothing is to be predicted
        Y = job.task.targets(job.graph.labels)
        np.save(folder / "pseudo_labels.npy", np.where(np.isnan(Y), np.nan_to_num(np.nanmean(Y, axis=0)), Y))

    return job.stage(label, "pseudo", {"labels": job.graph.fingerprint("labels")}, build)


def soften(job: Job, predicted: Stage, temperature: float, label: str = "pseudo") -> Stage:
    """Pseudo labels (n, c) from the logits of a stage: true on train nodes, softened predictions elsewhere."""
    parts = {"logits": predicted.key, "temperature": temperature, "labels": job.graph.fingerprint("labels", "split")}

    def build(folder: Path) -> None:
        logits = np.load(predicted.path / "logits.npy")
        Y = pseudo_labels(job.task, job.graph.labels, job.graph.split.train, logits, temperature)
        np.save(folder / "pseudo_labels.npy", Y)

    return job.stage(label, "pseudo", parts, build)


def load_pseudo_labels(stage: Stage) -> np.ndarray:
    """pseudo_labels.npy (n, c) of a stage."""
    return np.load(stage.path / "pseudo_labels.npy")


def predict(job: Job, trained: Stage, inputs: Stage, label: str = "predict") -> Stage:
    """psi of a trained encoder over its features: logits.npy (n, c), the encoder's own predictions."""

    def build(folder: Path) -> None:
        x = load_features(inputs)
        psi = Psi(job.build_gnn(x.shape[1]), job.config.train.psi_norm)
        psi.gnn.load_state_dict(load_file(trained.path / "psi.safetensors"))
        np.save(folder / "logits.npy", psi_logits(psi, x))

    return job.stage(label, "predict", {"psi": trained.key, "features": inputs.key}, build)


def psi_logits(psi: Psi, x: np.ndarray) -> np.ndarray:
    """psi of all features (n, d): logits (n, c)."""
    psi.eval()
    with torch.inference_mode():
        blocks = range(0, len(x), PREDICT_ROWS)
        return torch.cat([psi(torch.from_numpy(x[i : i + PREDICT_ROWS].astype(np.float32))) for i in blocks]).numpy()


def hops(job: Job, Y: Stage, number: int, suffix: str = "") -> Stage:
    """K_i = A-hat^i Y for i = 0..number (Algorithm 1, line 4): hop_labels.npy (n, number + 1, c)."""
    adjacency = job.config.labels.adjacency
    parts = {
        "labels": Y.key,
        "edges": job.graph.fingerprint("edges"),
        "adjacency": adjacency.model_dump(),
        "hops": number,
        "store": job.config.labels.store,
    }

    def build(folder: Path) -> None:
        adj = Adjacency.from_edges(job.graph.edges, job.graph.num_nodes, adjacency)
        Y_on_disk = np.load(Y.path / "pseudo_labels.npy", mmap_mode="r")
        write_hop_labels(adj, Y_on_disk, number, folder / "hop_labels.npy", job.config.labels.store)

    return job.stage(f"hops{suffix}", "hops", parts, build)


def choice(job: Job, K: Stage, suffix: str = "") -> Stage:
    """gamma, chosen by a closed form on the validation nodes; info holds it and all candidates."""
    split = job.graph.split
    if len(split.val) == 0:
        raise ConfigError("labels.gamma 'auto': validation nodes expected; the inductive setting hides them")
    X = encode(job)
    adjacency = job.config.gnn.adjacency
    graph = job.graph.fingerprint("edges", "labels", "split")
    parts = {
        "hops": K.key,
        "features": X.key,
        "graph": graph,
        "adjacency": adjacency.model_dump(),
        "margin": [MARGIN, LEAST],
    }

    def build(folder: Path) -> Mapping[str, Any]:
        adj = Adjacency.from_edges(job.graph.edges, job.graph.num_nodes, adjacency)
        hop_labels = dequantize(np.load(K.path / "hop_labels.npy"))
        found = choose_gamma(load_features(X), hop_labels, adj, job.graph.labels, split, job.task)
        tried = [{**asdict(c), "gamma": [round(float(g), 4) for g in c.gamma]} for c in found]
        return {"gamma": [float(g) for g in found[0].gamma], "candidates": tried}

    return job.stage(f"choice{suffix}", "choice", parts, build)


def train(
    job: Job,
    targets: Callable[[], nn.Module],
    nodes: np.ndarray,
    target_key: Mapping[str, Any],
    *,
    label: str = "train",
    pseudo_weight: float | None = None,
    start: Stage | None = None,
    clusters: int | None = None,
    epochs: int | None = None,
    teacher: Stage | None = None,
) -> Stage:
    """The encoder phase (Algorithm 1, lines 5-11) on `nodes`; `target_key` says what the targets are made of.

    Args:
        pseudo_weight: share of the nodes without a true label in the loss; None is one plain mean.
        start: go on from this stage's encoder instead of the first one.
        clusters: put a linear head for this many binary targets behind the encoder, instead of psi of the GNN.
        epochs: instead of `train.epochs`.
        teacher: features of the first GNN, from which psi may start; X_PNE if None.
    """
    config, seed = job.config, job.config.seed
    settings = config.train.model_copy(update={"epochs": epochs or config.train.epochs})
    store_stage = tokens(job)
    warm = config.train.psi_init == "gnn" and clusters is None
    first = first_gnn(job, teacher, label.removeprefix("train")) if warm else None
    psi_key = settings_key(config.gnn, only=("name", "layers", "hidden", "dropout")) | {"options": job.gnn_options}
    parts = {
        "tokens": store_stage.key,
        "encoder": start.key if start else job.first_weights,
        "pooling": config.encoder.pooling,
        "lora": config.encoder.lora_rank,
        "psi": psi_key if clusters is None else {"linear": clusters, "bias": "frequency"},
        "psi_weights": first.key if first else None,
        "targets": target_key,
        "split": job.graph.fingerprint("split") if clusters is None else None,
        "pseudo_weight": pseudo_weight,
        "train": settings_key(settings),
        "precision": job.precision,
        "seed": seed,
    }

    def build(folder: Path) -> Mapping[str, Any]:
        torch.manual_seed(seed)
        encoder = job.first_encoder()
        if start:
            encoder.restore(start.path / "encoder")
        model = job.build_gnn(encoder.dim)
        if first:
            model.load_state_dict(load_file(first.path / "gnn.safetensors"))
        goal = targets()
        psi: nn.Module = _linear_head(encoder.dim, goal, nodes) if clusters else Psi(model, settings.psi_norm)
        task = Task("multilabel", clusters) if clusters else job.task
        gold = job.graph.split.roles == 0
        objective = Objective(encoder, psi, goal, task, settings.dropout, pseudo_weight, gold).to(job.device)
        store = TokenStore.open(store_stage.path, encoder.pad_id)
        with used_vocabulary(encoder, store):
            run = train_encoder(objective, store, nodes, settings, seed, folder, job.watch(label))
        encoder.save(folder / "encoder")
        save_file((psi.gnn if isinstance(psi, Psi) else psi).state_dict(), folder / "psi.safetensors")
        (folder / "checkpoint.safetensors").unlink(missing_ok=True)
        report = {"steps": run.steps, "loss": run.loss, "gamma": run.gamma, "seconds": run.seconds}
        step = {part: round(seconds, 3) for part, seconds in run.parts.items()}
        return {**report, "step_seconds": step, "encoder_nodes": settings.epochs * len(nodes)}

    stage = job.stage(label, "train", parts, build)
    if clusters is None:
        job.psi = stage
    return stage


def _linear_head(dim: int, targets: nn.Module, nodes: np.ndarray) -> nn.Linear:
    """A head whose bias starts at the targets' frequencies: else the encoder learns the offset and loses all else."""
    with torch.no_grad():
        blocks = range(0, len(nodes), PREDICT_ROWS)
        total = torch.stack([targets(nodes[i : i + PREDICT_ROWS]).sum(0) for i in blocks]).sum(0)
        frequency = ((total + 0.5) / (len(nodes) + 1)).clamp(max=1 - 1e-6)
        head = nn.Linear(dim, len(frequency))
        head.bias.copy_(frequency.logit())
    return head


def settings_key(
    settings: Settings, only: tuple[str, ...] | None = None, without: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Settings as they go into a key: all but those that cannot change the result."""
    return settings.model_dump(include=set(only) if only else None, exclude={"checkpoint_minutes", *without})
