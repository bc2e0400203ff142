"""The stage of an encoder phase (Algorithm 1, lines 5-11), and what psi then predicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from labeldeconv.encoders.tokens import TokenStore
from labeldeconv.encoders.vocabulary import used_vocabulary
from labeldeconv.gnns.base import Psi
from labeldeconv.job import Job
from labeldeconv.record import Stage
from labeldeconv.stages.encoding import tokens
from labeldeconv.stages.gnns import first_gnn
from labeldeconv.task import Task, smoothed_share
from labeldeconv.train.encoder import train_encoder
from labeldeconv.train.objective import Objective

PREDICT_ROWS = 1 << 14  # features that go through psi at a time


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
    first = first_gnn(job, teacher) if warm else None
    psi_key = config.gnn.key(only=("name", "layers", "hidden", "dropout", "output_bias")) | {"options": job.gnn_options}
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
        "train": settings.key(),
        "precision": job.precision,
        "seed": seed,
    }

    def build(folder: Path) -> Mapping[str, Any]:
        torch.manual_seed(seed)
        encoder = job.first_encoder()
        if start:
            encoder.restore(start.path / "encoder")
        model = job.new_gnn(encoder.dim)
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
        head = nn.Linear(dim, len(total))
        head.bias.copy_(smoothed_share(total, len(nodes)).logit())
    return head


def predict(job: Job, trained: Stage, inputs: Stage, label: str = "predict") -> Stage:
    """psi of a trained encoder over its features: logits.npy (n, c), the encoder's own predictions."""

    def build(folder: Path) -> None:
        x = inputs.array("features")
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
