"""The run directory: plain files with one writer, `write_run`, and one reader, `RunDirectory`.

A run is written into NAME.partial beside its place and swapped in whole: what was there before goes, and no directory
ever holds parts of two runs. `result.json`, written last, lists every file with size and checksum, and has one of its
own. The reader opens only complete runs: a result of this format whose files are all there with their sizes. A
comparison is a folder of run directories whose `compare.json` names those that belong to it. Whoever writes a run or a
comparison holds NAME.lock beside it.
"""

from __future__ import annotations

import errno
import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeldeconv.encoders.pretrained import Weights
from labeldeconv.errors import DataError, plainly
from labeldeconv.graph.attributed import FILES as GRAPH_FILES
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.npy import open_npy
from labeldeconv.graph.task import Task
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.methods.base import Learned
from labeldeconv.runs.calibration import calibration
from labeldeconv.runs.result_file import read_comparison, read_log, read_result
from labeldeconv.settings.models import Config
from labeldeconv.settings.reading import parse_config
from labeldeconv.stages.cache import Broken, check_files
from labeldeconv.stages.files import checksum, files_in, flush, flush_folder, sealed, share, write_json, write_text
from labeldeconv.stages.locks import Held, locked
from labeldeconv.training.features import BothFeatures

FORMAT = 2
RESULT = "result.json"
COMPARISON = "compare.json"
LOGS = ("tensorboard", "wandb")  # written while the run goes on; they are in no list of files
RUN_FILES = {
    RESULT, "config.toml", "features.npy", "logits.npy", "gnn.safetensors", "epochs.jsonl", "encoder", "steps.jsonl",
    "psi.safetensors", "taught_labels.npy", "pseudo_labels.npy", "hop_labels.npy", "gnn_inputs", "graph", "race.json",
    "profile.json", "report.html", *LOGS,
}  # fmt: skip
SEARCH = "search.db"  # what a search has tried, of Optuna
COMPARISON_FILES = {COMPARISON, "table.md", "table.csv", "report.html", SEARCH, f"{SEARCH}-journal"}


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Write the run or comparison `out` alone: a second process is refused. Errors of the disk are told plainly."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with locked(_lock(out), waits=False):
            yield
    except Held as owner:
        raise DataError(f"{out}: {owner} is writing it; wait for that, or choose another --out") from None
    except Exception as error:
        told = plainly(error, out)
        if told is None:
            raise
        raise told from error


def check_writable(out: Path) -> None:
    """Refuse, before anything is computed or made, a place that this user cannot write."""
    above = next(parent for parent in out.absolute().parents if parent.exists())
    try:
        os.lstat(_gone(out))  # the longest of the names that a run needs
    except FileNotFoundError:
        pass
    except OSError as error:
        raise (plainly(error, out) or error) from None
    refused = None if os.access(above, os.W_OK | os.X_OK) else errno.EACCES
    refused = refused if above.is_dir() else errno.ENOTDIR
    if refused:
        told = plainly(OSError(refused, os.strerror(refused), str(above)), out)
        assert told is not None
        raise told


def begin_run(out: Path) -> Path:
    """The empty folder NAME.partial in which a run is to be made.

    A place that is taken by anything but an older run is refused now, before hours of computing.
    """
    check_place(out)
    work = _work(out)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    return work


