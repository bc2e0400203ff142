"""A head that scores pairs of nodes by their features: an MLP on x_u * x_v (Hadamard), trained on edges.

Every step takes some train edges and as many pairs that are no edges. The epoch with the best MRR on the validation
edges is kept.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from labeldeconv.graph.link_split import LinkSplit, ranks_of
from labeldeconv.progress import bar
from labeldeconv.stages.keys import Idle
from labeldeconv.stages.stage import Artefact, Folder, stage
from labeldeconv.training.checkpoint import Checkpoint
from labeldeconv.training.encoder import HasValues

BATCH = 4096  # edges per step
PAIRS = 1 << 16  # scored at a time
MINUTES = 2.0  # between checkpoints


class HadamardMLP(nn.Module):
    """Scores (b,) of pairs with features (b, d) and (b, d); the features are standardised by mean and std (d,)."""

    mean: Tensor
    std: Tensor

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("std", torch.ones(dim))
        self.layers = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """The logit of an edge between them."""
        scaled = ((a - self.mean) / self.std) * ((b - self.mean) / self.std)
        return self.layers(scaled).squeeze(-1)


@dataclass(frozen=True, eq=False)
class TrainedLinkHead(Artefact):
    """A trained head: its weights, the width of its hidden layer, the kept epoch and its MRR on validation edges."""

    weights: Path
    hidden: int
    best_epoch: int
    val: float

    def load(self, dim: int) -> HadamardMLP:
        """The head."""
        head = HadamardMLP(dim, self.hidden)
        head.load_state_dict(load_file(self.weights))
        return head.eval()


@stage(version=1)
def link_head(
    out: Folder,
    features: HasValues,
    split: LinkSplit,
    hidden: int,
    epochs: int,
    lr: float,
    seed: int,
    device: Annotated[torch.device, Idle] = torch.device("cpu"),
) -> TrainedLinkHead:
    """An MLP on x_u * x_v trained on the train edges of a split, with the negatives that the split draws."""
    torch.manual_seed(seed)
    x = torch.from_numpy(np.array(features.values, dtype=np.float32))
    head = HadamardMLP(x.shape[1], hidden)
    head.mean.copy_(x.mean(0))
    head.std.copy_(x.std(0, correction=0).clamp_min(1e-6))
    x, head = x.to(device), head.to(device)
    optimizer = torch.optim.Adam(head.parameters(), lr=lr)
    checkpoint = Checkpoint(out.path / "checkpoint.safetensors", head, optimizer, MINUTES)
    state: dict[str, Any] = {"epoch": 0, "best": -1.0, "best_epoch": 0}
    best = copy.deepcopy(head.state_dict())
    if restored := checkpoint.load():
        state, best = restored
    with bar(out.label, epochs, "epochs", state["epoch"]) as advance:
        for epoch in range(state["epoch"] + 1, epochs + 1):
            _epoch(head, optimizer, x, split, np.random.default_rng([seed, epoch]))
            mrr = float((1 / ranks_of(*scores_of_split(head, x, split, "val"))).mean()) if split.val.shape[1] else 0.0
            if mrr > state["best"]:
                state |= {"best": mrr, "best_epoch": epoch}
                best = copy.deepcopy(head.state_dict())
            state["epoch"] = epoch
            advance(1, f"val MRR {mrr:.4f}")
            if checkpoint.due:
                checkpoint.save(state, best)
    save_file({name: w.cpu().contiguous() for name, w in best.items()}, out.path / "head.safetensors")
    return TrainedLinkHead(out.path / "head.safetensors", hidden, state["best_epoch"], state["best"])


def _epoch(
    head: HadamardMLP, optimizer: torch.optim.Optimizer, x: Tensor, split: LinkSplit, rng: np.random.Generator
) -> None:
    """One pass over the train edges, each with one negative of its source."""
    head.train()
    order = rng.permutation(split.train.shape[1])
    for lo in range(0, len(order), BATCH):
        edges = split.train[:, order[lo : lo + BATCH]]
        wrong = split.draw(edges[0], 1, rng)[:, 0]
        u, v, w = (torch.from_numpy(ids).to(x.device) for ids in (edges[0], edges[1], wrong))
        logits = torch.cat([head(x[u], x[v]), head(x[u], x[w])])
        targets = torch.cat([torch.ones(len(u)), torch.zeros(len(w))]).to(logits)
        optimizer.zero_grad(set_to_none=True)
        F.binary_cross_entropy_with_logits(logits, targets).backward()
        optimizer.step()


def scores_of_split(head: nn.Module, x: Tensor, split: LinkSplit, role: str) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the edges (k,) of a part of the split and of the negatives (k, m) of their sources."""
    edges, negatives = split.part(role)
    head.eval()
    with torch.inference_mode():
        source, true = (torch.from_numpy(ids).to(x.device) for ids in edges)
        positive = head(x[source], x[true]).cpu().numpy()
        rows = [np.empty((0, negatives.shape[1]), np.float32)]
        step = max(1, PAIRS // max(1, negatives.shape[1]))
        for lo in range(0, len(source), step):
            wrong = torch.from_numpy(negatives[lo : lo + step]).to(x.device)
            rows.append(head(x[source[lo : lo + step], None].expand(-1, wrong.shape[1], -1), x[wrong]).cpu().numpy())
    return positive, np.concatenate(rows)
