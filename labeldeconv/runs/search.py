"""search: settings that are tried one after the other, the next by what the validation scores of the last ones say.

    search("planted", {"train.lr": Range(1e-5, 1e-3, log=True), "gnn.hidden": Choices((64, 128, 256))}, trials=20)
    labeldeconv sweep planted --search train.lr=1e-5..1e-3:log --search gnn.hidden=64,128,256 --trials 20

Optuna proposes (TPE) and is touched in this file alone. A trial is a run like those of `compare`, so it shares all
stages that it can. Its GNN's validation score is watched while it trains, and a trial that stays below the median of
the others at the same epoch is given up. No test label plays a part: what is compared is the validation score.

The folder of a search has what was tried (`search.db`), the runs and their table; the same call goes on from there.
"""

from __future__ import annotations

import json
import shlex
import shutil
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from labeldeconv.errors import ConfigError, DataError, LabelDeconvError, MissingExtra
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.progress import logger
from labeldeconv.runs.asked import Parts, dotted, name_of, settings_from
from labeldeconv.runs.compare import REFERENCE, Comparison, PlannedRow, cells_of, row_of, write_tables
from labeldeconv.runs.directory import FORMAT, SEARCH, RunDirectory, begin_comparison, check_writable, claimed
from labeldeconv.runs.fit import fit_graph
from labeldeconv.runs.preparation import SHORT_KEY, plain_name
from labeldeconv.runs.result import Result
from labeldeconv.settings.models import Config
from labeldeconv.settings.reading import SHORT_NAMES, label_settings, load_config
from labeldeconv.settings.space import Choices, Part
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.keys import digest, token
from labeldeconv.stages.stage import session
from labeldeconv.stages.watch import heard_by

CURVE = "gnn/val"  # the validation score of the last GNN by epoch
REPORTS = 8  # points of that curve that are compared: each costs some 70 ms of database
WARM_UP = 0.25  # share of the epochs before which no trial is given up: scores of the first ones say little
STARTUP = 4  # trials before one is given up: a median of fewer is chance
DIGITS = 4  # of a number that is tried: a command line that a person can read


@dataclass(frozen=True)
class SearchTrial:
    """One choice of settings.

    Args:
        number: from 0, in the order in which they were tried.
        settings: those that were searched, by dotted names.
        state: 'given up' below the median of the others; 'failed' with an error.
        val: mean validation score over the seeds; None unless it is complete.
        seconds: by the clock.
    """

    number: int
    settings: dict[str, Any]
    state: Literal["complete", "given up", "failed"]
    val: float | None
    seconds: float


@dataclass(frozen=True)
class SearchResult:
    """All trials of a search; `command` fits with the settings of the best, `run` has the runs and their table."""

    data: str
    metric: str
    trials: list[SearchTrial]
    best: SearchTrial
    command: str
    run: Path

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {"format": FORMAT, **asdict(self), "run": str(self.run)}


def search(
    data: str | Path | AttributedGraph,
    space: Mapping[str, Part],
    method: Any = REFERENCE,
    encoder: Any = None,
    gnn: Any = None,
    alpha: float | str | None = None,
    hops: int | str | None = None,
    seeds: int = 1,
    trials: int | None = None,
    minutes: float | None = None,
    out: str | Path | None = None,
    cache: str | Path | None = None,
    config: Config | str | Path | None = None,
    **settings: Any,
) -> SearchResult:
    """Search settings by validation score.

    Args:
        space: dotted names of settings to what may be tried of them.
        seeds: runs of a trial, whose mean counts.
        trials: most trials in all, those of earlier calls included; 20 where neither this nor `minutes` is given.
        minutes: no trial begins after so many minutes of trials in all.

    The other words are those of `fit`.
    """
    given = {**label_settings(alpha, hops), **dotted(settings)}
    asked = settings_from(data, None, encoder, None, None, config, given)
    parts = Parts.of(data, None, encoder)
    place, kept = Path(out) if out else None, Cache(Path(cache)) if cache else None
    return search_config(asked, space, method, gnn or asked.gnn.name, trials, minutes, seeds, place, parts, kept)


