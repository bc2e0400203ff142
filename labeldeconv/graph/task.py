"""Task: what differs between multi-class and multi-label classification, and regression.

Targets from labels, probabilities from logits, NORMALIZE and the loss l of eqn:implementation, and the metric, which
carries its name and direction: the data set's own, or the one that the settings name (`graph.metrics`).

The targets of a regression are the labels less their mean and divided by their standard deviation over the train nodes,
so that learning rates, losses and a sum of several targets mean the same in any unit. Hop labels are linear, and for a
row-normalised A-hat constants stay what they are: K of (Y - m) / s is (K - m) / s. Scores and predictions are in the
unit of the labels again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from labeldeconv.errors import ConfigError
from labeldeconv.graph.attributed import AttributedGraph, TaskKind
from labeldeconv.graph.metrics import LOWER_IS_BETTER, OWN, TITLES, metric_score, metrics_of, regression_score
from labeldeconv.settings.models import MetricName, RegressionLoss

WHAT: dict[TaskKind, str] = {
    "multiclass": "one class per node",
    "multilabel": "several labels per node",
    "regression": "numbers",
}


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
            raise ConfigError(f"metric '{self.judged_by}': the labels are {WHAT[self.kind]}; one of {known} expected")

    @classmethod
    def of(
        cls,
        graph: AttributedGraph,
        metric: MetricName | None = None,
        weights: Sequence[float] | None = None,
        loss: RegressionLoss = "mse",
        train_labels: np.ndarray | None = None,
    ) -> Task:
        """The task a graph's labels pose, judged by a metric, or by its own; its loss perhaps with class weights.

        That of a regression is `loss`, and its unit is the train labels': `train_labels` (n, c), NaN elsewhere, where a
        stage that reads others of the graph has them.
        """
        if graph.task == "regression":
            return RegressionTask.on(graph.train_labels if train_labels is None else train_labels, metric, loss)
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
        return self.metric_name not in LOWER_IS_BETTER

    def rank(self, score: float | None) -> float:
        """A number that is higher the better a score is; none, and one that is not a number, is the worst."""
        if score is None or math.isnan(score):
            return -math.inf
        return score if self.higher_is_better else -score

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


@dataclass(frozen=True)
class RegressionTask(Task):
    """Numbers as labels, one or several per node; `num_classes` is the number c of targets.

    What learns sees targets in standard units, (label - mean) / std, and its outputs ("logits") are in them too;
    `values` are in the unit of the labels.

    Args:
        mean, std: (c,) of the labels of the train nodes; a std of 0 counts as 1. Empty: labels are in standard units.
        loss_name: 'mse', or 'huber' with its bend at one standard deviation.
    """

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    loss_name: RegressionLoss = "mse"

    @classmethod
    def on(cls, train_labels: np.ndarray, metric: MetricName | None, loss: RegressionLoss) -> RegressionTask:
        """The task of labels (n, c), of which those of the train nodes are known and all others NaN."""
        columns = [column[~np.isnan(column)].astype(np.float64) for column in train_labels.T]
        mean = tuple(float(y.mean()) if len(y) else 0.0 for y in columns)
        std = tuple(float(y.std()) or 1.0 if len(y) else 1.0 for y in columns)
        return cls("regression", len(columns), metric, None, mean, std, loss)

    @property
    def _units(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation (c,)."""
        c = self.num_classes
        return np.array(self.mean or (0.0,) * c), np.array(self.std or (1.0,) * c)

    def targets(self, labels: np.ndarray) -> np.ndarray:
        """Labels (n, c) to float32 targets (n, c) in standard units, NaN where missing."""
        mean, std = self._units
        return ((labels - mean) / std).astype(np.float32)

    def values(self, logits: np.ndarray) -> np.ndarray:
        """Outputs (m, c) in standard units to predictions (m, c) float64 in the unit of the labels."""
        mean, std = self._units
        return np.asarray(logits, dtype=np.float64) * std + mean

    def probabilities(self, logits: Tensor, temperature: float = 1.0) -> Tensor:
        """The outputs (b, c) themselves: what is predicted, as targets say it; there is no temperature."""
        return logits

    def normalize(self, inverse_labels: Tensor) -> Tensor:
        """Nothing is to be done: hop labels mixed by a gamma that sums to 1 have their unit."""
        return inverse_labels

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Squared or Huber loss per node (b,) of outputs (b, c) against targets (b, c); NaN targets do not count."""
        known = ~targets.isnan()
        filled = torch.where(known, targets, logits.detach())
        if self.loss_name == "huber":
            each = F.huber_loss(logits, filled, reduction="none") * 2  # twice, as the squared error near 0
        else:
            each = (logits - filled).square()
        return (each * known).sum(-1) / known.sum(-1).clamp_min(1)

    def score(self, logits: np.ndarray, labels: np.ndarray) -> float:
        """The metric of outputs (m, c) against labels (m, c), in the unit of the labels."""
        return regression_score(self.metric_name, self.values(logits), labels)

    def all_scores(self, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """R2, MAE and RMSE, by the names that settings have for them."""
        values = self.values(logits)
        return {name: regression_score(name, values, labels) for name in metrics_of(self.kind)}


def task_of_kind(kind: TaskKind, num_classes: int, metric: MetricName | None = None) -> Task:
    """The task of a kind whose labels are not at hand; a regression is in standard units."""
    return (RegressionTask if kind == "regression" else Task)(kind, num_classes, metric)


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
    if kind == "regression":
        raise ConfigError("class_weights: the labels are numbers, which have no classes; 'none' expected")
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
