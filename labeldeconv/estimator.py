"""LabelDeconvolution: the whole of a run as an estimator with scikit-learn's manners.

    model = LabelDeconvolution(encoder="minilm", gnn="sagn", alpha=1.0).fit(graph)
    model.predict(graph), model.score(graph, "test"), model.transform(graph).shape, model.gamma_
    model.save("model"); LabelDeconvolution.load("model").predict(other)
    model.predict(texts=["a new node"], edges=[("new-0", "an old one")])

The constructor only stores; `fit` computes, through the same stages and the same cache as the function `fit`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeldeconv.encoders.pretrained import Pretrained, Weights
from labeldeconv.encoders.tokens import tokens
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.gnns.base import GNN
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import RegressionTask, Task
from labeldeconv.graph.texts import Texts
from labeldeconv.prediction.explanation import Explanation
from labeldeconv.prediction.predictor import Predicted, Predictor
from labeldeconv.prediction.pushed import CARD, PushedRun, TextPredictor
from labeldeconv.prediction.restored import GNNInputs, check_imports, load_weights
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.runs.asked import Parts, settings_from
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.runs.fit import fit_config
from labeldeconv.settings.models import Config
from labeldeconv.settings.reading import label_settings
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.stage import session
from labeldeconv.training.features import features
from labeldeconv.training.feed import make_feed
from labeldeconv.training.steps import resolved_precision

PARAMETERS = ("method", "encoder", "gnn", "alpha", "hops", "seed", "out", "cache", "settings")


class LabelDeconvolution:
    """Node features and predictions on attributed graphs.

    Args:
        method: 'ld', or any name of `labeldeconv list`, or a function from `Run` to `Learned`.
        encoder: a name, a hub id, a folder, a SentenceTransformer, or a pair (model, tokenizer) of transformers.
        gnn: 'auto' chooses by validation score; or a name, 'package.module:Name', or any class or module of PyG with
            forward(x, edge_index).
        alpha: share of the inverse labels in the target, or 'auto'.
        hops: N of the inverse labels; None takes the GNN's number of convolutions, 'auto' chooses.
        seed: of everything random.
        out: run directory; None is a folder under runs/ with a key of all settings.
        cache: where finished stages live; None is the user's cache folder.
        settings: any other setting by dotted name: {"train.epochs": 2}.

    After `fit`:
        result_: scores, costs and files of the run.
        gamma_: weights (N + 1,) of the hops; None where no inverse labels were learned.
        classes_: c class names.
        predictor_: a `Predictor`, for all else that is known of new nodes.
    """

    def __init__(
        self,
        method: Any = "ld",
        encoder: Any = "minilm",
        gnn: Any = "auto",
        alpha: float | str = 1.0,
        hops: int | str | None = None,
        seed: int = 0,
        out: str | Path | None = None,
        cache: str | Path | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.encoder = encoder
        self.gnn = gnn
        self.alpha = alpha
        self.hops = hops
        self.seed = seed
        self.out = out
        self.cache = cache
        self.settings = settings

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments."""
        return {name: getattr(self, name) for name in PARAMETERS}

    def set_params(self, **parameters: Any) -> LabelDeconvolution:
        """Change some of the constructor's arguments."""
        for name, value in parameters.items():
            if name not in PARAMETERS:
                raise ConfigError(f"LabelDeconvolution: no parameter '{name}'; known: {', '.join(PARAMETERS)}")
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Whether `fit` has run."""
        return hasattr(self, "run_")

    def fit(self, graph: AttributedGraph | str | Path, y: Any = None) -> LabelDeconvolution:
        """Learn from a graph, or from what `labeldeconv fit` takes; labels and split are the graph's, y is ignored."""
        parts = Parts.of(graph, self.method, self.encoder, self.gnn)
        config = self._config(graph)
        result = fit_config(config, parts, Path(self.out) if self.out else None, self._cache())
        self.result_ = result
        self._take(RunDirectory.open(result.run))
        return self

    def predict(
        self,
        graph: AttributedGraph | None = None,
        *,
        texts: Iterable[Any] | None = None,
        edges: Iterable[tuple[Any, Any]] = (),
        **given: Any,
    ) -> np.ndarray:
        """Class numbers (n,) of all nodes, labels (n, c) of a multi-label task, or numbers (n, c) of a regression.

        None is the graph of `fit`.

        With `texts`, or another argument of `Predictor.predict`, those of new nodes of that graph (m,) instead.
        """
        if texts is not None or given:
            return self._new(texts, edges, given).numbers
        logits = self.decision_function(graph)
        if isinstance(self._task, RegressionTask):
            return self._task.values(logits)
        return logits.argmax(1) if self._task.kind == "multiclass" else (logits > 0).astype(np.int8)

    def predict_proba(
        self,
        graph: AttributedGraph | None = None,
        *,
        texts: Iterable[Any] | None = None,
        edges: Iterable[tuple[Any, Any]] = (),
        **given: Any,
    ) -> np.ndarray:
        """Probabilities (n, c) of all nodes; with `texts` those of new nodes (m, c), which are calibrated.

        A regression has none and is refused.
        """
        self._check_fitted()
        if self._task.kind == "regression":
            raise ConfigError("predict_proba: the labels are numbers, which have no probabilities; `predict` has them")
        if texts is not None or given:
            return self._new(texts, edges, given).probabilities
        return self._task.probabilities(torch.from_numpy(np.array(self.decision_function(graph)))).numpy()

    def explain(self, node: Any, **given: Any) -> Explanation:
        """Which hop and which neighbours carried the prediction of a node of the graph of `fit`, or of a new one.

        The arguments are those of `Predictor.explain`: `of`, `top`, and `texts` and `edges` of new nodes.
        """
        self._check_fitted()
        return self.predictor_.explain(node, **given)

    def decision_function(self, graph: AttributedGraph | None = None) -> np.ndarray:
        """Logits (n, c) of all nodes of the graph of `fit`, or of another one, which is encoded first.

        Those of a regression are in standard units.
        """
        self._check_fitted()
        if graph is None or self._is_own(graph):
            return self.run_.logits
        return self._forward(graph, self.transform(graph))

    def transform(self, graph: AttributedGraph | Iterable[str] | None = None) -> np.ndarray:
        """Features (n, d) of a graph's nodes, or of texts alone; None is the graph of `fit`."""
        self._check_fitted()
        if graph is None:
            return self.run_.features
        if isinstance(graph, AttributedGraph):
            if self._is_own(graph):
                return self.run_.features
            if self.run_.method == "given":
                if graph.features is None:
                    raise DataError(f"method 'given': graph '{graph.name}' has no features of its own")
                return graph.features
            graph = graph.texts
        texts = graph if isinstance(graph, Texts) else Texts.from_strings(graph)
        return self._encode(texts)

    def score(self, graph: AttributedGraph | None = None, role: str = "test") -> float:
        """The task's metric on the 'train', 'val' or 'test' nodes of a graph; None is the graph of `fit`."""
        self._check_fitted()
        measured = self.run_.graph if graph is None else graph
        nodes = measured.split.ids(role)
        return self._task.score(self.decision_function(graph)[nodes], measured.labels[nodes])

    def save(self, folder: str | Path) -> Path:
        """Write the model to a folder: a copy of its run directory."""
        self._check_fitted()
        folder = Path(folder)
        if folder.exists() and any(folder.iterdir()):
            raise DataError(f"{folder}: an empty folder or none expected")
        shutil.copytree(self.run_.path, folder, dirs_exist_ok=True)
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> LabelDeconvolution:
        """A fitted model from a folder written by `save`, or from any run directory."""
        if (Path(folder) / CARD).is_file():
            return cls.from_pretrained(folder)
        run = RunDirectory.open(folder)
        check_imports(run)
        return cls._of(run, run.settings["encoder"]["name"], run.gnn)

    @classmethod
    def from_pretrained(cls, source: str | Path, gnn: Any = None, revision: str | None = None) -> LabelDeconvolution:
        """A model from what `labeldeconv push` wrote: a folder, or USER/NAME of a hub. Nothing in it is executed.

        Pushed with its graph it is the whole model. Without, `transform(texts)` and `predict(texts=...)`, which psi
        answers, work, and `predict(graph)` for a graph that is given.

        Args:
            source: a folder, or the id of a repository, which is downloaded.
            gnn: the class or object that the GNN was given as; None where it has a name.
            revision: of the repository.
        """
        run = PushedRun.find(source, gnn, revision)
        return cls._of(run, str(run.path), run.gnn if gnn is None else gnn)

    @classmethod
    def _of(cls, run: RunDirectory, encoder: str, gnn: Any) -> LabelDeconvolution:
        labels = run.settings["labels"]
        model = cls(
            method=run.method,
            encoder=encoder,
            gnn=gnn,
            alpha="auto" if labels["gamma"] == "auto" else labels["alpha"],
            hops=labels["hops"],
            seed=run.seed,
        )
        model._take(run)
        return model

    def _new(self, texts: Iterable[Any] | None, edges: Iterable[tuple[Any, Any]], given: dict[str, Any]) -> Predicted:
        self._check_fitted()
        return self.predictor_.predict(texts, edges, **given)

    def _take(self, run: RunDirectory) -> None:
        self.run_ = run
        gnn, encoder = (None if isinstance(x, str | Path) else x for x in (self.gnn, self.encoder))
        kind = Predictor if run.has_graph else TextPredictor
        self.predictor_ = kind(run, gnn, encoder, self._cache())
        self.gamma_ = run.gamma
        self.classes_ = run.class_names

    @property
    def _task(self) -> Task:
        return self.run_.task

    def _is_own(self, graph: AttributedGraph) -> bool:
        """Whether a graph is the one of `fit`."""
        return self.run_.has_graph and graph.content_key == self.run_.graph.content_key

    def _check_fitted(self) -> None:
        if not hasattr(self, "run_"):
            raise ConfigError("LabelDeconvolution: not fitted yet; call fit(graph) first")

    def _cache(self) -> Cache | None:
        return Cache(Path(self.cache)) if self.cache else None

    def _config(self, graph: Any) -> Config:
        given = {**label_settings(self.alpha, self.hops), **(self.settings or {})}
        return settings_from(graph, self.method, self.encoder, self.gnn, self.seed, None, given)

    def _encode(self, texts: Texts) -> np.ndarray:
        """Features (n, d) of texts by the run's encoder; kept in the cache as any other features."""
        config = self.run_.config()
        device = torch.device("cpu")
        pretrained = Pretrained(config.encoder, _object(self.encoder))
        folder = self.run_.encoder
        weights = Weights(pretrained, None if folder is None else _Trained(folder, self.run_))
        with session(self._cache()):
            rows = tokens(texts, pretrained.tokenizer, config.encoder.max_tokens, pretrained.files_key(texts))
            precision = resolved_precision(config.train.precision, device)
            return features.called("encode")(rows, weights, precision, device).values

    def _forward(self, graph: AttributedGraph, x: np.ndarray) -> np.ndarray:
        """Logits (n, c) of the run's GNN on another graph with features (n, d)."""
        config = self.run_.config()
        if self.run_.method == "glem" and config.glem.label_input:
            raise ConfigError("glem: label inputs of another graph are not known; glem.label_input false expected")
        module = _object(self.gnn)
        if config.gnn.inputs == "both":
            x = GNNInputs(self.run_, module, _object(self.encoder))(x, list(graph.texts))
        gnn: GNN = Architecture.of(config.gnn, module).build(x.shape[1], len(self.classes_))
        load_weights(gnn, self.run_.gnn_weights)
        if gnn.label_hops or gnn.reads_labels:
            option = "label_hops 0" if gnn.label_hops else "label_inputs false"
            raise ConfigError(f"{config.gnn.name}: label inputs of another graph are not known; {option} expected")
        adj = Adjacency.from_edges(graph.edges, graph.num_nodes, config.gnn.adjacency)
        if gnn.edge_dim:
            if graph.edge_features is None:
                raise DataError(f"graph '{graph.name}': edge features expected, as in the graph of `fit`")
            adj = adj.with_edge_features(graph.edges, graph.edge_features)
        whole = config.gnn.model_copy(update={"batching": "full"})
        with tempfile.TemporaryDirectory(prefix="labeldeconv-") as scratch, torch.inference_mode():
            feed = make_feed(gnn, x, adj, whole, Path(scratch), torch.device("cpu"))
            return feed.predict(gnn.eval(), np.arange(graph.num_nodes)).float().numpy()


def _object(given: Any) -> Any:
    """What was given in place of a name; None where that was a name."""
    return None if isinstance(given, str | Path) else given


class _Trained:
    """The encoder of a run directory, as weights that a stage can be given."""

    def __init__(self, encoder: Path, run: RunDirectory) -> None:
        self.encoder, self._run = encoder, run

    @property
    def content_key(self) -> str:
        """Checksums of the encoder's files."""
        held = self._run.result["files"]
        return str(sorted((name, told[1]) for name, told in held.items() if name.startswith("encoder/")))
