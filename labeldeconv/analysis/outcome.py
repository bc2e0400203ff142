"""The learning bias after training, from run directories: psi alone against the GNN, targets, and test scores.

A psi(F) that scores as the GNN does has nothing to gain from the convolution; one far below it needs it. The targets of
LD and WO/LD differ by || Y(gamma) - Y ||, at the final gamma. Score differences are paired by seed: 'ld' minus 'wo-ld'
is what the inverse labels brought, a joint method minus 'wo-ld' how far label-only training was from joint training.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from labeldeconv.analysis.known import known_architecture
from labeldeconv.errors import DataError
from labeldeconv.graph.metrics import NUMBERS
from labeldeconv.graph.task import Task
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.runs.spread import paired_p
from labeldeconv.training.encoder import Head, LinearHead, PsiHead, psi_logits

NEAR = 0.1  # standard deviations: numbers no further apart agree
PAIRS = (
    ("ld", "wo-ld"),
    ("ld", "fne"),
    ("joint-gas", "wo-ld"),
    ("joint-sage", "wo-ld"),
    ("joint-gas", "ld"),
    ("joint-sage", "ld"),
)


@dataclass(frozen=True)
class RunOutcome:
    """One run: test scores of the GNN and of psi on the encoder alone, and how its targets differ from Y.

    Args:
        psi_test: None where the method has no psi, or its GNN is not known here.
        agreement: share of nodes for which psi and the GNN name the same class (multi-label: the same labels; numbers:
            less than a tenth of a standard deviation of the train labels apart).
        target_distance: || Y(gamma) - Y || / || Y || at the final gamma; None without inverse labels.
    """

    run: str
    method: str
    gnn: str
    seed: int
    gnn_test: float
    psi_test: float | None
    agreement: float | None
    target_distance: float | None


@dataclass(frozen=True)
class Difference:
    """Mean test score of method `a` minus that of `b` over `seeds` common seeds; `setting` is the rest of the name."""

    a: str
    b: str
    setting: str
    points: float
    seeds: int
    p_value: float | None


@dataclass(frozen=True)
class Outcome:
    """All runs, the differences between their methods, and a sentence."""

    metric: str
    runs: list[RunOutcome]
    differences: list[Difference]
    verdict: str


def outcome(runs: Sequence[RunDirectory]) -> Outcome:
    """What came of the runs of a comparison, or of one run."""
    differences, metric = _differences(runs), runs[0].result["metric"]
    return Outcome(metric, [_run(run) for run in runs], differences, _verdict(differences, metric))


def _run(run: RunDirectory) -> RunOutcome:
    psi_test, agreement = _psi(run)
    distance = None
    if run.gamma is not None:
        graph, K = run.labelled_graph()
        inverse, Y = (run.targets(K, Task.of(graph), np.arange(len(K)), alpha) for alpha in (1.0, 0.0))
        distance = round(float(np.linalg.norm(inverse - Y) / max(float(np.linalg.norm(Y)), 1e-300)), 4)
    names = run.name, run.method, run.gnn, run.seed
    return RunOutcome(*names, run.result["test"], psi_test, agreement, distance)


def _psi(run: RunDirectory) -> tuple[float | None, float | None]:
    """Test score of psi on the run's features, and its agreement with the GNN; None where there is no psi to run."""
    weights, graph = run.psi_weights, run.graph
    try:
        head = None if weights is None else _head(run, weights, graph.num_classes)
        if weights is None or head is None:
            return None, None
        alone = psi_logits(head, weights, run.features)
    except (SafetensorError, OSError, RuntimeError) as error:  # the last: weights of other shapes
        told = str(error).splitlines()[0]
        raise DataError(f"{weights}: not the weights of psi of {run.gnn}: {told}") from None
    whole = np.asarray(run.logits)
    same = {
        "multiclass": lambda: alone.argmax(1) == whole.argmax(1),
        "multilabel": lambda: (alone > 0) == (whole > 0),
        "regression": lambda: np.abs(alone - whole) < NEAR,
    }[graph.task]()
    test = graph.split.test
    return run.task.score(alone[test], graph.labels[test]), round(float(same.mean()), 4)


def _head(run: RunDirectory, weights: Path, num_classes: int) -> Head | None:
    """The head that a run's weights are of: a linear layer (FNE, GLEM), or psi of its GNN; None if it is not known."""
    with safe_open(weights, framework="pt") as file:
        if set(file.keys()) == {"weight", "bias"}:
            return LinearHead(num_classes)
    architecture = known_architecture(run)
    norm = "batch" if run.method.startswith("joint") else run.settings["train"]["psi_norm"]  # joint: the GNN itself
    return None if architecture is None else PsiHead(architecture, num_classes, norm)


def _differences(runs: Sequence[RunDirectory]) -> list[Difference]:
    scores: dict[str, dict[str, dict[int, float]]] = {}
    for run in runs:
        rest = run.cell.removeprefix(f"{run.method}-")
        scores.setdefault(rest, {}).setdefault(run.method, {})[run.seed] = run.result["test"]
    out = []
    for setting, methods in scores.items():
        for a, b in PAIRS:
            common = sorted(methods.get(a, {}).keys() & methods.get(b, {}).keys())
            if common:
                first, second = ([methods[m][seed] for seed in common] for m in (a, b))
                points = statistics.fmean(first) - statistics.fmean(second)
                out.append(Difference(a, b, setting, round(points, 6), len(common), paired_p(first, second)))
    return out


def _verdict(differences: Sequence[Difference], metric: str) -> str:
    told = [d for d in differences if (d.a, d.b) == PAIRS[0]]
    if not told:
        return (
            "What LD brought cannot be told: runs of both ld and wo-ld expected, as `labeldeconv compare` makes them."
        )
    parts = []
    for d in told:
        sure = "one seed, so it may be chance" if d.seeds == 1 else f"{d.seeds} seeds"
        if d.p_value is not None:
            sure += f", p = {d.p_value:.3f}"
        gap = f"{d.points:+.4g} {metric}" if metric in NUMBERS else f"{100 * d.points:+.2f} points"
        parts.append(f"{gap} ({d.setting}; {sure})")
    return f"LD against WO/LD: {', '.join(parts)}."
