"""ensemble: a mean of the predictions of finished runs, chosen greedily on the validation nodes (Caruana et al., 2004).

    labeldeconv ensemble runs/a runs/b runs/comparison --out runs/together

Starting from nothing, the run whose predictions make the mean's validation score best is added again and again, with
replacement; the mean with the best score of all is kept. Runs may differ in method, GNN, encoder and seed, but must be
of the same graph with the same split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeldeconv.errors import DataError
from labeldeconv.graph.task import Task
from labeldeconv.runs.directory import RunDirectory, is_run, open_runs
from labeldeconv.stages.files import write_json

ROUNDS = 50  # additions at most; what the last ones change is below a per cent
PARTS = ("edges", "labels", "split")  # of the graph that all runs must share


@dataclass(frozen=True)
class Member:
    """A run in the ensemble: its share of the mean and its own scores."""

    run: str
    weight: float
    val: float
    test: float


@dataclass(frozen=True)
class Ensemble:
    """The members by weight, the scores of their mean, those of the best single run, and logits (n, c)."""

    metric: str
    val: float
    test: float
    best: Member
    members: list[Member]
    logits: np.ndarray = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """What ensemble.json and `--json` hold."""
        return {key: value for key, value in asdict(self).items() if key != "logits"}


def ensemble(paths: Sequence[str | Path], out: Path | None = None, rounds: int = ROUNDS) -> Ensemble:
    """The best mean of the predictions of runs and of runs of comparisons; `out` gets ensemble.json and logits.npy."""
    runs = [run for path in paths for run in open_runs(path)]
    _same_graph(runs)
    graph, task = runs[0].graph, runs[0].task
    val, test = graph.split.val, graph.split.test
    if not len(val):
        raise DataError(f"{runs[0].path}: validation nodes expected, since they choose the members")
    P = np.stack([task.probabilities(torch.from_numpy(np.array(run.logits, np.float32))).numpy() for run in runs])
    scores = [tuple(task.score(log_odds(p[ids], task), graph.labels[ids]) for ids in (val, test)) for p in P]
    chosen = greedy(P[:, val], graph.labels[val], task, rounds)
    counts = Counter(chosen)
    members = [Member(str(runs[i].path), k / len(chosen), *scores[i]) for i, k in counts.most_common()]
    mean = P[chosen].mean(0)
    first = max(range(len(runs)), key=lambda i: task.rank(scores[i][0]))
    found = Ensemble(
        metric=task.metric,
        val=task.score(log_odds(mean[val], task), graph.labels[val]),
        test=task.score(log_odds(mean[test], task), graph.labels[test]),
        best=Member(str(runs[first].path), 1.0, *scores[first]),
        members=members,
        logits=_logits(mean, task),
    )
    if out is not None:
        _write(found, out)
    return found


def greedy(P: np.ndarray, labels: np.ndarray, task: Task, rounds: int = ROUNDS) -> list[int]:
    """Members (k,), some several times, whose mean of P (r, m, c) scores best on labels (m,) or (m, c).

    Ties go to the run that comes first, and to the smaller ensemble.
    """
    chosen, total = list[int](), np.zeros(P.shape[1:])
    best, kept = -np.inf, list[int]()
    for _ in range(rounds):
        sign = 1 if task.higher_is_better else -1
        scores = [sign * task.score(log_odds((total + p) / (len(chosen) + 1), task), labels) for p in P]
        i = int(np.nanargmax(scores))
        chosen, total = [*chosen, i], total + P[i]
        if scores[i] > best:
            best, kept = scores[i], chosen
    return kept


def _logits(P: np.ndarray, task: Task) -> np.ndarray:
    """Probabilities (n, c) as logits whose softmax, or sigmoid, they are; predicted numbers as they are."""
    if task.kind == "regression":
        return P.astype(np.float32)
    return log_odds(P.astype(np.float64).clip(1e-12, 1 - 1e-12), task).astype(np.float32)


def log_odds(P: np.ndarray, task: Task) -> np.ndarray:
    """Probabilities (m, c) as logits in float64, in which those that differ still do; perhaps infinite.

    Predicted numbers stay what they are.
    """
    P = P.astype(np.float64)
    if task.kind == "regression":
        return P
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(P) if task.kind == "multiclass" else np.log(P) - np.log1p(-P))


def _same_graph(runs: Sequence[RunDirectory]) -> None:
    first = runs[0]
    for run in runs[1:]:
        for part in PARTS:
            if run.graph.key_of(part) != first.graph.key_of(part):
                raise DataError(f"{run.path}: not the same {part} as in {first.path}; runs of one graph expected")
        if run.task.metric != first.task.metric:
            told = f"judged by {run.task.metric}, and {first.path} by {first.task.metric}"
            raise DataError(f"{run.path}: {told}; runs of one metric expected")


def _write(found: Ensemble, out: Path) -> None:
    if is_run(out):
        raise DataError(f"{out}: a run or a comparison is there; another folder expected")
    out.mkdir(parents=True, exist_ok=True)
    np.save(out / "logits.npy", found.logits)
    write_json(out / "ensemble.json", found.to_dict())
