"""Task: what differs between multi-class and multi-label classification.

Targets from labels, probabilities from logits, NORMALIZE and the loss l of eqn:implementation, and the metric, which
carries its name and direction: the data set's own, or the one that the settings name (`graph.metrics`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from labeldeconv.errors import ConfigError
from labeldeconv.graph.attributed import AttributedGraph, TaskKind
from labeldeconv.graph.metrics import OWN, TITLES, metric_score, metrics_of
from labeldeconv.settings.models import MetricName


@dataclass(frozen=True)
class Task:
    """A classification task of `kind` over `num_classes` classes.

    Args:
        judged_by: the metric of `score`; None: accuracy, or for multi-label tasks the mean ROC-AUC. It says how
            predictions are judged and not what is learned, so it is in no key of targets.
        weights: (c,) of the classes in the loss, or of the positives of every label; None: all equal.
    """

    kind: TaskKind
    num_classes: int
    judged_by: MetricName | None = field(default=None, metadata={"idle": True})
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.judged_by is not None and self.judged_by not in metrics_of(self.kind):
            known = ", ".join(metrics_of(self.kind))
            what = {"multiclass": "one class per node", "multilabel": "several labels per node"}[self.kind]
            raise ConfigError(f"metric '{self.judged_by}': the labels are {what}; one of {known} expected")

    @classmethod
    def of(
        cls,
        graph: AttributedGraph,
        metric: MetricName | None = None,
        weights: Sequence[float] | None = None,
    ) -> Task:
        """The task a graph's labels pose, judged by a metric, or by its own; its loss perhaps with class weights."""
        return cls(graph.task, graph.num_classes, metric, None if weights is None else tuple(weights))

    @property
    def metric_name(self) -> MetricName:
        """The metric as settings name it."""
        return self.judged_by or OWN[self.kind]

    @property
    def metric(self) -> str:
        """Name of the score, as tables and reports say it."""
        return TITLES[self.metric_name]

    @property
    def higher_is_better(self) -> bool:
        """Direction of the score."""
        return True

    def targets(self, labels: np.ndarray) -> np.ndarray:
        """Labels (n,) or (n, c) to float32 targets (n, c): one-hot or multi-hot, NaN where missing."""
        if self.kind == "multilabel":
            return np.where(labels < 0, np.nan, labels).astype(np.float32)
        out = np.zeros((len(labels), self.num_classes), dtype=np.float32)
        known = labels >= 0
        out[np.flatnonzero(known), labels[known]] = 1.0
        out[~known] = np.nan
        return out

    def frequency(self, labels: np.ndarray) -> Tensor:
        """How often each label occurs among labels (n,) or (n, c) that are known: (c,), none 0 or 1."""
        targets = torch.from_numpy(self.targets(labels))
        return smoothed_share(targets.nansum(0), (~targets.isnan()).sum(0))

    def probabilities(self, logits: Tensor, temperature: float = 1.0) -> Tensor:
        """Logits (b, c) to probabilities (b, c): softmax or sigmoid of logits / temperature."""
        scaled = logits / temperature
        return scaled.softmax(-1) if self.kind == "multiclass" else scaled.sigmoid()

    def normalize(self, inverse_labels: Tensor) -> Tensor:
        """NORMALIZE of eqn:implementation: divide by the row sum (multi-class) or clamp to [0, 1] (multi-label)."""
        if self.kind == "multilabel":
            return inverse_labels.clamp(0.0, 1.0)
        return inverse_labels / inverse_labels.sum(-1, keepdim=True).clamp_min(torch.finfo(inverse_labels.dtype).tiny)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy per node (b,) of logits (b, c) against soft targets (b, c); NaN targets do not count.

        With weights w a soft target t costs -sum_k t_k w_k log p_k: what its classes cost, expected over t.
        """
        w = None if self.weights is None else torch.tensor(self.weights, dtype=logits.dtype, device=logits.device)
        if self.kind == "multiclass":
            return -((targets if w is None else targets * w) * logits.log_softmax(-1)).sum(-1)
        known = ~targets.isnan()
        filled = torch.where(known, targets, torch.zeros_like(targets))
        each = F.binary_cross_entropy_with_logits(logits, filled, reduction="none", pos_weight=w) * known
        return each.sum(-1) / known.sum(-1).clamp_min(1)

    def score(self, logits: np.ndarray, labels: np.ndarray) -> float:
        """The metric of logits (m, c) against labels (m,) or (m, c); NaN where no label is known."""
        return metric_score(self.metric_name, self.kind, logits, labels)

    def all_scores(self, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """Every metric of this kind of task, by the name that settings have for it."""
        return {name: metric_score(name, self.kind, logits, labels) for name in metrics_of(self.kind)}


def class_weights(
    kind: TaskKind, num_classes: int, train_labels: np.ndarray, asked: str | Sequence[float]
) -> tuple[float, ...] | None:
    """Weights (c,) of the loss that the setting `class_weights` asks for, from train labels (n,) or (n, c), -1 unknown.

    Those of classes are scaled to a mean of 1 over the train nodes: the mean loss of all of them is then that of
    torch's CrossEntropyLoss(weight=...), and a learning rate means what it did. A class without train nodes has weight
    1 in 'balanced', and so has a label without positives or without negatives.
    """
    if asked == "none":
        return None
    if not isinstance(asked, str) and len(asked) != num_classes:
        what = "class" if kind == "multiclass" else "label"
        raise ConfigError(f"class_weights: {num_classes} weights expected, one per {what}, got {len(asked)}")
    if kind == "multilabel":
        positives, negatives = (train_labels > 0).sum(0), (train_labels == 0).sum(0)
        both = (positives > 0) & (negatives > 0)
        ratio = np.where(both, negatives / np.maximum(positives, 1), 1.0)
        return tuple(float(w) for w in (ratio if isinstance(asked, str) else asked))
    counts = np.bincount(train_labels[train_labels >= 0], minlength=num_classes)
    w = np.where(counts > 0, 1 / np.maximum(counts, 1), 0.0) if isinstance(asked, str) else np.asarray(asked, float)
    total = float((w * counts).sum())
    w = w * counts.sum() / total if total > 0 else w
    return tuple(float(x) for x in (np.where(counts > 0, w, 1.0) if isinstance(asked, str) else w))


def smoothed_share(some: Tensor, all_of_them: Tensor | int) -> Tensor:
    """(some + 1/2) / (all + 1), never 0 or 1, so that its logit is finite."""
    return ((some + 0.5) / (all_of_them + 1)).clamp(max=1 - 1e-6)
