"""Scores over seeds: mean and spread, and whether two methods differ beyond the seeds' noise."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import ttest_1samp


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
        return f"{100 * self.mean:.2f} ± {100 * self.std:.2f}"


def paired_p(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Two-sided p-value of a paired t-test between scores of the same seeds; None below two seeds or without spread."""
    differences = np.subtract(a, b)
    if len(differences) < 2 or np.ptp(differences) <= 1e-12 * np.abs(differences).max():
        return None
    return float(ttest_1samp(differences, 0.0).pvalue)