def write_run(
    out: Path,
    learned: Learned,
    graph: AttributedGraph,
    config: Config,
    result: Mapping[str, Any],
    encoder: Weights | None = None,
    both: BothFeatures | None = None,
) -> RunDirectory:
    """Write what a method has learned, with graph, resolved settings and result, and swap it in at `out`.

    `encoder` made the features of a method that trains none. It is written where no name leads to it: an encoder that
    was adapted to the graph first, or one that was given as an object. `both` is what the GNN read, where that is not
    the features alone.
    """
    check_place(out)
    work = _work(out)
    work.mkdir(parents=True, exist_ok=True)
    write_text(work / "config.toml", config.to_toml())
    _write_graph(graph, work / "graph")
    if result.get("race"):
        write_json(work / "race.json", result["race"])
    for source, name in _files_of(learned):
        share(source, work / name)
    if both is not None:
        for name in ("values.npy", "mean.npy", "scale.npy"):
            share(both.made.path / name, work / "gnn_inputs" / name)
    if learned.encoder is None and encoder is not None:
        _write_encoder(encoder, work / "encoder")
    written = [path for path in files_in(work) if path.relative_to(work).parts[0] not in LOGS]
    listed: dict[str, list[Any]] = {
        str(path.relative_to(work)): [path.stat().st_size, checksum(path)] for path in written
    }
    size = sum(told[0] for told in listed.values())
    write_json(work / RESULT, sealed({"format": FORMAT, **result, "bytes": size, "files": listed}))
    flush_folder(work)
    _swap(work, out)
    return RunDirectory.open(out)


def check_place(out: Path) -> None:
    """Refuse a place that holds anything which no run writes, so that nobody's files are ever deleted."""
    if not out.exists():
        return
    known = RUN_FILES | {f"{name}.tmp" for name in RUN_FILES}  # the latter after a kill
    strange = [out.name] if not out.is_dir() else sorted({p.name for p in out.iterdir()} - known)
    if strange:
        what = "is a file" if not out.is_dir() else f"holds '{strange[0]}', which no run writes"
        raise DataError(f"{out}: {what}; --out names an empty folder, one of an older run, or none")


def begin_comparison(out: Path, cells: list[str]) -> None:
    """Make the folder of a comparison ready: its own cells of an earlier attempt stay, those of another one go."""
    out.mkdir(parents=True, exist_ok=True)
    own = COMPARISON_FILES | {f"{name}.tmp" for name in COMPARISON_FILES}  # the latter after a kill
    others = [p for p in sorted(out.iterdir()) if p.name not in own and not (p.suffix == ".lock" and p.is_file())]
    for path in others:
        if not (path.is_dir() and (path.suffix in (".partial", ".replaced") or (path / RESULT).is_file())):
            raise DataError(
                f"{out}: holds '{path.name}', which no comparison writes; "
                "--out names an empty folder, one of an older comparison, or none"
            )
    for path in others:
        if path.name not in cells:
            _delete(path)
    for name in own:
        (out / name).unlink(missing_ok=True)


def _delete(run: Path) -> None:
    """Delete a run so that half of it is never taken for somebody else's folder: it loses its name first."""
    if run.suffix not in (".partial", ".replaced"):
        shutil.rmtree(_gone(run), ignore_errors=True)
        run = run.replace(_gone(run))
    shutil.rmtree(run, ignore_errors=True)


