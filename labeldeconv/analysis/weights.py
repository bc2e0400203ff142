"""The weight figure: gamma_i of the inverse labels (eqn:inv_label) over the training steps of a run or a comparison.

    labeldeconv analyze gamma RUN

The paper's two observations are numbers here. "Small hops weigh most" is `mean_hop`, sum_i i gamma_i. "gamma does not
collapse to gamma_0 = 1" is `effective_hops`, exp of the entropy of gamma: 1 where one hop has all weight, N + 1 where
all weigh the same.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labeldeconv.errors import DataError
from labeldeconv.runs.directory import RunDirectory, open_runs


@dataclass(frozen=True)
class GammaCurve:
    """gamma of one run: `gamma[s]` (N + 1 numbers) after optimiser step `steps[s]` in epoch `epochs[s]`."""

    run: str
    method: str
    gnn: str
    seed: int
    steps: list[int]
    epochs: list[int]
    gamma: list[list[float]]

    @property
    def final(self) -> list[float]:
        """gamma (N + 1,) at the end."""
        return self.gamma[-1]

    @property
    def mean_hop(self) -> float:
        """sum_i i gamma_i at the end."""
        return round(float(np.dot(np.arange(len(self.final)), self.final)), 4)

    @property
    def effective_hops(self) -> float:
        """exp of the entropy of gamma at the end."""
        g = np.clip(self.final, 1e-12, None)
        return round(float(np.exp(-(g * np.log(g)).sum())), 4)


@dataclass(frozen=True)
class GammaCurves:
    """The curves of all runs that have inverse labels."""

    curves: list[GammaCurve]

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        told = [
            (c, {"final": c.final, "mean_hop": c.mean_hop, "effective_hops": c.effective_hops}) for c in self.curves
        ]
        return {"curves": [{**asdict(c), **more} for c, more in told]}

    def rows(self) -> list[dict[str, Any]]:
        """One row per run and step: gamma_0, gamma_1, ..."""
        return [
            {"run": c.run, "method": c.method, "gnn": c.gnn, "seed": c.seed, "step": step, "epoch": epoch}
            | {f"gamma_{i}": g for i, g in enumerate(gamma)}
            for c in self.curves
            for step, epoch, gamma in zip(c.steps, c.epochs, c.gamma, strict=True)
        ]


def gamma_curves(run: str | Path) -> GammaCurves:
    """gamma over the steps of a run, or of every run with inverse labels of a comparison."""
    runs = open_runs(run)
    curves = [curve for r in runs if (curve := gamma_curve(r))]
    if not curves:
        methods = ", ".join(sorted({r.method for r in runs}))
        raise DataError(f"{run}: no gamma; only runs of 'ld' with alpha above 0 have inverse labels (here: {methods})")
    return GammaCurves(curves)


def gamma_curve(run: RunDirectory) -> GammaCurve | None:
    """gamma over the steps of one run; None where it has no inverse labels."""
    rows = [row for row in run.steps() if row.get("gamma")]
    if not rows:
        return None
    columns = ([row[key] for row in rows] for key in ("step", "epoch", "gamma"))
    return GammaCurve(run.name, run.method, run.gnn, run.seed, *columns)
