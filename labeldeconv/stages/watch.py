"""Metrics to TensorBoard or Weights & Biases while a run goes on: the only file that touches the optional packages.

    labeldeconv fit DATA --log tensorboard        # then: tensorboard --logdir runs

Training loops hand every row of steps.jsonl and epochs.jsonl to a `Watch` as they write it. Rows that a resumed stage
or a stage from the cache already has are handed over first, so that a log is complete whatever was computed when. A log
belongs to one call of `run`: TensorBoard's folder is made anew, Weights & Biases gets a new run.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

from labeldeconv.errors import MissingExtra

LogKind = Literal["none", "tensorboard", "wandb"]
Row = Mapping[str, Any]


class Log(Protocol):
    """Somewhere that metrics go."""

    def add(self, values: Mapping[str, float], axis: str, at: int) -> None:
        """Numbers by name at one point of an axis."""
        ...

    def close(self) -> None:
        """Write everything."""
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


@contextmanager
def open_metrics(kind: LogKind, folder: Path, name: str, settings: Mapping[str, Any]) -> Iterator[Log | None]:
    """A log for the run `name` whose directory is `folder`; None for 'none'. Closed on the way out, also by errors."""
    log: Log | None = None
    if kind != "none":
        log = _TensorBoard(folder, settings) if kind == "tensorboard" else _Wandb(folder, name, settings)
    try:
        yield log
    finally:
        if log is not None:
            log.close()


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

    def close(self) -> None:
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

    def close(self) -> None:
        self.run.finish()


def _numbers(name: str, value: Any) -> list[tuple[str, float]]:
    """Numbers of an entry: one, one per hop for gamma, none for None."""
    if isinstance(value, list):
        return [(f"{name}_{i}", float(v)) for i, v in enumerate(value)]
    return [] if value is None else [(name, float(value))]
