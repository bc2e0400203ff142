"""The GNN loop: Algorithm 1, lines 14-17; weights and test score are those of the best validation epoch."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labeldeconv.config import GNNConfig
from labeldeconv.errors import ConfigError
from labeldeconv.gnns.base import GNN
from labeldeconv.metrics import Watch
from labeldeconv.progress import bar
from labeldeconv.split import Split
from labeldeconv.task import Task
from labeldeconv.train.checkpoint import Checkpoint
from labeldeconv.train.consistency import Consistency
from labeldeconv.train.feed import Batch, Feed
from labeldeconv.train.self_training import SoftLabels, Supervision, confident

LOG = "epochs.jsonl"  # one line per evaluation: epoch, loss, val, and stage where there are several
WEIGHT_DECAY = 5e-4  # of multi-class GNNs, unless set
OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop}


@dataclass(frozen=True)
class GNNRun:
    """Logits (n, c) at the best validation score, the scores there, and how long it took."""

    logits: np.ndarray
    val: float
    test: float
    best_epoch: int
    epochs: int
    seconds: float


def train_gnn(
    gnn: GNN,
    feed: Feed,
    task: Task,
    labels: np.ndarray,
    split: Split,
    config: GNNConfig,
    seed: int,
    folder: Path,
    soft: SoftLabels | None = None,
    watch: Watch | None = None,
) -> GNNRun:
    """Train `gnn` on the true labels of the train nodes, and on `soft` ones; it ends with its best weights.

    `watch` sees every row of the log, those of earlier attempts first.
    """
    watch = watch or Watch("gnn")
    training = _Training(gnn, feed, task, labels, split, config, seed, folder, soft, watch)
    state, stages = training.state, config.self_training.stages
    with bar(watch.label, total=stages * config.epochs, unit="epochs", done=state["total"]) as advance:
        for stage in range(state["stage"], stages):
            taught = training.supervise(stage)
            for epoch in range(state["epoch"] + 1, config.epochs + 1):
                loss = training.epoch(taught, stage, epoch)
                note = ""
                if epoch % config.eval_every == 0 or epoch == config.epochs:
                    score = training.evaluate(stage, epoch, loss)
                    note = f"loss {loss:.3f} val {score:.4f} best {state['best'][0]:.4f}"
                advance(1, note)
                if config.patience and epoch - state["stage_epoch"] >= config.patience * config.eval_every:
                    break
                if training.checkpoint.due:
                    training.save()
            if stage + 1 < stages:
                training.hand_over(stage)
    return training.finish()


class _Training:
    """A training under way: what a checkpoint keeps, and the parts of the loop."""

    def __init__(
        self,
        gnn: GNN,
        feed: Feed,
        task: Task,
        labels: np.ndarray,
        split: Split,
        config: GNNConfig,
        seed: int,
        folder: Path,
        soft: SoftLabels | None,
        watch: Watch,
    ) -> None:
        _check(config, task)
        self.gnn, self.feed, self.task, self.labels, self.split = gnn, feed, task, labels, split
        self.config, self.seed, self.folder, self.soft = config, seed, folder, soft
        self.watch = watch
        torch.manual_seed(seed)
        self.initial, self.best = _copy(gnn), _copy(gnn)
        used = config.consistency.weight > 0
        self.consistency = Consistency(gnn, config.consistency, task) if used else None
        kind = OPTIMIZERS[config.optimizer]
        self.optimizer = kind(gnn.parameters(), lr=config.lr, weight_decay=_weight_decay(config, task))
        path = folder / "checkpoint.safetensors"
        self.checkpoint = Checkpoint(path, gnn, self.optimizer, config.checkpoint_minutes)
        self.state: dict[str, Any] = {"stage": 0, "epoch": 0, "total": 0, "rows": 0}
        self.state |= {"best": None, "best_epoch": 0, "best_stage": 0, "stage_best": None, "stage_epoch": 0}
        if restored := self.checkpoint.load():
            self.state, self.best = restored[0], _named(restored[1], "best")
            if self.consistency:
                self.consistency.teacher.load_state_dict(_named(restored[1], "teacher"))
        log = folder / LOG
        self.rows = log.read_text().splitlines()[: self.state["rows"]] if log.exists() else []
        watch.replay(self.rows)

    def supervise(self, stage: int) -> Supervision:
        """What a stage is taught; sets the label inputs that go with it."""
        soft = self.soft
        if stage > 0:
            soft = confident(self.task, np.load(self._logits_of(stage - 1)), self.split, self.config.self_training)
        taught = Supervision(self.task, self.labels, self.split.train, soft)
        self.feed.label_inputs = taught.label_inputs(self.feed.adj, self.gnn.label_hops)
        return taught

    def epoch(self, taught: Supervision, stage: int, epoch: int) -> float:
        """One epoch; returns the mean loss."""
        _set_rate(self.optimizer, self.config, epoch)
        generator = np.random.default_rng([self.seed, stage, epoch])
        progress = epoch / self.config.epochs
        loss = _epoch(self.gnn, self.feed, taught, self.optimizer, generator, self.consistency, epoch, progress)
        self.state |= {"epoch": epoch, "total": self.state["total"] + 1}
        return loss

    def evaluate(self, stage: int, epoch: int, loss: float) -> float:
        """Score on the validation nodes; keeps the best weights of the stage and of all stages."""
        score, val_loss = _validate(self.gnn, self.feed, self.task, self.labels, self.split.val)
        mark = [score, -val_loss]  # equal scores: the lower loss
        if self.state["stage_best"] is None or mark > self.state["stage_best"]:
            self.state |= {"stage_best": mark, "stage_epoch": epoch}
        if self.state["best"] is None or mark > self.state["best"]:
            self.state |= {"best": mark, "best_epoch": epoch, "best_stage": stage}
            self.best = _copy(self.gnn)
        row = {"epoch": epoch, "loss": loss, "val": score}
        if self.config.self_training.stages > 1:
            row = {"stage": stage, **row}
        self.rows.append(json.dumps(row))
        self.watch(row)
        return score

    def hand_over(self, stage: int) -> None:
        """The best GNN so far teaches a fresh one in the next stage."""
        np.save(self._logits_of(stage), self._best_logits())
        self.gnn.load_state_dict(self.initial)
        if self.consistency:
            self.consistency.teacher.load_state_dict(self.initial)
        self.optimizer.state.clear()
        self.state |= {"stage": stage + 1, "epoch": 0, "stage_best": None, "stage_epoch": 0}
        self.save()

    def save(self) -> None:
        """Write log and checkpoint."""
        self._write_log()
        teacher = self.consistency.teacher.state_dict() if self.consistency else {}
        extra = {f"best.{k}": v for k, v in self.best.items()} | {f"teacher.{k}": v for k, v in teacher.items()}
        self.checkpoint.save({**self.state, "rows": len(self.rows)}, extra)

    def finish(self) -> GNNRun:
        """Scores at the best validation."""
        self._write_log()
        logits = self._best_logits()
        for stage in range(self.config.self_training.stages - 1):
            self._logits_of(stage).unlink()
        val, test = (self.task.score(logits[ids], self.labels[ids]) for ids in (self.split.val, self.split.test))
        return GNNRun(logits, val, test, self.state["best_epoch"], self.state["total"], self.checkpoint.seconds)

    def _best_logits(self) -> np.ndarray:
        self.gnn.load_state_dict(self.best)
        self.supervise(self.state["best_stage"])
        return _predict(self.gnn, self.feed, np.arange(len(self.labels)))

    def _logits_of(self, stage: int) -> Path:
        return self.folder / f"stage-{stage}.npy"

    def _write_log(self) -> None:
        (self.folder / LOG).write_text("".join(f"{row}\n" for row in self.rows))


def _epoch(
    gnn: GNN,
    feed: Feed,
    taught: Supervision,
    optimizer: torch.optim.Optimizer,
    generator: np.random.Generator,
    consistency: Consistency | None,
    epoch: int,
    progress: float,
) -> float:
    """One pass over the taught nodes; returns the mean loss on them."""
    gnn.train()
    total, count = 0.0, 0
    others: Iterator[Batch | None] = itertools.repeat(None)
    if consistency:
        unlabelled = np.setdiff1d(np.arange(len(taught.labels)), taught.train)
        others = itertools.chain.from_iterable(feed.batches(unlabelled, generator) for _ in itertools.count())
    for batch, other in zip(feed.batches(taught.nodes, generator), others, strict=False):
        optimizer.zero_grad(set_to_none=True)
        loss = taught.loss(batch.logits(gnn), batch.ids)
        total, count = total + float(loss.detach()) * len(batch.ids), count + len(batch.ids)
        if consistency and other is not None:
            loss = loss + consistency.loss(gnn, other, epoch, progress)
        loss.backward()
        optimizer.step()
        if consistency:
            consistency.follow(gnn)
    return total / max(count, 1)


def _set_rate(optimizer: torch.optim.Optimizer, config: GNNConfig, epoch: int) -> None:
    """Linear rise over `warmup_epochs`, then constant or linear fall to 0 after the last epoch."""
    scale = min(1.0, epoch / config.warmup_epochs) if config.warmup_epochs else 1.0
    if config.schedule == "linear":
        scale *= 1 - (epoch - 1) / config.epochs
    for group in optimizer.param_groups:
        group["lr"] = config.lr * scale


def _weight_decay(config: GNNConfig, task: Task) -> float:
    default = WEIGHT_DECAY if task.kind == "multiclass" else 0.0
    return default if config.weight_decay is None else config.weight_decay


def _validate(gnn: GNN, feed: Feed, task: Task, labels: np.ndarray, val: np.ndarray) -> tuple[float, float]:
    """Score and mean loss on the validation nodes; a NaN score counts as the worst."""
    logits = _predict(gnn, feed, val)
    score = task.score(logits, labels[val])
    loss = task.loss(torch.from_numpy(logits), torch.from_numpy(task.targets(labels[val]))).nanmean()
    return (-math.inf if math.isnan(score) else score), float(loss)


def _predict(gnn: GNN, feed: Feed, nodes: np.ndarray) -> np.ndarray:
    gnn.eval()
    with torch.inference_mode():
        return feed.predict(gnn, nodes).float().cpu().numpy()


def _check(config: GNNConfig, task: Task) -> None:
    for name, used in (("self_training", config.self_training.stages > 1), ("consistency", config.consistency.weight)):
        if used and task.kind != "multiclass":
            raise ConfigError(f"gnn.{name}: confident predictions are defined for multi-class tasks only")


def _copy(gnn: GNN) -> dict[str, Tensor]:
    return {k: v.clone() for k, v in gnn.state_dict().items()}


def _named(tensors: dict[str, Tensor], group: str) -> dict[str, Tensor]:
    return {k.removeprefix(f"{group}."): v for k, v in tensors.items() if k.startswith(f"{group}.")}
