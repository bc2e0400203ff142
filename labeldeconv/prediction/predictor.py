"""Predictor: classes, calibrated probabilities and features of nodes that a run has never seen, or their numbers.

    predictor = Predictor.load("runs/papers-ld-gcn-0")
    told = predictor.predict(["Graphs and labels", "A second text"], edges=[("new-0", "W2741"), ("new-1", "new-0")])
    told.classes, told.probabilities, told.features, told.by

Only the new texts are encoded and only what leads to the new nodes is computed (prediction/incremental.py). All nodes
of a call join the graph together; the next call starts from the run's own graph again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from labeldeconv.errors import ConfigError, DataError
from labeldeconv.graph.task import RegressionTask, Task
from labeldeconv.prediction.attribution import of_psi
from labeldeconv.prediction.explanation import Explanation, class_number, in_words
from labeldeconv.prediction.logits import GraphModel, Mode, mean_of
from labeldeconv.prediction.new_tables import read_new_nodes
from labeldeconv.prediction.numbering import NewNodes, Numbers, Places, numbered
from labeldeconv.prediction.restored import (
    GNNInputs,
    TextFeatures,
    check_imports,
    psi_logits_of,
    restored_graph_model,
    restored_psi,
)
from labeldeconv.prediction.writing import write_table
from labeldeconv.runs.calibration import fitted_temperature
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.stage import session

Alone = Literal["psi", "gnn"]


@dataclass(frozen=True, eq=False)
class Predicted:
    """What is predicted of m new nodes, in their order.

    Args:
        ids: as text.
        class_names: c names, of classes or of the targets of a regression.
        logits: (m, c), of the GNN or of psi.
        probabilities: (m, c), calibrated; (m, 0) where numbers are predicted, which have none.
        features: (m, d) of the encoder, or as given.
        by: 'gnn' or 'psi', what predicted each node.
        task: multi-class, multi-label or regression.
    """

    ids: list[str]
    class_names: list[str]
    logits: np.ndarray
    probabilities: np.ndarray
    features: np.ndarray
    by: list[str]
    task: Task

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def numbers(self) -> np.ndarray:
        """Class numbers (m,), labels (m, c) of 0 and 1 of a multi-label task, or predicted numbers (m, c)."""
        if isinstance(self.task, RegressionTask):
            return self.task.values(self.logits)
        return self.logits.argmax(1) if self.task.kind == "multiclass" else (self.logits > 0).astype(np.int8)

    @property
    def classes(self) -> list[Any]:
        """The class of every node, the list of its labels in a multi-label task, or its number, a list of several."""
        if self.task.kind == "regression":
            return (self.numbers[:, 0] if self.task.num_classes == 1 else self.numbers).tolist()
        if self.task.kind == "multiclass":
            return [self.class_names[k] for k in self.numbers]
        return [[self.class_names[k] for k in np.flatnonzero(row)] for row in self.numbers]

    def columns(self, features: bool = True) -> dict[str, Any]:
        """The table that `save` writes, by column; several numbers have a column each, prediction_NAME."""
        learned = {"features": self.features.astype(np.float32)} if features else {}
        if self.task.kind == "regression":
            names = ["prediction"] if self.task.num_classes == 1 else [f"prediction_{k}" for k in self.class_names]
            told = {name: np.ascontiguousarray(values) for name, values in zip(names, self.numbers.T, strict=True)}
            return {"id": self.ids, **told, "by": self.by, **learned}
        out: dict[str, Any] = {"id": self.ids, "prediction": self.classes}
        if self.task.kind == "multiclass":
            out["probability"] = self.probabilities.max(1)
        out |= {"by": self.by, "probabilities": self.probabilities}
        return out | learned

    def save(self, out: str | Path, features: bool = True) -> Path:
        """Write a table that ends in .parquet, .csv, .tsv or .jsonl, complete or not at all."""
        return write_table(Path(out), self.columns(features))


class Predictor:
    """A run that predicts new nodes.

    Args:
        run: an open run directory.
        gnn: the class or object that the run's GNN was given as; None where it has a name.
        encoder: the object that its encoder was given as; None where it has a name, or its folder opens by itself.
        cache: where activations of the old nodes are kept; None is the user's cache folder.
    """

    def __init__(self, run: RunDirectory, gnn: Any = None, encoder: Any = None, cache: Cache | None = None) -> None:
        self.run, self._gnn, self._encoder, self._cache = run, gnn, encoder, cache
        self.task = run.task
        self.reads_features = run.method == "given"

    @classmethod
    def load(cls, run: str | Path, gnn: Any = None, encoder: Any = None, cache: str | Path | None = None) -> Predictor:
        """The predictor of a run directory; one that names modules to import is refused unless it is trusted."""
        opened = RunDirectory.open(run)
        check_imports(opened, gnn, encoder)
        return cls(opened, gnn, encoder, Cache(Path(cache)) if cache else None)

    @cached_property
    def known(self) -> Numbers:
        """The nodes of the run's graph by id."""
        return Numbers(self.run.graph)

    @cached_property
    def model(self) -> GraphModel:
        """The GNN on the run's graph."""
        return restored_graph_model(self.run, self.inputs, self._gnn)

    @cached_property
    def inputs(self) -> GNNInputs:
        """From features to what the GNN reads."""
        return GNNInputs(self.run, self._gnn, self._encoder)

    @cached_property
    def encode(self) -> TextFeatures:
        """From texts to features."""
        return TextFeatures(self.run, self._encoder)

    @cached_property
    def psi(self) -> tuple[torch.nn.Module, float] | None:
        """psi and its own temperature, fitted on the validation nodes; None where the run has no psi."""
        psi, graph = restored_psi(self.run, self._gnn), self.run.graph
        if psi is None:
            return None
        val = graph.split.val
        logits = psi_logits_of(psi, self.run.features[val]) if len(val) else np.empty((0, self.task.num_classes))
        return psi, fitted_temperature(self.task, logits, np.asarray(graph.labels[val]))

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
        """Predict m new nodes.

        Args:
            texts: m texts or sequences; records as JSON objects or mappings from column to value.
            edges: k pairs of ids, source and target, each with a new node at one end.
            ids: m ids of the new nodes; None calls them 'new-0', 'new-1', ...
            features: (m, d) in place of texts, for runs on given features.
            edge_features: (k, .), where the run's GNN reads edge features.
            mode: 'exact' is what a pass over the whole grown graph would give; 'fast' leaves the activations of old
                nodes as they were.
            alone: what predicts a node that no other reaches: 'psi', where the run has one, or 'gnn'.
        """
        return self.predict_nodes(self.new_nodes(texts, edges, ids, features, edge_features), mode, alone)

    def new_nodes(
        self,
        texts: Iterable[Any] | None = None,
        edges: Iterable[tuple[Any, Any]] | np.ndarray = (),
        ids: Sequence[Any] | None = None,
        features: np.ndarray | None = None,
        edge_features: np.ndarray | None = None,
        places: Places | None = None,
    ) -> NewNodes:
        """The nodes and edges of `predict`, numbered and checked; `places` says how messages name them."""
        given: Any = None if features is None else np.asarray(features)
        rows: Any = None if texts is None else [attribute(text) for text in texts]
        wanted_one, other = (given, rows) if self.reads_features else (rows, given)
        if wanted_one is None or other is not None:
            wanted = "features (m, d)" if self.reads_features else "texts, and no features,"
            raise DataError(f"predict: {wanted} expected, as method '{self.run.method}' has learned on them")
        count = len(given) if given is not None else len(rows or [])
        names = [f"new-{i}" for i in range(count)] if ids is None else list(ids)
        if len(names) != count:
            raise DataError(f"predict: as many ids as nodes expected, got {len(names)} for {count}")
        called, numbers = numbered(self.known, names, [(a, b) for a, b in edges], places)
        values = None if edge_features is None else np.asarray(edge_features, np.float32)
        new = NewNodes(called, rows, numbers, given, values)
        self._check(new)
        return new

    def predict_tables(
        self,
        nodes: str | Path,
        edges: str | Path | None = None,
        *,
        features: str | Path | None = None,
        mode: Mode = "exact",
        alone: Alone = "psi",
    ) -> Predicted:
        """The same for a table of nodes and one of edges, which have the columns of the run's tables."""
        return self.predict_nodes(self.read_tables(nodes, edges, features), mode, alone)

    def read_tables(
        self, nodes: str | Path, edges: str | Path | None = None, features: str | Path | None = None
    ) -> NewNodes:
        """New nodes of tables, numbered and checked."""
        return read_new_nodes(
            Path(nodes),
            None if edges is None else Path(edges),
            self.known,
            reads_features=self.reads_features,
            edge_dim=self.model.gnn.edge_dim,
            features=None if features is None else Path(features),
        )

    def predict_nodes(self, new: NewNodes, mode: Mode = "exact", alone: Alone = "psi") -> Predicted:
        """The same for nodes that are numbered already; features in place of their texts may be encoded before."""
        return self.predict_apart([new], mode, alone)[0]

    def predict_apart(self, calls: Sequence[NewNodes], mode: Mode = "exact", alone: Alone = "psi") -> list[Predicted]:
        """Several calls of `predict_nodes` at once, none of which sees the nodes of another.

        Each has a copy of the graph for itself, and all copies go through the GNN together.
        """
        if mode not in get_args(Mode) or alone not in get_args(Alone):
            raise ConfigError(f"predict: mode {get_args(Mode)} and alone {get_args(Alone)} expected, got {mode, alone}")
        for new in calls:
            self._check(new)
        most = self.model.most_copies
        groups = [calls[i : i + most] for i in range(0, len(calls), most)]
        return [told for group in groups for told in self._predict_copies(group, mode, alone)]

    def _predict_copies(self, calls: Sequence[NewNodes], mode: Mode, alone: Alone) -> list[Predicted]:
        """Predictions of calls that grow a copy of the graph each; all copies have as many new nodes as the largest."""
        X = [np.asarray(new.features) if new.features is not None else self.encode(new.texts or []) for new in calls]
        m, n = max(len(new) for new in calls), self.run.graph.num_nodes
        edges = np.concatenate([new.edges + k * (n + m) for k, new in enumerate(calls)], axis=1)
        grown = self.model.grow(m, edges, calls[0].edge_values, len(calls))
        real = np.concatenate([np.arange(m) < len(new) for new in calls]) if m else np.empty(0, bool)
        features = np.concatenate(X)
        lone = grown.alone[real] if alone == "psi" and self.psi is not None else np.zeros(len(features), bool)
        inputs = self.inputs(features, [text for new in calls for text in new.texts or []])
        padded = np.zeros((len(real), inputs.shape[1]), inputs.dtype)
        padded[real] = inputs
        logits = np.empty((len(features), self.task.num_classes), np.float32)
        with session(self._cache):
            logits[~lone] = self.model.logits(grown, padded, edges, grown.new_nodes[real][~lone], mode)
        probabilities = self._probabilities(logits, self.run.calibration["temperature"])
        if lone.any():
            assert self.psi is not None
            psi, temperature = self.psi
            logits[lone] = psi_logits_of(psi, features[lone])
            probabilities[lone] = self._probabilities(logits[lone], temperature)
        by = np.where(lone, "psi", "gnn").tolist()
        names, ends = self.run.class_names, np.cumsum([0, *map(len, calls)])
        return [
            Predicted(new.ids, names, logits[i:j], probabilities[i:j], x, by[i:j], self.task)
            for new, x, i, j in zip(calls, X, ends[:-1], ends[1:], strict=True)
        ]

    def explain(
        self,
        node: Any,
        *,
        of: str | None = None,
        top: int = 10,
        alone: Alone = "psi",
        **new: Any,
    ) -> Explanation:
        """Which hop and which neighbours carried the prediction of a node.

        Args:
            node: the id of a node of the run's graph, or of a new one.
            of: the class whose logit is explained; None takes that of the largest. Of a regression the target, the
                first if None, and what is told is in the unit of the labels.
            top: neighbours that are named; the others are one sum.
            alone: what predicts a new node that no other reaches, as in `predict`.
            new: texts, edges, ids, features and edge_features of new nodes, as `predict` takes them.
        """
        return self.explain_nodes(node, self.new_nodes(**new) if new else None, of, top, alone)

    def explain_nodes(
        self, node: Any, new: NewNodes | None = None, of: str | None = None, top: int = 10, alone: Alone = "psi"
    ) -> Explanation:
        """The same for new nodes that are numbered already; None for none."""
        graph, n, d = self.run.graph, *self.run.features.shape
        new = new or NewNodes([], None, np.empty((2, 0), np.int64))
        features: np.ndarray = np.empty((0, d), np.float16)
        if str(node) in new.ids:
            place, told = new.ids.index(str(node)), self.predict_nodes(new, "exact", alone)
            number, by, logits, features = n + place, told.by[place], told.logits[place], told.features
        else:
            new = replace(new, ids=[], edges=new.edges[:, :0], edge_values=None)  # new nodes change no old one here
            number, by = self.known.number(node), "gnn"
            logits = np.asarray(self.run.logits[number], np.float32)
        names = graph.class_names
        if self.task.kind == "regression":
            chosen = class_number(names, names[0] if of is None else of, logits, "target")
        else:
            chosen = class_number(names, of, logits)
        if by == "psi":
            assert self.psi is not None
            own = torch.from_numpy(np.asarray(features[number - n], np.float32))
            found = of_psi(self.psi[0], own, mean_of(self.run.features), number, chosen)
        else:
            grown = self.model.grow(len(new), new.edges, new.edge_values)
            found = self.model.attribution(grown, self.inputs(features, new.texts), number, chosen, logits)
        name_of = lambda u: graph.node_id(u) if u < n else new.ids[u - n]  # noqa: E731
        words = in_words(found, number, chosen, by, graph, name_of, top)
        if isinstance(self.task, RegressionTask):
            return words.in_unit(self.task.mean[chosen], self.task.std[chosen])
        return words

    def _probabilities(self, logits: np.ndarray, temperature: float) -> np.ndarray:
        if self.task.kind == "regression":
            return np.empty((len(logits), 0), np.float32)
        return self.task.probabilities(torch.from_numpy(logits), temperature).numpy().copy()

    def _check(self, new: NewNodes) -> None:
        """Refuse features and edge features of a wrong shape, or that are not finite."""
        d, k = self.run.features.shape[1], self.model.gnn.edge_dim
        if new.features is not None:
            _check_numbers("features", new.features, len(new), d)
        if k and new.edges.shape[1]:
            got = np.empty((0, 0)) if new.edge_values is None else new.edge_values
            _check_numbers("edge features", got, new.edges.shape[1], k)


def _check_numbers(what: str, values: np.ndarray, rows: int, width: int) -> None:
    if values.shape != (rows, width):
        raise DataError(f"predict: {what} ({rows}, {width}) expected, as the run has them, got {values.shape}")
    wrong = np.flatnonzero(~np.isfinite(values).all(1))
    if len(wrong):
        raise DataError(f"predict: {what} of row {wrong[0]} are not finite numbers ({len(wrong)} rows in all)")


def attribute(value: Any) -> str:
    """A text, or a record as JSON; a missing text is empty."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        cells = {name: None if cell is None else str(cell) for name, cell in value.items()}
        return json.dumps(cells, ensure_ascii=False)
    return str(value)
