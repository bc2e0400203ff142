"""Metrics to TensorBoard, Weights & Biases or MLflow while a run goes on: the only file that touches these packages.

    labeldeconv fit DATA --log tensorboard        # then: tensorboard --logdir runs

Training loops hand every row of steps.jsonl and epochs.jsonl to a `Watch` as they write it. Rows that a resumed stage
or a stage from the cache already has are handed over first, so that a log is complete whatever was computed when. A log
belongs to one call of `run`: TensorBoard's folder is made anew, Weights & Biases gets a new run. MLflow's run is found
again by its folder and settings, and gets the rows that it does not have.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, Protocol

from labeldeconv.errors import MissingExtra

LogKind = Literal["none", "tensorboard", "wandb", "mlflow"]
Row = Mapping[str, Any]


class Log(Protocol):
    """Somewhere that metrics go."""

    def add(self, values: Mapping[str, float], axis: str, at: int) -> None:
        """Numbers by name at one point of an axis."""
        ...

    def close(self, error: BaseException | None) -> None:
        """Write everything; `error` is what ended the run, None where it is finished."""
        ...


class Watch:
    """Takes the rows of one stage: `label` names its curves and its bar; without a log they go nowhere."""

    def __init__(self, label: str, log: Log | None = None) -> None:
        self.label = label
        self.log = log

    def __call__(self, row: Row) -> None:
        """A row of steps.jsonl or epochs.jsonl; its axis is the step, or the epoch where it has no step."""
        if self.log is None:
            return
        axis = "step" if "step" in row else "epoch"
        label = f"{self.label} stage {row['stage']}" if "stage" in row else self.label
        names = (name for name in row if name not in ("step", "epoch", "stage"))
        values = {f"{label}/{k}": v for name in names for k, v in _numbers(name, row[name])}
        self.log.add(values, f"{label}/{axis}", int(row[axis]))

    def replay(self, lines: Iterable[str]) -> None:
        """Rows that were written before, as lines of JSON."""
        if self.log is not None:
            for line in lines:
                self(json.loads(line))

    def replay_stage(self, folder: Path) -> None:
        """All rows of a finished stage."""
        for name in ("steps.jsonl", "epochs.jsonl"):
            if self.log is not None and (folder / name).is_file():
                self.replay((folder / name).read_text(encoding="utf-8").splitlines())


Listener = Callable[[str, int, float], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Inside, `listener` gets every number of every run by its name and step, besides the log of its settings.

    What it raises ends the run where it is.
    """
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


class _Heard:
    """A log, or none, that somebody listens to."""

    def __init__(self, log: Log | None, listener: Listener) -> None:
        self.log, self.listener = log, listener

    def add(self, values: Mapping[str, float], axis: str, at: int) -> None:
        if self.log is not None:
            self.log.add(values, axis, at)
        for name, value in values.items():
            self.listener(name, at, value)

    def close(self, error: BaseException | None) -> None:
        if self.log is not None:
            self.log.close(error)


@contextmanager
def open_metrics(kind: LogKind, folder: Path, name: str, settings: Mapping[str, Any]) -> Iterator[Log | None]:
    """A log for the run `name` whose directory is `folder`; None for 'none'. Closed on the way out, also by errors."""
    log = _opened(kind, folder, name, settings)
    if (listener := _listener.get()) is not None:
        log = _Heard(log, listener)
    try:
        yield log
    except BaseException as error:
        if log is not None:
            log.close(error)
        raise
    if log is not None:
        log.close(None)


def _opened(kind: LogKind, folder: Path, name: str, settings: Mapping[str, Any]) -> Log | None:
    if kind == "tensorboard":
        return _TensorBoard(folder, settings)
    if kind == "wandb":
        return _Wandb(folder, name, settings)
    return _Mlflow(folder, name, settings) if kind == "mlflow" else None


