"""The encoder loop: Algorithm 1, lines 6-11, for every method. Optimises beta, theta and gamma' together."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from labeldeconv.config import TrainConfig
from labeldeconv.encoders.tokens import TokenStore
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.metrics import Watch
from labeldeconv.progress import bar
from labeldeconv.train.batches import ahead, epoch_batches
from labeldeconv.train.checkpoint import Checkpoint
from labeldeconv.train.objective import Objective
from labeldeconv.train.optim import autocast_type, make_optimizer, set_learning_rates

LOG = "steps.jsonl"  # one line per optimiser step: step, epoch, loss, lr, gamma


@dataclass(frozen=True)
class EncoderRun:
    """What the encoder phase reports: optimiser steps, last loss, gamma (None where not learned), seconds.

    `parts` are seconds by part of the step, of the last attempt alone.
    """

    steps: int
    loss: float
    gamma: list[float] | None
    seconds: float
    parts: dict[str, float]


def train_encoder(
    objective: Objective,
    store: TokenStore,
    nodes: np.ndarray,
    config: TrainConfig,
    seed: int,
    folder: Path,
    watch: Watch | None = None,
) -> EncoderRun:
    """Train `objective` in place on `nodes` (m,); logs and checkpoints go to `folder`, from where it resumes.

    `watch` sees every row of the log, those of earlier attempts first. Inside `used_vocabulary` only word vectors that
    occur are trained, which is faster.
    """
    watch = watch or Watch("train")
    device = next(objective.encoder.parameters()).device
    dtype = autocast_type(config.precision, device)
    torch.manual_seed(seed)
    if config.gradient_checkpointing:
        objective.encoder.enable_gradient_checkpointing()
    optimizer = make_optimizer(objective, config)
    checkpoint = Checkpoint(folder / "checkpoint.safetensors", objective, optimizer, config.checkpoint_minutes)
    restored = checkpoint.load()
    state: dict[str, Any] = restored[0] if restored else {"epoch": 0, "group": 0, "step": 0}
    lengths = store.lengths
    loss = float("nan")
    objective.train()
    clock = objective.clock

    def groups_of(epoch: int) -> list[list[np.ndarray]]:
        batches = epoch_batches(lengths, nodes, config.batch_nodes, config.batch_tokens, seed, epoch)
        return [batches[i : i + config.accumulate] for i in range(0, len(batches), config.accumulate)]

    total, done = config.epochs * len(nodes), state["epoch"] * len(nodes)
    if state["group"]:
        done += sum(len(ids) for group in groups_of(state["epoch"])[: state["group"]] for ids in group)
    with open_log(folder / LOG, state["step"], watch) as log, bar(watch.label, total, done=done) as advance:
        for epoch in range(state["epoch"], config.epochs):
            groups = groups_of(epoch)
            prepared = ahead(partial(_prepare, store), groups[state["group"] :])
            clock.start()
            for k, batches in enumerate(prepared, start=state["group"]):
                clock.lap("batches")
                scale = set_learning_rates(optimizer, (epoch + (k + 0.5) / len(groups)) / config.epochs, config.warmup)
                loss = _step(objective, optimizer, batches, config.clip, device, dtype)
                state = {"epoch": epoch, "group": k + 1, "step": state["step"] + 1}
                row: dict[str, Any] = {"step": state["step"], "epoch": epoch, "loss": loss, "lr": config.lr * scale}
                row["gamma"] = gamma_of(objective.targets)
                log.write(json.dumps(row) + "\n")
                watch(row)
                ids = np.concatenate(groups[k])
                advance(len(ids), f"epoch {epoch + 1}/{config.epochs} loss {loss:.3f}", int(lengths[ids].sum()))
                if checkpoint.due:
                    log.flush()
                    checkpoint.save(state)
                clock.lap("log")
            state = {**state, "group": 0}
    objective.eval()
    return EncoderRun(state["step"], loss, gamma_of(objective.targets), checkpoint.seconds, clock.seconds)


Prepared = tuple[np.ndarray, torch.Tensor, torch.Tensor]  # node ids (b,), tokens and mask (b, t)


def _prepare(store: TokenStore, batches: list[np.ndarray]) -> list[Prepared]:
    return [(ids, *store.batch(ids)) for ids in batches]


def _step(
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    batches: list[Prepared],
    clip: float,
    device: torch.device,
    dtype: torch.dtype | None,
) -> float:
    """One optimiser step over the nodes of all `batches`; returns their mean loss."""
    total, loss = sum(len(ids) for ids, _, _ in batches), 0.0
    for ids, input_ids, mask in batches:
        with torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            share = objective(ids, input_ids.to(device), mask.to(device)) * (len(ids) / total)
        objective.clock.lap("loss")
        share.backward()
        loss += float(share.detach())
        objective.clock.lap("backward")
    if clip > 0:
        nn.utils.clip_grad_norm_(objective.parameters(), clip)
        objective.clock.lap("clip")
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    objective.clock.lap("update")
    return loss


def gamma_of(targets: nn.Module) -> list[float] | None:
    """gamma of inverse labels as plain numbers; None for other targets and for alpha = 0, where gamma is idle."""
    if isinstance(targets, InverseLabels) and targets.alpha > 0:
        return [round(g, 6) for g in targets.gamma.tolist()]
    return None


def open_log(path: Path, steps: int, watch: Watch) -> Any:
    """Open the log with exactly the lines of the `steps` that the checkpoint knows; `watch` sees them."""
    lines = path.read_text().splitlines(keepends=True)[:steps] if path.exists() else []
    path.write_text("".join(lines))
    watch.replay(lines)
    return path.open("a")
