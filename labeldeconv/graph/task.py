"""Task: what differs between multi-class and multi-label classification.

Targets from labels, probabilities from logits, NORMALIZE and the loss l of eqn:implementation, and the metric, which
carries its name and direction: the data set's own, or the one that the settings name (`graph.metrics`).
"""

from __future__ import annotations

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
    """

    kind: TaskKind
    num_classes: int
    judged_by: MetricName | None = field(default=None, metadata={"idle": True})

    def __post_init__(self) -> None:
        if self.judged_by is not None and self.judged_by not in metrics_of(self.kind):
            known = ", ".join(metrics_of(self.kind))
            what = {"multiclass": "one class per node", "multilabel": "several labels per node"}[self.kind]
            raise ConfigError(f"metric '{self.judged_by}': the labels are {what}; one of {known} expected")

    @classmethod
    def of(cls, graph: AttributedGraph, metric: MetricName | None = None) -> Task:
        """The task a graph's labels pose, judged by a metric, or by its own."""
        return cls(graph.task, graph.num_classes, metric)

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
        """Cross entropy per node (b,) of logits (b, c) against soft targets (b, c); NaN targets do not count."""
        if self.kind == "multiclass":
            return -(targets * logits.log_softmax(-1)).sum(-1)
        known = ~targets.isnan()
        filled = torch.where(known, targets, torch.zeros_like(targets))
        each = F.binary_cross_entropy_with_logits(logits, filled, reduction="none") * known
        return each.sum(-1) / known.sum(-1).clamp_min(1)

    def score(self, logits: np.ndarray, labels: np.ndarray) -> float:
        """The metric of logits (m, c) against labels (m,) or (m, c); NaN where no label is known."""
        return metric_score(self.metric_name, self.kind, logits, labels)

    def all_scores(self, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """Every metric of this kind of task, by the name that settings have for it."""
        return {name: metric_score(name, self.kind, logits, labels) for name in metrics_of(self.kind)}


def smoothed_share(some: Tensor, all_of_them: Tensor | int) -> Tensor:
    """(some + 1/2) / (all + 1), never 0 or 1, so that its logit is finite."""
    return ((some + 0.5) / (all_of_them + 1)).clamp(max=1 - 1e-6)
