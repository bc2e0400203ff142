"""How far one prediction leads another on the same nodes, and how much of that the choice of these nodes may make.

The standard error of the lead is the jackknife's, in one way for all metrics: the nodes are dealt into groups, both
predictions are scored without each group in turn, and the differences of these scores vary as much as the lead would
over other nodes. Where the metric is a mean over nodes and every node is a group, that is to the bit of rounding the
standard error of the mean of paired differences. Unlike resamples with replacement, parts that lack one group alone
hardly ever lose a class, and fifty of them are enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from labeldeconv.graph.metrics import score_text
from labeldeconv.graph.missing import labelled
from labeldeconv.graph.task import Task

GROUPS = 50
FEWEST = 10  # nodes with a label, below which nothing is said of the error: by chance all of so few agree
ROUNDING = 1e-3  # of a standard error: a lead of one node is one, but for groups that differ by a node, and rounding


@dataclass(frozen=True)
class Lead:
    """By how much a score is better than another, and its standard error; None where either means nothing there."""

    lead: float | None
    standard_error: float | None

    @property
    def is_clear(self) -> bool:
        """Whether the lead is more than one standard error. Where that is not known, it is not."""
        if self.lead is None or self.standard_error is None:
            return False
        return self.lead > (1 + ROUNDING) * self.standard_error


@dataclass(frozen=True, eq=False)
class Judged:
    """A prediction as its validation nodes see it: its score, and the scores without each group (g,); higher is better.

    Two of them can be compared where nodes and labels are the same.
    """

    rank: float
    without: np.ndarray

    @classmethod
    def of(cls, task: Task, logits: np.ndarray, labels: np.ndarray) -> Judged:
        """Of logits (m, c) against labels (m,) or (m, c); nodes without any known label are left out."""
        known = labelled(labels)
        logits, labels = logits[known], labels[known]
        m = len(labels)
        if m < FEWEST:
            return cls(task.rank(task.score(logits, labels)), np.full(0, np.nan))
        groups = min(GROUPS, m)
        group = np.random.default_rng(0).permutation(m) % groups  # the same for all predictions of these nodes
        scores = [task.score(logits[group != g], labels[group != g]) for g in range(groups)]
        return cls(task.rank(task.score(logits, labels)), np.array([task.rank(score) for score in scores]))

    def lead_over(self, other: Judged) -> Lead:
        """How far this prediction leads another one."""
        if not (math.isfinite(self.rank) and math.isfinite(other.rank)):
            return Lead(None, None)
        lead, g = self.rank - other.rank, len(self.without)
        if not g or not (np.isfinite(self.without).all() and np.isfinite(other.without).all()):
            return Lead(lead, None)  # without some group there is no score, such as the ROC-AUC of one class
        return Lead(lead, float(math.sqrt(g - 1) * (self.without - other.without).std()))


def lead_text(title: str, lead: Lead) -> str:
    """A lead with its standard error as tables show scores of this title, and '?' for what is not known."""
    if lead.lead is None:
        return "? ± ?"
    error = "?" if lead.standard_error is None else score_text(title, lead.standard_error)
    return f"{'+' if lead.lead >= 0 else '-'}{score_text(title, abs(lead.lead))} ± {error}"
