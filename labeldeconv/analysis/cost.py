"""What runs cost: the runtime table (time per epoch and in all) and the complexity table of the paper, measured.

    labeldeconv analyze cost RUN|COMPARISON

Seconds and memory are what a stage took when it was computed, shared ones included: what the method alone would take.
A pass is one encoding of as many nodes as the graph has; a training epoch over all nodes counts as one.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from labeldeconv.methods.base import METHODS
from labeldeconv.runs.directory import RunDirectory, open_runs


@dataclass(frozen=True)
class StageCost:
    """One stage: mean seconds and encoder passes over seeds, largest peak memory; None where the system tells none."""

    stage: str
    seconds: float
    peak_mib: float | None
    passes: float


@dataclass(frozen=True)
class MethodCost:
    """One method with one GNN: means over seeds; `batch` and `subgraph` are |B| and |G(B)|.

    `time`, `memory` and `signals` are the paper's complexities, None where no encoder is trained or the method is not
    known here.
    """

    run: str
    method: str
    gnn: str
    seeds: int
    metric: str
    test: float
    seconds: float
    seconds_per_epoch: float | None
    peak_mib: float | None
    encoder_passes: float
    batch: float | None
    subgraph: float | None
    time: str | None
    memory: str | None
    signals: str | None
    stages: list[StageCost]


@dataclass(frozen=True)
class Cost:
    """All methods of a comparison, or the one of a run."""

    methods: list[MethodCost]

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return asdict(self)

    def rows(self) -> list[dict[str, Any]]:
        """Per method one row for every stage and one, stage 'all', for the whole."""
        out: list[dict[str, Any]] = []
        for m in self.methods:
            whole = {k: v for k, v in asdict(m).items() if k != "stages"}
            whole["passes"] = whole.pop("encoder_passes")
            names = {k: whole.pop(k) for k in ("run", "method", "gnn")}
            out += [{**names, **asdict(stage)} for stage in m.stages]
            out.append({**names, "stage": "all", **whole})
        return out


def cost(path: str | Path) -> Cost:
    """Costs of a run, or of every method of a comparison."""
    runs = open_runs(path)
    cells = {cell: list(found) for cell, found in groupby(sorted(runs, key=lambda r: r.cell), lambda r: r.cell)}
    return Cost(sorted((_method(cell, found) for cell, found in cells.items()), key=lambda m: m.seconds))


def _method(cell: str, runs: Sequence[RunDirectory]) -> MethodCost:
    first, nodes = runs[0], runs[0].graph.num_nodes
    labels = list(dict.fromkeys(label for r in runs for label in r.result["seconds"]))
    stages = [_stage(label, runs, nodes) for label in labels]
    peaks = [s.peak_mib for s in stages if s.peak_mib is not None]
    method, config = METHODS.get(first.method), first.config()
    epochs = method.epochs(config) if method else config.train.epochs
    theory = method.complexity if method else None
    trained = [s.seconds for s in stages if s.stage.split()[0] == "train"]
    return MethodCost(
        run=cell,
        method=first.method,
        gnn=first.gnn,
        seeds=len(runs),
        metric=first.result["metric"],
        test=statistics.fmean(r.result["test"] for r in runs),
        seconds=round(sum(s.seconds for s in stages), 3),
        seconds_per_epoch=round(statistics.fmean(trained) / epochs, 3) if trained else None,
        peak_mib=max(peaks, default=None),
        encoder_passes=round(statistics.fmean(r.result["encoder_nodes"] for r in runs) / nodes, 3),
        batch=first.result["batch"],
        subgraph=first.result["subgraph"],
        time=theory.time if theory else None,
        memory=theory.memory if theory else None,
        signals=theory.signals if theory else None,
        stages=stages,
    )


def _stage(label: str, runs: Sequence[RunDirectory], nodes: int) -> StageCost:
    peaks = [peak for r in runs if (peak := r.result["peak_mib"].get(label)) is not None]
    passes = statistics.fmean(r.result["encoder_nodes_by_stage"].get(label, 0) for r in runs) / nodes
    seconds = statistics.fmean(r.result["seconds"].get(label, 0.0) for r in runs)
    return StageCost(label, round(seconds, 3), max(peaks, default=None), round(passes, 3))
