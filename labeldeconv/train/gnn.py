"""The GNN loop: Algorithm 1, lines 14-17, with early stopping; the test score is read at the best validation only."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeldeconv.config import GNNConfig
from labeldeconv.gnns.base import GNN
from labeldeconv.graph import Split
from labeldeconv.progress import bar
from labeldeconv.task import Task
from labeldeconv.train.checkpoint import Checkpoint
from labeldeconv.train.feed import Feed

LOG = "epochs.jsonl"  # one line per epoch: epoch, loss, val


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
    gnn: GNN, feed: Feed, task: Task, labels: np.ndarray, split: Split, config: GNNConfig, seed: int, folder: Path
) -> GNNRun:
    """Train `gnn` on the true labels of the train nodes; it ends with its best weights."""
    torch.manual_seed(seed)
    optimizer = torch.optim.Adam(gnn.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    checkpoint = Checkpoint(folder / "checkpoint.safetensors", gnn, optimizer, config.checkpoint_minutes)
    restored = checkpoint.load()
    state: dict[str, Any] = {"epoch": 0, "best_epoch": 0, "best": None}
    best = {k: v.clone() for k, v in gnn.state_dict().items()}
    if restored:
        state, best = restored
    log_path = folder / LOG
    rows = log_path.read_text().splitlines()[: state["epoch"]] if log_path.exists() else []
    train, val = split.train, split.val
    with bar("gnn", total=config.epochs, unit="epochs", done=state["epoch"]) as advance:
        for epoch in range(state["epoch"] + 1, config.epochs + 1):
            loss = _epoch(gnn, feed, task, labels, train, optimizer, np.random.default_rng([seed, epoch]))
            score, val_loss = _validate(gnn, feed, task, labels, val)
            state["epoch"] = epoch
            if state["best"] is None or (score, -val_loss) > tuple(state["best"]):  # equal scores: the lower loss
                state.update(best=[score, -val_loss], best_epoch=epoch)
                best = {k: v.clone() for k, v in gnn.state_dict().items()}
            rows.append(json.dumps({"epoch": epoch, "loss": loss, "val": score}))
            advance(1, f"val {score:.4f}")
            if checkpoint.due:
                log_path.write_text("".join(f"{row}\n" for row in rows))
                checkpoint.save(state, best)
            if epoch - state["best_epoch"] >= config.patience:
                break
    log_path.write_text("".join(f"{row}\n" for row in rows))
    gnn.load_state_dict(best)
    logits = _predict(gnn, feed)
    val_score, test_score = (task.score(logits[ids], labels[ids]) for ids in (val, split.test))
    return GNNRun(logits, val_score, test_score, state["best_epoch"], state["epoch"], checkpoint.seconds)


def _epoch(
    gnn: GNN,
    feed: Feed,
    task: Task,
    labels: np.ndarray,
    nodes: np.ndarray,
    optimizer: torch.optim.Optimizer,
    generator: np.random.Generator,
) -> float:
    """One pass over the train nodes; returns the mean loss."""
    gnn.train()
    total = 0.0
    for ids, logits in feed.batches(gnn, nodes, generator):
        optimizer.zero_grad(set_to_none=True)
        loss = task.loss(logits, torch.from_numpy(task.targets(labels[ids])).to(logits.device)).mean()
        loss.backward()
        optimizer.step()
        total += float(loss.detach()) * len(ids)
    return total / len(nodes)


def _validate(gnn: GNN, feed: Feed, task: Task, labels: np.ndarray, val: np.ndarray) -> tuple[float, float]:
    """Score and mean loss on the validation nodes; a NaN score counts as the worst."""
    logits = _predict(gnn, feed)[val]
    score = task.score(logits, labels[val])
    loss = task.loss(torch.from_numpy(logits), torch.from_numpy(task.targets(labels[val]))).nanmean()
    return (-math.inf if math.isnan(score) else score), float(loss)


def _predict(gnn: GNN, feed: Feed) -> np.ndarray:
    gnn.eval()
    with torch.inference_mode():
        return feed.predict(gnn).float().cpu().numpy()
