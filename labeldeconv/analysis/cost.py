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

from labeldeconv.analysis.runs import RunDirectory, run_directories

# Table "complexity of different training methods": time and memory of the encoder phase, what supervises the encoder.
# FNE and WO/LD are GLEM's row with other nodes. PNE and given features train no encoder.
COMPLEXITY = {
    "fne": ("O(|V_train|)", "O(|B|)", "Y"),
    "wo-ld": ("O(|V|)", "O(|B|)", "Y"),
    "ld": ("O(|V|)", "O(|B|)", "Y & A"),
    "glem": ("O(|V|)", "O(|B|)", "Y"),
    "giant": ("O(||A||_0)", "O(|B|)", "A"),
    "joint-gas": ("O(|V| |G(B)|/|B|)", "O(|G(B)|)", "Y & A"),
    "joint-sage": ("O(|V| |G(B)|/|B|)", "O(|G(B)|)", "Y & A"),
}


@dataclass(frozen=True)
class StageCost:
    """One stage: mean seconds and encoder passes over seeds, largest peak memory; None where not recorded."""

    stage: str
    seconds: float
    peak_mib: float | None
    passes: float | None


@dataclass(frozen=True)
class MethodCost:
    """One method with one GNN: means over seeds; `batch` and `subgraph` are |B| and |G(B)|.

    `time`, `memory` and `signals` are the paper's complexities.
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
    runs = run_directories(path)
    cells = {cell: list(found) for cell, found in groupby(sorted(runs, key=lambda r: r.cell), lambda r: r.cell)}
    return Cost(sorted((_method(cell, found) for cell, found in cells.items()), key=lambda m: m.seconds))


def _method(cell: str, runs: Sequence[RunDirectory]) -> MethodCost:
    first, nodes = runs[0], runs[0].graph().num_nodes
    labels = list(dict.fromkeys(label for r in runs for label in r.result["seconds"]))
    stages = [_stage(label, runs, nodes) for label in labels]
    peaks = [s.peak_mib for s in stages if s.peak_mib is not None]
    settings = first.result["settings"]
    phase = settings["joint" if first.method.startswith("joint") else "train"]
    epochs = settings["giant"]["epochs"] if first.method == "giant" else phase["epochs"]
    trained = [s.seconds for s in stages if s.stage.split()[0] == "train"]
    time, memory, signals = COMPLEXITY.get(first.method, (None, None, None))
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
        batch=first.result.get("batch", phase["batch_nodes"] if trained else None),
        subgraph=first.result.get("subgraph", phase["batch_nodes"] if trained else None),
        time=time,
        memory=memory,
        signals=signals,
        stages=stages,
    )


def _stage(label: str, runs: Sequence[RunDirectory], nodes: int) -> StageCost:
    peaks = [peak for r in runs if (peak := r.result["peak_mib"].get(label)) is not None]
    counts = [r.result["encoder_nodes_by_stage"] for r in runs if "encoder_nodes_by_stage" in r.result]
    passes = statistics.fmean(c.get(label, 0) for c in counts) / nodes if counts else None
    seconds = statistics.fmean(r.result["seconds"].get(label, 0.0) for r in runs)
    return StageCost(label, round(seconds, 3), max(peaks, default=None), None if passes is None else round(passes, 3))