def _work(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial")


def _gone(out: Path) -> Path:
    return out.with_name(f"{out.name}.replaced")


def _lock(out: Path) -> Path:
    return out.with_name(f"{out.name}.lock")


def _swap(work: Path, out: Path) -> None:
    gone = _gone(out)
    shutil.rmtree(gone, ignore_errors=True)
    if out.exists():
        out.replace(gone)
    work.replace(out)
    flush(out.parent)
    shutil.rmtree(gone, ignore_errors=True)


def _write_graph(graph: AttributedGraph, folder: Path) -> None:
    """Save a graph; one that was opened from a folder shares all its files but the split, which may be a new one.

    It is the largest part of a run and the same in all runs on it, so that the superuser gets links as well.
    """
    if graph.home is None:
        graph.save(folder)
        return
    folder.mkdir(parents=True)
    for name in GRAPH_FILES:
        if name != "split.npy" and (graph.home / name).is_file():
            share(graph.home / name, folder / name, superuser_links=True)
    np.save(folder / "split.npy", graph.split.roles)
    graph.write_card(folder)


def _write_encoder(weights: Weights, folder: Path) -> None:
    if weights.trained is not None:
        share(weights.trained.encoder, folder)
    elif weights.pretrained.is_object:
        folder.mkdir()
        weights.load().save(folder)


def _files_of(learned: Learned) -> list[tuple[Path, str]]:
    """Files of the stages that made the features and the predictions, and their names in the run directory."""
    X, gnn = learned.features, learned.gnn
    found = [
        (X.made.path / "values.npy", "features.npy"),
        (gnn.made.path / "logits.npy", "logits.npy"),
        (gnn.weights, "gnn.safetensors"),
        (gnn.log, "epochs.jsonl"),
    ]
    if gnn.taught_labels is not None:
        found.append((gnn.taught_labels, "taught_labels.npy"))
    if learned.encoder is not None:
        found += [(learned.encoder.encoder, "encoder"), (learned.encoder.log, "steps.jsonl")]
    if learned.psi is not None:
        found.append((learned.psi.head, "psi.safetensors"))
    if learned.labels is not None:
        found.append((learned.labels.made.path / "values.npy", "pseudo_labels.npy"))
    if learned.hop_labels is not None:
        found.append((learned.hop_labels.made.path / "values.npy", "hop_labels.npy"))
    return found


@dataclass(frozen=True, eq=False)
class RunDirectory:
    """A finished run: where it is, what it is called, and its result.json."""

    path: Path
    name: str
    result: dict[str, Any]

    @classmethod
    def open(cls, path: str | Path, check: bool = True) -> RunDirectory:
        """The complete run at `path`; anything else is refused, with the reason. `verify` checks its files itself."""
        path = Path(path)
        if not (path / RESULT).is_file():
            raise DataError(f"{path}: the directory of a finished `labeldeconv fit` or `compare` expected")
        result = read_result(path / RESULT, FORMAT)
        run = cls(path, path.resolve().name, result)
        if check:
            run._check(content=False)
        return run

    def verify(self) -> None:
        """Compare every file with the checksum it had when it was written."""
        self._check(content=True)

    def _check(self, content: bool) -> None:
        try:
            check_files(self.path, self.result, content)
        except Broken as why:
            raise DataError(f"{self.path}: not complete: {why}") from None

    @property
    def settings(self) -> dict[str, Any]:
        """The resolved settings, as nested values."""
        return self.result["settings"]

    @property
    def method(self) -> str:
        """The method's name."""
        return self.settings["method"]

    @property
    def gnn(self) -> str:
        """The GNN's name."""
        return self.settings["gnn"]["name"]

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.settings["seed"]

    @property
    def gamma(self) -> list[float] | None:
        """gamma (h,) at the end of training; None where there are no inverse labels."""
        return self.result["gamma"]

    @cached_property
    def calibration(self) -> dict[str, Any]:
        """The temperature of the predictions and their calibration error; computed where the run is older than both."""
        graph = self.graph
        if graph.task == "regression":
            return {"temperature": 1.0}  # numbers have no probabilities
        told = self.result.get("calibration")
        return told or calibration(Task.of(graph), self.logits, np.asarray(graph.labels), graph.split)

    @property
    def race(self) -> dict[str, Any] | None:
        """How the GNN was chosen: `chosen`, `reason` and `candidates`; None where it was named."""
        return self.result.get("race")

    @property
    def cell(self) -> str:
        """The name without the seed: runs of a comparison that differ in nothing else."""
        return self.name.removesuffix(f"-{self.seed}")

    def config_text(self) -> str:
        """The resolved settings as TOML."""
        path = self.path / "config.toml"
        try:
            if not path.is_file():
                raise DataError(f"{path}: no such file, which every run has")
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: cannot be read: {error}") from None

    def config(self) -> Config:
        """The resolved settings."""
        path = self.path / "config.toml"
        try:
            values = tomllib.loads(self.config_text())
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: not valid TOML: {error}") from None
        config = parse_config(values, str(path))
        own = {"data": config.data, "method": config.method, "gnn.name": config.gnn.name, "seed": config.seed}
        others = {"data": self.settings["data"], "method": self.method, "gnn.name": self.gnn, "seed": self.seed}
        if different := [name for name in own if own[name] != others[name]]:
            name = different[0]
            told = f"{name} is {own[name]!r} here and {others[name]!r} in {RESULT}"
            raise DataError(f"{path}: {told}; the files of one run expected")
        return config

    @cached_property
    def graph(self) -> AttributedGraph:
        """The graph of the run."""
        return AttributedGraph.load(self.path / "graph")

    @property
    def has_graph(self) -> bool:
        """Whether the graph is there; a run without it was pushed without it (prediction/pushed.py)."""
        return True

    @cached_property
    def task(self) -> Task:
        """The task that the labels pose, judged by the run's metric."""
        return Task.of(self.graph, self.settings.get("metric"), loss=self.settings.get("regression_loss", "mse"))

    @property
    def class_names(self) -> list[str]:
        """c names."""
        return self.graph.class_names

    @property
    def dim(self) -> int:
        """d, the width of the features."""
        return self.features.shape[1]

    @cached_property
    def features(self) -> np.ndarray:
        """X of the method (n, d), memory-mapped."""
        return self._rows_of_nodes("features.npy", None)

    @cached_property
    def gnn_inputs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """What the GNN read where `gnn.inputs` is 'both': X beside X_PNE (n, d + e), standardised by mean and scale.

        None where it read the features alone.
        """
        names = [f"gnn_inputs/{name}.npy" for name in ("values", "mean", "scale")]
        if any(self._path(name) is None for name in names):
            return None
        values = self._rows_of_nodes(names[0], None)
        mean, scale = (np.asarray(open_npy(self.path / name)) for name in names[1:])
        for name, array in zip(names[1:], (mean, scale), strict=True):
            if array.shape != values.shape[1:] or array.dtype.kind != "f":
                wanted = f"floats {values.shape[1:]} expected"
                raise DataError(f"{self.path / name}: {wanted}, got {array.dtype} {array.shape}")
        return values, mean, scale

    @cached_property
    def logits(self) -> np.ndarray:
        """Predictions of the GNN (n, c) before softmax or sigmoid, memory-mapped; of a regression in standard units."""
        return self._rows_of_nodes("logits.npy", self.graph.num_classes)

    @property
    def pseudo_labels(self) -> np.ndarray | None:
        """Y of `label_nodes` (m, c); None where the method has none."""
        return self._labels("pseudo_labels.npy", (self.graph.num_classes,))

    @property
    def hop_labels(self) -> np.ndarray | None:
        """K of `label_nodes` (m, h, c), as it was kept; None where the method has none."""
        hops = None if self.gamma is None else len(self.gamma)
        return self._labels("hop_labels.npy", (hops, self.graph.num_classes))

    @property
    def taught_labels(self) -> np.ndarray | None:
        """Labels (n, c) that fed the GNN's label branch; None where these were the train nodes' own, or none."""
        return self._labels("taught_labels.npy", (self.graph.num_classes,))

    @property
    def label_nodes(self) -> np.ndarray:
        """The nodes (m,) that Y and K are of: all, or in the inductive setting the train nodes."""
        Y = self.pseudo_labels if self.hop_labels is None else self.hop_labels
        every = np.arange(self.graph.num_nodes)
        return every if Y is None or len(Y) == len(every) else self.graph.split.train

    @property
    def encoder(self) -> Path | None:
        """The folder of the encoder that made the features; None where that is the pre-trained one of the settings."""
        return self._path("encoder")

    @property
    def gnn_weights(self) -> Path:
        """Weights of the GNN."""
        return self.path / "gnn.safetensors"

    @property
    def psi_weights(self) -> Path | None:
        """Weights of psi; None where the encoder was not trained behind it."""
        return self._path("psi.safetensors")

    def steps(self) -> list[dict[str, Any]]:
        """Loss, learning rate and gamma by step of the encoder phase; none where there is no such phase."""
        return self._lines("steps.jsonl")

    def epochs(self) -> list[dict[str, Any]]:
        """Loss and validation score by epoch of the GNN."""
        return self._lines("epochs.jsonl")

    def labelled_graph(self) -> tuple[AttributedGraph, np.ndarray]:
        """The graph that the hop labels K (n, h, c) are of, and K: in the inductive setting that of the train nodes."""
        K = self.hop_labels
        if self.gamma is None or K is None:
            raise DataError(f"{self.path}: no gamma; method '{self.method}' has no inverse labels, a run of 'ld' has")
        return (self.graph if len(K) == self.graph.num_nodes else self.graph.training_view()), K

    def targets(self, K: np.ndarray, task: Task, ids: np.ndarray, alpha: float = 1.0) -> np.ndarray:
        """Targets (m, c) of the nodes `ids` (m,), whatever alpha the run had.

        1 gives the inverse labels NORMALIZE(Y(gamma)) at the final gamma (eqn:inv_label), 0 the (pseudo) labels Y.
        """
        with torch.inference_mode():
            return InverseLabels(K, alpha, task, self.gamma)(ids).numpy()

    def _path(self, name: str) -> Path | None:
        return self.path / name if (self.path / name).exists() else None

    def _rows_of_nodes(self, name: str, width: int | None) -> np.ndarray:
        """An array (n, d) of floats with a row per node of the graph, memory-mapped."""
        array, n = open_npy(self.path / name), self.graph.num_nodes
        fits = array.ndim == 2 and len(array) == n and width in (None, array.shape[-1]) and array.dtype.kind == "f"
        if not fits:
            shape = f"({n}, {width or 'd'})"
            raise DataError(f"{self.path / name}: floats {shape} expected, got {array.dtype} {array.shape}")
        return array

    def _labels(self, name: str, shape: tuple[int | None, ...]) -> np.ndarray | None:
        """An array of labels of all or of the train nodes, memory-mapped; None where the run has none."""
        if self._path(name) is None:
            return None
        array, rows = open_npy(self.path / name), (self.graph.num_nodes, len(self.graph.split.train))
        sizes = zip(array.shape[1:], shape, strict=False)
        fits = array.ndim == 1 + len(shape) and len(array) in rows and all(b in (None, a) for a, b in sizes)
        if not fits or array.dtype.kind not in "fu":
            wanted = f"({' or '.join(map(str, rows))}, {', '.join(str(size or 'h') for size in shape)})"
            raise DataError(f"{self.path / name}: labels {wanted} expected, got {array.dtype} {array.shape}")
        return array

    def _lines(self, name: str) -> list[dict[str, Any]]:
        return read_log(self.path / name)


@dataclass(frozen=True, eq=False)
class ComparisonDirectory:
    """The folder of a comparison, and its compare.json."""

    path: Path
    table: dict[str, Any]

    @classmethod
    def open(cls, path: str | Path) -> ComparisonDirectory:
        """The comparison at `path`."""
        path = Path(path)
        if not (path / COMPARISON).is_file():
            raise DataError(f"{path}: the directory of a finished `labeldeconv compare` or `sweep` expected")
        return cls(path, read_comparison(path / COMPARISON, FORMAT))

    def runs_of(self, row: Mapping[str, Any]) -> list[RunDirectory]:
        """The runs of a row of the table, one per seed; those that were deleted are left out."""
        names = [name for name in row["cells"] if os.path.basename(name) == name]  # noqa: PTH119 (a name, no path)
        return [RunDirectory.open(self.path / name) for name in names if (self.path / name / RESULT).is_file()]

    @property
    def runs(self) -> list[RunDirectory]:
        """The runs of all rows, by name."""
        return sorted((run for row in self.table["rows"] for run in self.runs_of(row)), key=lambda run: run.name)


def open_runs(path: str | Path) -> list[RunDirectory]:
    """The run at `path`, or the runs of the comparison at `path`, by name; at least one."""
    path = Path(path)
    runs = ComparisonDirectory.open(path).runs if (path / COMPARISON).is_file() else [RunDirectory.open(path)]
    if not runs:
        raise DataError(f"{path}: no run of the comparison is left")
    return runs


def run_with_gamma(path: str | Path) -> RunDirectory:
    """The run at `path`, or the first of a comparison that has inverse labels."""
    runs = open_runs(path)
    return next((run for run in runs if run.gamma is not None), runs[0])


def is_run(path: str | Path) -> bool:
    """Whether `path` is a run or a comparison, and not data."""
    return (Path(path) / RESULT).is_file() or (Path(path) / COMPARISON).is_file()
