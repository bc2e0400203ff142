"""Run directories as analyses read them: of one run, or all those of a comparison, and their inverse labels."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeldeconv.config import Config
from labeldeconv.data.inductive import training_view
from labeldeconv.errors import DataError
from labeldeconv.graph import AttributedGraph
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.settings import parse_config
from labeldeconv.task import Task

NEEDED = ("metric", "test", "gamma", "seconds", "peak_mib", "encoder_nodes", "settings")


@dataclass(frozen=True)
class RunDirectory:
    """A finished run: where it is, what it is called, and its result.json."""

    path: Path
    name: str
    result: dict[str, Any]

    @property
    def method(self) -> str:
        """The method's name."""
        return self.result["settings"]["method"]

    @property
    def gnn(self) -> str:
        """The GNN's name."""
        return self.result["settings"]["gnn"]["name"]

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.result["settings"]["seed"]

    @property
    def gamma(self) -> list[float] | None:
        """gamma (h,) at the end of training; None where there are no inverse labels."""
        return self.result["gamma"]

    @property
    def cell(self) -> str:
        """The name without the seed: runs of a comparison that differ in nothing else."""
        return self.name.removesuffix(f"-{self.seed}")

    def config(self) -> Config:
        """The resolved settings."""
        return parse_config(tomllib.loads((self.path / "config.toml").read_text(encoding="utf-8")), str(self.path))

    def graph(self) -> AttributedGraph:
        """The graph of the run."""
        return AttributedGraph.load(self.path / "graph")

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The rows of steps.jsonl or epochs.jsonl; none where there is no such file."""
        path = self.path / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def labelled_graph(self) -> tuple[AttributedGraph, np.ndarray]:
        """The graph that the hop labels K (n, h, c) are of, and K: in the inductive setting that of the train nodes."""
        path = self.path / "hop_labels.npy"
        if self.gamma is None or not path.is_file():
            raise DataError(f"{self.path}: no gamma; method '{self.method}' has no inverse labels, a run of 'ld' has")
        graph, K = self.graph(), np.load(path, mmap_mode="r")
        return (graph if len(K) == graph.num_nodes else training_view(graph)), K

    def targets(self, K: np.ndarray, task: Task, ids: np.ndarray, alpha: float = 1.0) -> np.ndarray:
        """Targets (m, c) of the nodes `ids` (m,), whatever alpha the run had.

        1 gives the inverse labels NORMALIZE(Y(gamma)) at the final gamma (eqn:inv_label), 0 the (pseudo) labels Y.
        """
        with torch.inference_mode():
            return InverseLabels(K, alpha, task, self.gamma)(ids).numpy()


def run_directories(path: str | Path) -> list[RunDirectory]:
    """The run at `path`, or all finished runs of the comparison at `path`, by name."""
    path = Path(path)
    found = [path] if (path / "result.json").is_file() else []
    if (path / "compare.json").is_file():
        found = sorted(p.parent for p in path.glob("*/result.json"))
    if not found:
        raise DataError(f"{path}: the directory of a finished `labeldeconv fit` or `compare` expected")
    return [_open(p) for p in found]


def _open(path: Path) -> RunDirectory:
    try:
        result = json.loads((path / "result.json").read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path / 'result.json'}: not valid JSON: {error}") from None
    if missing := [name for name in NEEDED if name not in result]:
        raise DataError(f"{path / 'result.json'}: '{missing[0]}' is missing; was it written by another version?")
    return RunDirectory(path, path.resolve().name, result)


def run_with_gamma(path: str | Path) -> RunDirectory:
    """The run at `path`, or the first of a comparison that has inverse labels."""
    runs = run_directories(path)
    return next((run for run in runs if run.gamma is not None), runs[0])


def is_run(path: str | Path) -> bool:
    """Whether `path` is a run or a comparison, and not data."""
    path = Path(path)
    return (path / "result.json").is_file() or (path / "compare.json").is_file()
