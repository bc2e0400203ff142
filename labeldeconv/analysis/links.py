"""Link prediction on the features of a finished run: how well they tell edges from pairs without one.

    labeldeconv links runs/planted-ld-gcn-0-1a2b3c4d --out links

Heads: the dot product and the cosine of two nodes' features, which learn nothing, and an MLP on their product, trained
on the train edges. The features come from a finished run, which did not know of this split: `seen` says what they have
seen. Those of LD have seen all edges through A-hat, so their scores are no scores of unseen edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labeldeconv.errors import ConfigError, DataError
from labeldeconv.graph.link_split import CUTS, link_metrics, split_edges
from labeldeconv.runs.directory import RunDirectory, is_run
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.files import write_json
from labeldeconv.stages.keys import array_key
from labeldeconv.stages.stage import session
from labeldeconv.training.link_head import link_head, scores_of_split

EDGE_BLIND = {"pne": "texts alone", "fne": "texts and train labels, no edges"}
INSIDE = "texts, labels and edges of the train nodes"
ALL = "texts, train labels and all edges of the graph, validation and test edges included"


class Dot(nn.Module):
    """The dot product of two features."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Scores (...,) of features (..., d)."""
        return (a * b).sum(-1)


class Cosine(nn.Module):
    """The cosine of two features."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Scores (...,) of features (..., d)."""
        return F.cosine_similarity(a, b, dim=-1)


@dataclass(frozen=True, eq=False)
class RunFeatures:
    """Features (n, d) of a run, known by their content."""

    values: np.ndarray
    content_key: str


@dataclass(frozen=True)
class Links:
    """Scores of every head on validation and test edges: {head: {"val": {metric: score}, "test": ...}}."""

    run: str
    seen: str
    seed: int
    drawn: str
    negatives: int
    edges: dict[str, int]
    heads: dict[str, dict[str, dict[str, float]]]

    def to_dict(self) -> dict[str, Any]:
        """What links.json and `--json` hold."""
        return dict(self.__dict__)

    def rows(self) -> list[dict[str, Any]]:
        """One row per head."""
        names = ("mrr", *(f"hits@{k}" for k in CUTS))
        return [
            {"head": head, "val mrr": told["val"]["mrr"]} | {name: told["test"][name] for name in names}
            for head, told in self.heads.items()
        ]


def predict_links(
    run: str | Path,
    out: Path | None = None,
    drawn: str = "uniform",
    negatives: int = 100,
    seed: int = 0,
    epochs: int = 50,
    hidden: int = 256,
    lr: float = 0.001,
    cache: Cache | None = None,
) -> Links:
    """Split the edges of a run's graph and score pairs by its features; `out` gets links.json.

    Args:
        drawn: negatives are uniform, or 'hard': of the class of the edge's true end.
        negatives: per validation and test edge.
        seed: of the split, of the negatives and of the MLP.
        epochs, hidden, lr: of the MLP's training; its epoch is chosen by the MRR on the validation edges.
    """
    if drawn not in ("uniform", "hard"):
        raise ConfigError(f"negatives '{drawn}': uniform or hard expected")
    opened = RunDirectory.open(run)
    if out is not None and (is_run(out) or is_run(out.parent)):
        raise DataError(f"{out}: a run or a comparison is there; another folder expected")
    graph = opened.graph
    labels = np.asarray(graph.labels)
    if drawn == "hard" and labels.ndim > 1:
        raise DataError(f"{opened.path}: hard negatives need one class per node; --negatives uniform expected")
    split = split_edges(graph.edges, graph.num_nodes, seed, negatives, labels if drawn == "hard" else None)
    X = RunFeatures(opened.features, array_key(opened.features))
    with session(cache):
        trained = link_head(X, split, hidden, epochs, lr, seed)
    x = torch.from_numpy(np.array(X.values, dtype=np.float32))
    heads: dict[str, nn.Module] = {"dot": Dot(), "cosine": Cosine(), "mlp": trained.load(x.shape[1])}
    scores = {
        name: {role: link_metrics(*scores_of_split(head, x, split, role)) for role in ("val", "test")}
        for name, head in heads.items()
    }
    counts = {role: getattr(split, role).shape[1] for role in ("train", "val", "test")}
    found = Links(str(opened.path), seen_by(opened), seed, drawn, negatives, counts, scores)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "links.json", found.to_dict())
    return found


def seen_by(run: RunDirectory) -> str:
    """What the features of a run have seen of its graph, in words."""
    settings, method = run.settings, run.result.get("chosen") or run.method
    if method == "given":
        return "what made them, which the run does not know"
    taught = settings["encoder"].get("adapt", "none") != "none" or settings.get("start") is not None
    by_gnn = settings["train"].get("head") == "psi" and settings["train"].get("psi_init") == "gnn"
    if method in EDGE_BLIND and not taught and not (method == "fne" and by_gnn):
        return EDGE_BLIND[method]
    return INSIDE if settings["setting"] == "inductive" and settings.get("start") is None else ALL
