"""Scores over seeds: mean and spread, and whether two methods differ beyond the seeds' noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


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
    n = len(differences)
    if n < 2 or (spread := differences.std(ddof=1)) == 0:
        return None
    t = abs(differences.mean()) / (spread / math.sqrt(n))
    return student_tail(float(t), n - 1)


def student_tail(t: float, freedom: int) -> float:
    """P(|T| > t) for Student's t with `freedom` f: with x = sqrt(f) tan(u) its density is cos(u)^(f - 1)."""
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(math.pi)
    u = np.linspace(math.atan(t / math.sqrt(freedom)), math.pi / 2, 4001)
    return float(2 * math.exp(log_scale) * np.trapezoid(np.cos(u) ** (freedom - 1), u))
