"""Scores over seeds: mean and spread, and whether two methods differ beyond the seeds' noise."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import ttest_1samp, wilcoxon

from labeldeconv.graph.metrics import score_text


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over seeds (0 for one seed)."""

    mean: float
    std: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of scores, one per seed."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)

    def __str__(self) -> str:
        return self.shown("accuracy")

    def shown(self, title: str) -> str:
        """As tables show scores of this title: shares in percent."""
        return f"{score_text(title, self.mean)} ± {score_text(title, self.std)}"


def paired_p(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Two-sided p-value of a paired t-test between scores of the same seeds; None below two seeds or without spread."""
    differences = np.subtract(a, b)
    if len(differences) < 2 or np.ptp(differences) <= 1e-12 * np.abs(differences).max():
        return None
    return float(ttest_1samp(differences, 0.0).pvalue)


def signed_rank_p(differences: Sequence[float]) -> float | None:
    """Two-sided p-value of Wilcoxon's signed-rank test of paired differences; None below two that are not 0."""
    values = np.asarray(differences, dtype=np.float64)
    return float(wilcoxon(values, zero_method="pratt").pvalue) if np.count_nonzero(values) > 1 else None


def signed_rank(
    differences: Sequence[float], rope: float, samples: int = 20_000, seed: int = 0
) -> tuple[float, float, float]:
    """Bayesian signed-rank test of paired differences (m,): probabilities of worse, practically equal and better.

    Benavoli et al. (2014): the differences and one pseudo observation at 0, of weight 1/2, get Dirichlet weights w; the
    three parts are sum_ij w_i w_j over the pairs whose mean lies below, inside or above the region of practical
    equivalence [-rope, rope], and each sample votes for the largest part.
    """
    z = np.concatenate([[0.0], np.asarray(differences, dtype=np.float64)])
    means = (z[:, None] + z) / 2
    parts = np.stack([means < -rope, np.abs(means) <= rope, means > rope]).astype(np.float64)  # (3, m + 1, m + 1)
    prior = np.concatenate([[0.5], np.ones(len(z) - 1)])
    w = np.random.default_rng(seed).dirichlet(prior, samples)  # (samples, m + 1)
    votes = np.stack([((w @ part) * w).sum(1) for part in parts], axis=1).argmax(1)
    worse, equal, better = np.bincount(votes, minlength=3) / samples
    return float(worse), float(equal), float(better)