def search_config(
    config: Config,
    space: Mapping[str, Part],
    method: Any,
    gnn: Any,
    trials: int | None = None,
    minutes: float | None = None,
    seeds: int = 1,
    out: Path | None = None,
    parts: Parts | None = None,
    cache: Cache | None = None,
) -> SearchResult:
    """The same from settings; what cannot run is told before anything runs."""
    _optuna()
    space = {SHORT_NAMES.get(name, name): part for name, part in space.items()}
    if not space:
        raise ConfigError("search: at least one setting to search expected, such as train.lr=1e-5..1e-3:log")
    trials = 20 if trials is None and minutes is None else trials
    check_writable(out or Path("runs") / "run")

    def cell(varied: Mapping[str, Any]) -> PlannedRow:
        with session(cache):
            (made,) = cells_of(config, [method], [gnn], parts or Parts(), {name: [varied[name]] for name in varied})
        return made

    middle = {name: part.ends[0] for name, part in space.items()}
    for name, part in space.items():
        for value in part.ends:
            first = cell({**middle, name: value})
    asked = [token(config), first.graph.content_key, repr(sorted(space.items())), name_of(method), name_of(gnn), seeds]
    identity = digest(asked)
    out = out or Path("runs") / f"{plain_name(first.graph.name)}-search-{identity[:SHORT_KEY]}"
    with claimed(out):
        held = _Study(out, identity, space, _defaults(cell({}).settings, space), config.seed)
        runs = _Runs(cell, seeds, out, cache)
        for trial in held.finished():
            if trial.state == "complete":
                runs.opened(trial.settings)
        while not held.spent(trials, minutes):
            held.step(partial(_tried, runs=runs, seeds=seeds))
            best = held.best()
            told = "nothing yet" if best is None else f"{best.val:.4f} with {best.settings}"
            logger.info("search: %d trials, best validation score %s", len(held.finished()), told)
        if (best := held.best()) is None:
            raise LabelDeconvError(f"{out}: no trial was completed; {held.why() or 'more trials or minutes expected'}")
        table = runs.table()
        command = fit_command(config, name_of(method), name_of(gnn), best.settings)
        return SearchResult(table.data, table.metric, held.finished(), best, command, out)


def _tried(varied: dict[str, Any], listen: _Listener, runs: _Runs, seeds: int) -> float:
    """The mean validation score of a trial over the seeds; the first seed is watched, and given up where it lags."""
    results = [runs.fitted(varied, 0, listen), *(runs.fitted(varied, seed) for seed in range(1, seeds))]
    runs.add(varied, results)
    return statistics.fmean(result.val for result in results)


class _Runs:
    """The runs of the trials in the folder of a search, and their table."""

    def __init__(
        self, cell: Callable[[Mapping[str, Any]], PlannedRow], seeds: int, out: Path, cache: Cache | None
    ) -> None:
        self.cell, self.seeds, self.out, self.cache = cell, seeds, out, cache
        self.rows: dict[str, Any] = {}
        self.results: list[Result] = []
        self.graph: AttributedGraph | None = None

    def fitted(self, varied: dict[str, Any], seed: int, listen: _Listener | None = None) -> Result:
        """One run of a trial."""
        made = self.cell(varied)
        name = made.name(seed)
        if listen is not None:
            listen.epochs = made.settings.gnn.epochs
        settings = load_config(made.settings, {"seed": seed})
        try:
            with heard_by(listen or (lambda *_: None)):
                return fit_graph(settings, made.graph, made.parts, self.out / name, self.cache, warnings=made.warnings)
        except _optuna().TrialPruned:
            shutil.rmtree(self.out / f"{name}.partial", ignore_errors=True)
            raise

    def opened(self, varied: dict[str, Any]) -> None:
        """Take the runs of a trial of an earlier call into the table; made again, from the cache, if they are gone."""
        made, results = self.cell(varied), []
        for seed in range(self.seeds):
            try:
                results.append(Result.of(RunDirectory.open(self.out / made.name(seed))))
            except LabelDeconvError:
                results.append(self.fitted(varied, seed))
        self.add(varied, results)

    def add(self, varied: dict[str, Any], results: list[Result]) -> None:
        """A row of the table, which is written at once."""
        made = self.cell(varied)
        self.results, self.graph = results, made.graph
        self.rows[repr(varied)] = row_of(made, results)
        write_tables(self.table())

    def table(self) -> Comparison:
        """The complete trials as `sweep` has them, the best by validation score first."""
        first = self.results[0]
        sign = -1 if first.higher_is_better else 1
        rows = sorted(self.rows.values(), key=lambda row: sign * row.val.mean)
        name = self.graph.name if self.graph is not None else ""
        return Comparison(name, first.metric, first.higher_is_better, rows, self.out)