class _TensorBoard:
    """Event files under FOLDER/tensorboard."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra("log 'tensorboard'", "tensorboard") from None
        target = folder / "tensorboard"
        shutil.rmtree(target, ignore_errors=True)
        self.writer = SummaryWriter(str(target))
        self.writer.add_text("settings", f"```\n{json.dumps(settings, indent=1)}\n```")

    def add(self, values: Mapping[str, float], axis: str, at: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, at)

    def close(self, error: BaseException | None) -> None:
        self.writer.close()


class _Wandb:
    """A run of the project 'labeldeconv'; WANDB_PROJECT, WANDB_MODE=offline and the like work as always."""

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise MissingExtra("log 'wandb'", "wandb") from None
        folder.mkdir(parents=True, exist_ok=True)
        project = os.environ.get("WANDB_PROJECT", "labeldeconv")
        self.run = wandb.init(project=project, name=name, config=dict(settings), dir=str(folder))
        self.axes: set[str] = set()

    def add(self, values: Mapping[str, float], axis: str, at: int) -> None:
        if axis not in self.axes:  # every stage counts its own steps
            self.axes.add(axis)
            self.run.define_metric(f"{axis.rpartition('/')[0]}/*", step_metric=axis)
        self.run.log({**values, axis: at})

    def close(self, error: BaseException | None) -> None:
        self.run.finish()


class _Mlflow:
    """A run of the experiment 'labeldeconv'; MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME and the like work as always.

    Settings are its parameters, rows its metrics by step. The same folder with the same settings is the same run of
    MLflow, so that a resumed one goes on: of every metric the steps that are there already are not sent again.
    """

    most, seconds = 500, 2.0  # metrics that are kept back at most, and for how long: a request for each is slow

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        try:
            from mlflow import MlflowClient
            from mlflow.entities import Metric, Param
        except ImportError:
            raise MissingExtra("log 'mlflow'", "mlflow") from None
        self.metric, self.client = Metric, MlflowClient()
        place = str(folder.absolute())
        identity = hashlib.sha256(json.dumps([place, settings], default=str).encode()).hexdigest()[:32]
        experiment = self._experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "labeldeconv"))
        found = self.client.search_runs([experiment], f"tags.`labeldeconv.run` = '{identity}'", max_results=1)
        self.id = found[0].info.run_id if found else self._new(experiment, name, identity, settings)
        self.steps: dict[str, set[int]] = {}  # by metric, those that MLflow has
        self.resumed, self.held, self.sent = bool(found), list[Any](), time.monotonic()
        if found:
            self.client.update_run(self.id, "RUNNING")
        else:
            params = [Param(key, str(value)[:6000]) for key, value in _flat(settings)]  # 6,000: MLflow's limit
            for start in range(0, len(params), 100):  # as many as it takes at a time
                self.client.log_batch(self.id, params=params[start : start + 100])

    def _experiment(self, name: str) -> str:
        found = self.client.get_experiment_by_name(name)
        return self.client.create_experiment(name) if found is None else found.experiment_id

    def _new(self, experiment: str, name: str, identity: str, settings: Mapping[str, Any]) -> str:
        from labeldeconv import __version__

        told = {"run": identity, "version": __version__, "data": settings.get("data"), "method": settings.get("method")}
        told["gnn"] = settings.get("gnn", {}).get("name")
        tags = {f"labeldeconv.{key}": str(value) for key, value in told.items() if value is not None}
        return str(self.client.create_run(experiment, run_name=name, tags=tags).info.run_id)

    def add(self, values: Mapping[str, float], axis: str, at: int) -> None:
        now = int(time.time() * 1000)
        for name, value in values.items():
            key = re.sub(r"[^\w\-. /:]", "_", name)  # what MLflow takes
            if at not in self._known(key):
                self.steps[key].add(at)
                self.held.append(self.metric(key, value, now, at))
        if len(self.held) >= self.most or time.monotonic() - self.sent > self.seconds:
            self._send()

    def _known(self, key: str) -> set[int]:
        """Steps of a metric that MLflow has, asked for once."""
        if key not in self.steps:
            had = self.client.get_metric_history(self.id, key) if self.resumed else []
            self.steps[key] = {metric.step for metric in had}
        return self.steps[key]

    def _send(self) -> None:
        for start in range(0, len(self.held), self.most):
            self.client.log_batch(self.id, metrics=self.held[start : start + self.most])
        self.held, self.sent = [], time.monotonic()

    def close(self, error: BaseException | None) -> None:
        self._send()
        failed = "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"
        self.client.set_terminated(self.id, "FINISHED" if error is None else failed)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their dotted names."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _numbers(name: str, value: Any) -> list[tuple[str, float]]:
    """Numbers of an entry: one, one per hop for gamma, none for None."""
    if isinstance(value, list):
        return [(f"{name}_{i}", float(v)) for i, v in enumerate(value)]
    return [] if value is None else [(name, float(value))]
