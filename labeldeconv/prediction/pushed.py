"""What `labeldeconv push` wrote, read back: a run whose encoder lies at the root of its folder, maybe without graph.

    model = LabelDeconvolution.from_pretrained("someone/papers")     # or a folder
    model.predict_proba(texts=["Graphs and labels"])

A pushed folder may be anybody's: weights are safetensors, all else is JSON, TOML, text and arrays without objects; no
module that it names is imported, and every file that its labeldeconv.json lists is compared with its checksum.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeldeconv.encoders.pretrained import of_folder
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.gnns.base import GNNS
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import RegressionTask, Task, task_of_kind
from labeldeconv.prediction.logits import Mode
from labeldeconv.prediction.predictor import Alone, Predicted, Predictor, attribute
from labeldeconv.prediction.restored import psi_logits_of, restored_psi
from labeldeconv.runs.directory import FORMAT, RunDirectory
from labeldeconv.runs.result_file import read_pushed
from labeldeconv.settings.models import Config

CARD = "labeldeconv.json"
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
# What a pushed folder may hold and is read: nothing else is downloaded, no pickle and no code.
READ = ["*.json", "*.txt", "*.model", "*.toml", "*.safetensors", "*.npy", "*.md", "graph/*.bin"]
WITHOUT = "it was pushed without its graph; give predict a graph, or push with --with-graph"


class PushedRun(RunDirectory):
    """A pushed folder in the place of a run directory: the encoder at its root, the graph only if it was pushed."""

    @classmethod
    def find(cls, source: str | Path, gnn: Any = None, revision: str | None = None) -> PushedRun:
        """The folder `source`, or the repository of that id, downloaded; `gnn` is what its GNN was given as."""
        path = Path(source)
        if not path.exists() and REPOSITORY.fullmatch(str(source)):
            path = downloaded(str(source), revision)
        run = cls.open(path)
        name = run.config().gnn.name
        if gnn is None and name not in GNNS:
            raise ConfigError(
                f"{path / 'config.toml'}: gnn.name '{name}' is a class of its author, and nothing that a folder names "
                "is imported; give the class: from_pretrained(..., gnn=CLASS)"
            )
        return run

    @classmethod
    def open(cls, path: str | Path, check: bool = True) -> PushedRun:
        """The complete folder at `path`, every file as it was written; anything else is refused by the file's name."""
        path = Path(path)
        if not (path / CARD).is_file():
            raise DataError(f"{path / CARD}: no such file, which every folder of `labeldeconv push` has")
        run = cls(path, path.resolve().name, read_pushed(path / CARD, FORMAT))
        if (path / "adapter_config.json").exists():  # transformers would load another model, which it names
            raise DataError(f"{path / 'adapter_config.json'}: adapters are merged in what is pushed")
        for name in ("config.toml", "gnn.safetensors"):
            if name not in run.result["files"]:
                raise DataError(f"{path / CARD}: '{name}' expected among its files")
        run._check(content=check)
        return run

    def config(self) -> Config:
        """The settings; the encoder is the one in this folder, cut and merged as it was when it was saved."""
        config = super().config()
        return config.model_copy(update={"encoder": of_folder(config.encoder, self.path)})

    @property
    def encoder(self) -> Path | None:
        """None: the encoder that the settings name is the trained one."""
        return None

    @property
    def has_graph(self) -> bool:
        """Whether the graph was pushed too."""
        return "graph/graph.json" in self.result["files"]

    @cached_property
    def graph(self) -> AttributedGraph:
        """The graph of the run, where it was pushed."""
        if not self.has_graph:
            raise DataError(f"{self.path}: {WITHOUT}")
        return AttributedGraph.load(self.path / "graph")

    @property
    def calibration(self) -> dict[str, Any]:
        """The temperature of the GNN's predictions and their calibration error."""
        return self.result["calibration"]

    @cached_property
    def task(self) -> Task:
        """The task that the labels pose."""
        model = self.result["model"]
        task = task_of_kind(model["task"], len(self.class_names), self.settings.get("metric"))
        if isinstance(task, RegressionTask):
            unit = self.result["targets"]
            return replace(task, mean=tuple(unit["mean"]), std=tuple(unit["std"]))
        return task

    @property
    def class_names(self) -> list[str]:
        """c names."""
        return self.result["model"]["class_names"]

    @property
    def dim(self) -> int:
        """d, the width of the features."""
        return self.result["model"]["dim"]

    def _rows_of_nodes(self, name: str, width: int | None) -> np.ndarray:
        assert self.graph is not None  # says so where it was not pushed
        return super()._rows_of_nodes(name, width)


class TextPredictor(Predictor):
    """The predictor of a run without its graph: psi predicts every node from its text."""

    @cached_property
    def psi(self) -> tuple[torch.nn.Module, float] | None:
        """psi and the temperature that was fitted when it was pushed; None where the run has no psi."""
        psi = restored_psi(self.run, self._gnn)
        temperature = self.run.result["model"]["psi_temperature"]
        return None if psi is None else (psi, 1.0 if temperature is None else temperature)

    def predict(
        self,
        texts: Iterable[Any] | None = None,
        edges: Iterable[tuple[Any, Any]] | np.ndarray = (),
        *,
        ids: Sequence[Any] | None = None,
        features: np.ndarray | None = None,
        edge_features: np.ndarray | None = None,
        mode: Mode = "exact",
        alone: Alone = "psi",
    ) -> Predicted:
        """Predict m nodes from their texts; whatever asks for a graph is refused."""
        if texts is None or features is not None:
            raise DataError(f"predict: texts, and no features, expected, as method '{self.run.method}' learned on them")
        if len(list(edges)) or edge_features is not None or alone == "gnn":
            raise ConfigError(f"{self.run.path}: edges have no nodes to lead to; {WITHOUT}")
        if self.psi is None:
            raise ConfigError(f"{self.run.path}: method '{self.run.method}' has no psi; {WITHOUT}")
        rows = [attribute(text) for text in texts]
        names = [f"new-{i}" for i in range(len(rows))] if ids is None else [str(one) for one in ids]
        if len(names) != len(rows):
            raise DataError(f"predict: as many ids as nodes expected, got {len(names)} for {len(rows)}")
        psi, temperature = self.psi
        x = self.encode(rows)
        logits = psi_logits_of(psi, x).reshape(len(x), self.task.num_classes)
        probabilities = self._probabilities(logits, temperature)
        return Predicted(names, self.run.class_names, logits, probabilities, x, ["psi"] * len(x), self.task)

    def predict_tables(self, nodes: str | Path, edges: str | Path | None = None, **given: Any) -> Predicted:
        """Refused: the tables' columns are known to the graph."""
        raise ConfigError(f"{self.run.path}: tables of new nodes join a graph; {WITHOUT}")


def downloaded(name: str, revision: str | None = None) -> Path:
    """The folder of the repository USER/NAME, from the hub or from its cache; only what is read is downloaded."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=READ))
    except Exception as error:  # of the hub, of httpx, of the disk: there is no common base
        why = next(iter(str(error).splitlines()), "") or type(error).__name__
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        raise ConfigError(f"{name}: no such folder, and not to be had from the hub{offline}: {why}") from error