class _Study:
    """Optuna's study of a search, in the folder of the search."""

    def __init__(
        self, out: Path, identity: str, space: Mapping[str, Part], first: Mapping[str, Any], seed: int
    ) -> None:
        optuna = self.optuna = _optuna()
        if not (out / SEARCH).is_file():
            begin_comparison(out, [])
        storage = optuna.storages.RDBStorage(f"sqlite:///{(out / SEARCH).absolute()}")
        self.space, self.states = space, optuna.trial.TrialState
        pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=round(WARM_UP * REPORTS))
        self.study = optuna.create_study(
            storage=storage, study_name="search", direction="maximize", pruner=pruner, load_if_exists=True
        )
        before = self.study.user_attrs.get("identity")
        if before not in (None, identity):
            raise DataError(
                f"{out}: holds another search, of other data, settings or --search; --out names another folder"
            )
        if before is None:
            self.study.set_user_attr("identity", identity)
            self.study.enqueue_trial(dict(first))  # what would be taken without a search
        for trial in self.study.get_trials(states=(self.states.RUNNING,)):  # killed: it goes on from its checkpoint
            self.study.tell(trial.number, state=self.states.FAIL)
            self.study.enqueue_trial(trial.params)
        tried = len(self.study.get_trials(deepcopy=False))
        self.study.sampler = optuna.samplers.TPESampler(
            seed=seed + tried, n_startup_trials=STARTUP + 2, multivariate=True
        )

    def step(self, run: Callable[[dict[str, Any], _Listener], float]) -> None:
        """One more trial."""
        trial = self.study.ask()
        varied = {name: self._asked(trial, name, part) for name, part in self.space.items()}
        trial.set_user_attr("settings", varied)
        logger.info("trial %d: %s", trial.number, varied)
        try:
            self.study.tell(trial, run(varied, _Listener(trial, self.optuna)))
        except self.optuna.TrialPruned:
            self.study.tell(trial, state=self.states.PRUNED)
        except LabelDeconvError as error:
            logger.warning("trial %d failed: %s", trial.number, error)
            trial.set_user_attr("error", str(error))
            self.study.tell(trial, state=self.states.FAIL)

    @staticmethod
    def _asked(trial: Any, name: str, part: Part) -> Any:
        if isinstance(part, Choices):  # by position: Optuna keeps numbers, texts and truth values alone
            return part.values[trial.suggest_categorical(name, range(len(part.values)))]
        if part.whole:
            return trial.suggest_int(name, part.low, part.high, log=part.log)
        value = float(f"{trial.suggest_float(name, part.low, part.high, log=part.log):.{DIGITS}g}")
        return min(max(value, part.low), part.high)

    def finished(self) -> list[SearchTrial]:
        """Trials that are over, without those that were killed."""
        named: dict[Any, Literal["complete", "given up", "failed"]] = {
            self.states.COMPLETE: "complete", self.states.PRUNED: "given up", self.states.FAIL: "failed",
        }  # fmt: skip
        found = [t for t in self.study.get_trials(deepcopy=False) if t.state in named]
        found = [t for t in found if t.state != self.states.FAIL or "error" in t.user_attrs]
        return [
            SearchTrial(
                number,
                t.user_attrs["settings"],
                named[t.state],
                t.value if t.state == self.states.COMPLETE else None,
                round(t.duration.total_seconds(), 1),
            )
            for number, t in enumerate(found)
        ]

    def best(self) -> SearchTrial | None:
        """The first of the best by validation score."""
        complete = [trial for trial in self.finished() if trial.val is not None]
        return max(complete, key=lambda trial: trial.val or 0.0, default=None)

    def spent(self, trials: int | None, minutes: float | None) -> bool:
        """Whether the budget is used up, by all calls together."""
        over = self.finished()
        enough = trials is not None and len(over) >= trials
        return enough or (minutes is not None and sum(trial.seconds for trial in over) >= 60 * minutes)

    def why(self) -> str | None:
        """The last error of a trial."""
        errors = [t.user_attrs["error"] for t in self.study.get_trials(deepcopy=False) if "error" in t.user_attrs]
        return errors[-1] if errors else None


class _Listener:
    """Reports the curve of a trial to Optuna, and gives the trial up where Optuna says so.

    The axis is the share of the epochs in steps of 1 / REPORTS, so that trials of different lengths can be compared;
    every point is the best score so far, which is what a run keeps.
    """

    def __init__(self, trial: Any, optuna: Any) -> None:
        self.trial, self.optuna, self.epochs = trial, optuna, 0  # epochs: of the trial's settings, known before it runs
        self.best, self.told = float("-inf"), 0

    def __call__(self, name: str, at: int, value: float) -> None:
        if name != CURVE or not self.epochs:
            return
        self.best = max(self.best, value)
        point = at * REPORTS // self.epochs
        if point > self.told:
            self.told = point
            self.trial.report(self.best, point)
            if self.trial.should_prune():
                raise self.optuna.TrialPruned


def fit_command(config: Config, method: str, gnn: str, varied: Mapping[str, Any]) -> str:
    """A `labeldeconv fit` with what was said and what was found."""
    said = dict(_flat(config.model_dump(exclude_unset=True)))
    said |= {"method": method, "gnn.name": gnn, **varied}
    words = ["labeldeconv", "fit", str(said.pop("data", config.data))]
    for name, option in (("method", "--method"), ("encoder.name", "--encoder"), ("gnn.name", "--gnn")):
        words += [option, str(said.pop(name))] if name in said else []
    for name, value in said.items():
        if name != "log":
            words += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
    return shlex.join(words)


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Settings by their dotted names."""
    out: list[tuple[str, Any]] = []
    for name, value in values.items():
        out += _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [(f"{prefix}{name}", value)]
    return out


def _defaults(settings: Config, space: Mapping[str, Part]) -> dict[str, Any]:
    """What the settings have of what is searched, as Optuna names it, where it can be tried."""
    now = dict(_flat(settings.model_dump()))
    held = {name: part for name, part in space.items() if part.holds(now.get(name))}
    return {n: p.values.index(now[n]) if isinstance(p, Choices) else now[n] for n, p in held.items()}


def _optuna() -> Any:
    """Optuna, which says what it does to no one: the log is ours."""
    try:
        import optuna
    except ImportError:
        raise MissingExtra("sweep --search", "optuna") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
