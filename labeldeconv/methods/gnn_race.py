"""The GNN that suits a graph, without knowing it: candidates race on X_PNE, and the validation nodes choose.

    labeldeconv fit DATA --gnn auto

Successive halving: heats of an eighth, a quarter and half of the epochs (20 at least) keep the better half, until two
meet in a final of full trainings over several seeds, whose mean validation scores decide. Every training is the `gnn`
stage of the candidate's own settings, so it resumes where it was killed, and the winner's is the one that the methods
go on with. A heat's learning rate falls to 0 within the heat: a short training, not the start of a long one.

The budget is counted in operations (gnns/workload.py) and not by a clock: the choice is a function of data and
settings, whatever else the machine does. No training here can read labels of test nodes. The race has seeds of its own,
so that all seeds and methods of a comparison share one race and one GNN.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import torch

from labeldeconv.errors import ConfigError
from labeldeconv.gnns.base import GNN
from labeldeconv.gnns.workload import SPEED, Size, epoch_work, training_mib
from labeldeconv.graph.metrics import score_text, score_unit
from labeldeconv.graph.task import Task
from labeldeconv.methods.base import Run
from labeldeconv.progress import logger
from labeldeconv.stages.memory import MIB, total_memory_mib
from labeldeconv.stages.memory_limit import room
from labeldeconv.stages.stage import Artefact, Folder, current_cache, session, stage
from labeldeconv.training.features import Features
from labeldeconv.training.gnn import TrainedGNN

HEATS = (8, 4, 2)  # a heat trains for the epochs divided by this
# Shorter trainings tell of the start only: of 48 epochs on citeseer, heats of 6 and 12 dropped the two that end best.
LEAST_EPOCHS = 20
FINALISTS = 2
SEEDS = (0, 1, 2)  # of the final; the heats have the first one
FEWEST_SEEDS = 2  # where the budget does not allow all
SLOWEST = 0.25  # share of the budget that a candidate may take in the first heat
FLOOR = 12  # full trainings of the cheapest candidate that the budget allows in any case
ROOM = 0.8  # share of the memory that a training may take, by estimate


@dataclass
class Entrant:
    """What is known of a candidate after the race.

    Args:
        name: of the GNN.
        score: on the validation nodes in its last heat, the mean over seeds in the final; None where it never ran.
        epochs: of a training in that heat.
        seeds: trainings in that heat.
        seconds: of all its trainings, as they were when computed.
        dropped: why it was dropped; empty for the GNN that was chosen.
    """

    name: str
    score: float | None = None
    epochs: int = 0
    seeds: int = 0
    seconds: float = 0.0
    dropped: str = ""


@dataclass(frozen=True, eq=False)
class GnnRace(Artefact):
    """The outcome of a race: the GNN, why, and all candidates, the best first; seconds and memory of all of it."""

    chosen: str
    reason: str
    candidates: list[dict[str, Any]]
    seconds: float
    peak_mib: float | None


@dataclass(frozen=True, eq=False)
class Contestant:
    """A candidate in the race: a run with its settings, and the features that all race on."""

    run: Run
    X: Features

    @property
    def name(self) -> str:
        """Of the GNN."""
        return self.run.settings.gnn.name

    @property
    def epochs(self) -> int:
        """Of a full training."""
        return self.run.settings.gnn.epochs

    @property
    def content_key(self) -> str:
        """The key of the full training: data, features, architecture and settings."""
        return self._with(self.epochs, SEEDS[0]).gnn_key(self.X)

    @cached_property
    def model(self) -> GNN:
        """One of it, to ask."""
        with torch.random.fork_rng():
            return self.run.architecture.build(self.X.values.shape[1], self.run.graph.num_classes)

    @cached_property
    def work(self) -> float:
        """Operations of an epoch."""
        return epoch_work(self.model, _size(self.run))

    @property
    def needs_mib(self) -> float:
        """Memory of its training, about; 0 where it is fed by batches."""
        return training_mib(self.model, _size(self.run)) if self.run.settings.gnn.batching == "full" else 0.0

    def train(self, epochs: int, seed: int) -> TrainedGNN:
        """The GNN trained for so many epochs."""
        return self._with(epochs, seed).gnn(self.X, label=f"race: {self.name}")

    def _with(self, epochs: int, seed: int) -> Run:
        old = self.run.settings.gnn
        rise = old.warmup_epochs * epochs // old.epochs
        gnn = old.model_copy(update={"epochs": epochs, "warmup_epochs": rise})
        return replace(self.run, settings=self.run.settings.model_copy(update={"seed": seed, "gnn": gnn}))


def race(runs: Sequence[Run], X: Features, left_out: Mapping[str, str]) -> dict[str, Any]:
    """Race the GNNs of some runs, alike in all else, on features X: what result.json says of it.

    Args:
        left_out: names of GNNs that cannot run here, and why; they are told with the others.
    """
    contestants = [Contestant(run, X) for run in runs]
    most = memory_of(runs[0].device)
    left = room()
    if left is not None:
        most = min(most or left / MIB, left / MIB)
    fits = [c for c in contestants if most is None or c.needs_mib <= ROOM * most]
    heavy = {
        c.name: f"memory: about {c.needs_mib:,.0f} MiB of {most:,.0f} needed; gnn.batching 'neighbors' takes less"
        for c in contestants
        if c not in fits
    }
    if not fits:
        raise ConfigError(f"gnn.name 'auto': no candidate fits the memory: {heavy}")
    settings = runs[0].settings
    outcome = gnn_race.called("gnn race")(fits, settings.gnn.race_minutes, len(runs[0].whole.split.val) > 0)
    logger.info("gnn auto: %s", outcome.reason)
    absent = [asdict(Entrant(name, dropped=why)) for name, why in (heavy | dict(left_out)).items()]
    return {
        "chosen": outcome.chosen,
        "reason": outcome.reason,
        "minutes": settings.gnn.race_minutes,
        "candidates": [*outcome.candidates, *absent],
    }


def memory_of(device: torch.device) -> float | None:
    """MiB of a device, whoever uses them now; None where nobody tells."""
    if device.type == "cpu":
        return total_memory_mib()
    if device.type != "cuda":
        return None
    return torch.cuda.get_device_properties(device).total_memory / MIB


@stage(version=1)
def gnn_race(out: Folder, contestants: list[Contestant], minutes: float, validated: bool) -> GnnRace:
    """The race of GNNs that fit; without validation nodes the first one is taken."""
    with session(current_cache()):
        heats = _Heats(contestants, minutes)
        chosen, reason = heats.run() if validated else heats.unjudged()
    known = sorted(
        heats.known.values(), key=lambda c: (c.name != chosen, -heats.reached[c.name], -heats.task.rank(c.score))
    )
    seconds = sum(c.seconds for c in known)
    return GnnRace(chosen, reason, [asdict(c) for c in known], seconds, max(heats.peaks, default=None))


class _Heats:
    """A race under way: who is left, what is left of the budget, and what is known of each."""

    def __init__(self, contestants: Sequence[Contestant], minutes: float) -> None:
        self.left, self.task = list(contestants), contestants[0].run.task
        self.known = {c.name: Entrant(c.name) for c in contestants}
        self.reached = dict.fromkeys(self.known, 0)  # heats
        self.peaks: list[float] = []
        self.counted: set[str] = set()  # trainings whose seconds are counted: a heat may be as long as the final
        cheapest = min(c.work * c.epochs for c in contestants)
        self.budget = self.rest = max(60 * minutes * SPEED, FLOOR * cheapest)
        self.ended = ""

    def run(self) -> tuple[str, str]:
        """The chosen GNN, and why."""
        self._drop_slow()
        if len(self.known) == 1:
            return self.left[0].name, f"{self.left[0].name}: the only GNN that can run here."
        shares = [s for s in HEATS if s == HEATS[0] or any(_shortened(c, s) > LEAST_EPOCHS for c in self.left)]
        for share in shares:
            if len(self.left) <= FINALISTS or not self._heat(share, share == shares[-1]):
                break
        return self._final()

    def unjudged(self) -> tuple[str, str]:
        """The first GNN, where there are no validation nodes that could choose."""
        first, *others = self.left
        for other in others:
            self.known[other.name].dropped = "no validation nodes"
        return (
            first.name,
            f"{first.name}: the first of the candidates, since there are no validation nodes to choose by.",
        )

    def _drop_slow(self) -> None:
        """Candidates whose first heat alone would take too much of the budget; the cheapest stays."""
        cheapest = min(self.left, key=lambda c: c.work * c.epochs)
        for c in list(self.left):
            takes = c.work * _shortened(c, HEATS[0])
            if c is not cheapest and takes > SLOWEST * self.budget:
                self.left.remove(c)
                told = f"too slow: {_shortened(c, HEATS[0])} epochs would take about {_minutes(takes)}"
                self.known[c.name].dropped = f"{told} of the {_minutes(self.budget)} that the race has"

    def _heat(self, share: int, last: bool) -> bool:
        """One heat, which drops the worse half, the last one all but two; False where the budget does not allow it."""
        cost = sum(c.work * _shortened(c, share) for c in self.left)
        if cost > self.rest:
            self.ended = f" The budget ended there: the next heat would have taken {_minutes(cost)}."
            return False
        self.rest -= cost
        for c in self.left:
            self._train(c, _shortened(c, share), SEEDS[:1])
        ranked = self._ranked()
        keep = FINALISTS if last else max(FINALISTS, math.ceil(len(ranked) / 2))
        for place, c in enumerate(ranked[keep:], start=keep + 1):
            self.known[c.name].dropped = f"place {place} of {len(ranked)} after {_shortened(c, share)} epochs"
        self.left = ranked[:keep]
        return True

    def _final(self) -> tuple[str, str]:
        """Full trainings of the last two over several seeds, as many as the budget allows."""
        one = sum(c.work * c.epochs for c in self.left)
        seeds = min(len(SEEDS), int(self.rest / one))
        if len(self.left) == FINALISTS and seeds >= FEWEST_SEEDS:
            for c in self.left:
                self._train(c, c.epochs, SEEDS[:seeds])
        elif not self.ended and len(self.left) > 1:
            self.ended = f" The budget did not allow a final: two seeds would have taken {_minutes(2 * one)}."
        ranked = self._ranked()
        first, *others = ranked
        for place, c in enumerate(others, start=2):
            mine = self.known[c.name]
            mine.dropped = f"place {place} of {len(ranked)} after {mine.epochs} epochs"
            mine.dropped += f", mean of {mine.seeds} seeds" if mine.seeds > 1 else ""
        return first.name, self._reason(first, others)

    def _train(self, c: Contestant, epochs: int, seeds: Sequence[int]) -> None:
        trained = [c.train(epochs, seed) for seed in seeds]
        mine = self.known[c.name]
        mine.epochs, mine.seeds = epochs, len(seeds)
        mine.score = _mean([t.val for t in trained], self.task)
        new = {t.made.key: t.made.seconds for t in trained if t.made.key not in self.counted}
        self.counted |= set(new)
        mine.seconds = round(mine.seconds + sum(new.values()), 3)
        self.peaks += [t.made.peak_mib for t in trained if t.made.peak_mib is not None]
        self.reached[c.name] += 1

    def _ranked(self) -> list[Contestant]:
        """Those left, the best first; equal scores keep their order."""
        return sorted(self.left, key=lambda c: -self.task.rank(self.known[c.name].score))

    def _reason(self, first: Contestant, others: Sequence[Contestant]) -> str:
        """The outcome in plain words."""
        mine, title, unit = self.known[first.name], self.task.metric, score_unit(self.task.metric).strip(" ()")
        raced = sum(bool(reached) for reached in self.reached.values())
        if not mine.epochs:
            return f"{first.name}: the budget allowed no race, so the first of the candidates was taken."
        told = f"{first.name} has the best {title} on the validation nodes, {score_text(title, mine.score)}{unit}"
        if others:
            second = self.known[others[0].name]
            told += f" against {score_text(title, second.score)}{unit} of {second.name}"
        told += f", after {mine.epochs} epochs"
        told += f" (means of {mine.seeds} seeds)." if mine.seeds > 1 else " (one seed)."
        more = raced - 1 - len(others)
        told += f" {more} others were behind in shorter trainings." if more > 0 else ""
        return told + self.ended


def _size(run: Run) -> Size:
    graph = run.whole
    entries = graph.num_nodes + 2 * graph.num_edges
    return Size(graph.num_nodes, entries, len(graph.split.train), len(graph.split.val))


def _shortened(c: Contestant, share: int) -> int:
    """Epochs of a heat."""
    return max(min(LEAST_EPOCHS, c.epochs), c.epochs // share)


def _mean(scores: Sequence[float], task: Task) -> float | None:
    """The mean of scores; one that is not a number counts as 0, the worst share, and leaves a regression without."""
    if task.kind == "regression" and any(map(math.isnan, scores)):
        return None
    return statistics.fmean(0.0 if math.isnan(score) else score for score in scores)


def _minutes(work: float) -> str:
    return f"{work / SPEED / 60:.1f} minutes"
