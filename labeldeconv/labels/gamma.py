"""Choose gamma before training, from what counts: the validation error of a graph filter on what texts can predict.

Under cross entropy the loss is linear in gamma, so a learned gamma heads for whatever hop is easiest to fit, not for
the one that helps the GNN. Instead: the encoder can at best learn E[Y(gamma) | text] = sum_i gamma_i E[K_i | text]. A
ridge regression of every K_i on the frozen features X_PNE stands for E[K_i | text] (out of fold, so that no node sees
its own targets), and one on [Z, A-hat Z, ..., A-hat^N Z] with Z = sum_i gamma_i E[K_i | text] stands for the GNN. Every
candidate is scored on the validation nodes. Y alone (alpha = 0, WO/LD) is one of them, and stays the choice unless
another one has a smaller error, by more than two standard errors of the difference (it is the best of many, so one
would often be exceeded by luck) and by more than one percent. No encoder pass is needed.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Protocol

import numpy as np

from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.task import Task
from labeldeconv.labels.hops import HopLabels
from labeldeconv.propagation.adjacency import Adjacency, propagate
from labeldeconv.propagation.fixed_point import dequantize
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.stages.keys import Reads
from labeldeconv.stages.stage import Artefact, Folder, stage

FOLDS = 5
RIDGE = 1e-2  # of the mean diagonal of the Gram matrix
MARGIN, LEAST = 2.0, 0.01  # a candidate must lead Y alone by so many standard errors, and by such a share of its error


@dataclass(frozen=True)
class Candidate:
    """A gamma (h,) with its score and its mean squared error on the validation nodes.

    `lead` is how much less that error is than that of Y alone, `doubt` the standard error of this difference.
    """

    gamma: np.ndarray
    score: float
    error: float
    lead: float
    doubt: float


class HasValues(Protocol):
    """An artefact with features (n, d)."""

    @property
    def values(self) -> np.ndarray:
        """Features (n, d)."""
        ...

    @property
    def content_key(self) -> str:
        """The key of the stage that made it."""
        ...


@dataclass(frozen=True, eq=False)
class ChosenGamma(Artefact):
    """The chosen gamma (h,), and all candidates with their scores, the chosen one first."""

    gamma: list[float]
    candidates: list[dict[str, Any]]


@stage(version=1)
def gamma(
    out: Folder,
    K: HopLabels,
    X: HasValues,
    graph: Annotated[AttributedGraph, Reads("edges", "num_nodes", "known_labels", "split", "task", "num_classes")],
    adjacency: AdjacencyConfig,
) -> ChosenGamma:
    """gamma, chosen by a closed form on the validation nodes; `adjacency` is the GNN's."""
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes, adjacency)
    found = choose_gamma(X.values, dequantize(K.values), adj, graph.known_labels, graph.split, Task.of(graph))
    tried = [{**asdict(c), "gamma": [round(float(g), 4) for g in c.gamma]} for c in found]
    return ChosenGamma([float(g) for g in found[0].gamma], tried)


def candidates(h: int) -> list[np.ndarray]:
    """Gammas to try: uniform over 0..k for every k (k = 0 is Y alone), single hops, pairs, and Y mixed with uniform."""
    eye = np.eye(h)
    uniform = [eye[: k + 1].mean(0) for k in range(h)]
    tried = [*reversed(uniform), *eye[1:], *((eye[i] + eye[j]) / 2 for i, j in itertools.combinations(range(h), 2))]
    tried += [(1 - alpha) * eye[0] + alpha * uniform[-1] for alpha in (0.2, 0.5)]
    return list({tuple(gamma.round(6)): gamma for gamma in tried}.values())


def choose_gamma(
    features: np.ndarray, K: np.ndarray, adj: Adjacency, labels: np.ndarray, split: Split, task: Task, seed: int = 0
) -> list[Candidate]:
    """Candidates from X_PNE (n, d), hop labels K (n, h, c) and the GNN's A-hat: the chosen one, then by error.

    The squared error decides, not the score: it tells more about few nodes, and about texts that tell everything.
    """
    n, h, c = K.shape
    predicted = _out_of_fold(np.asarray(features, dtype=np.float32), np.asarray(K).reshape(n, h * c), seed)
    # Everything is linear in gamma: propagate the predictions of all hops once, (n, h, c) each.
    filtered = [x.reshape(n, h, c) for x in propagate(adj, np.ascontiguousarray(predicted), h - 1)]
    train, targets = _known(split.train, task, labels)
    val, truth = _known(split.val, task, labels)
    targets = np.where(np.isnan(targets), np.nan_to_num(np.nanmean(targets, axis=0)), targets)

    def tried(gamma: np.ndarray) -> tuple[np.ndarray, float]:
        """Squared error of every validation node, and the score."""
        inputs = np.concatenate([np.einsum("h,nhc->nc", gamma, x) for x in filtered], axis=1)  # (n, h * c)
        answer = _ridge(inputs[train], targets, inputs[val])
        return np.nanmean((answer - truth) ** 2, axis=1), task.score(answer, labels[val])

    alone, _ = tried(np.eye(h)[0])
    found = []
    for gamma in candidates(h):
        errors, score = tried(gamma)
        better = alone - errors
        doubt = float(better.std() / np.sqrt(len(better)))
        found.append(Candidate(gamma, score, float(errors.mean()), float(better.mean()), doubt))
    found.sort(key=lambda candidate: candidate.error)
    best = found[0]
    surely = best.lead > max(MARGIN * best.doubt, LEAST * float(alone.mean()))
    chosen = best if surely else next(candidate for candidate in found if candidate.gamma[0] == 1)
    return [chosen, *(candidate for candidate in found if candidate is not chosen)]


def _known(ids: np.ndarray, task: Task, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Those of the nodes that have a label at all, and their targets (m, c), NaN where an entry is missing."""
    targets = task.targets(labels[ids])
    known = ~np.isnan(targets).all(axis=1)
    return ids[known], targets[known]


def _out_of_fold(X: np.ndarray, Y: np.ndarray, seed: int) -> np.ndarray:
    """Ridge predictions (n, m) of Y (n, m) from X (n, d), every row by a model that did not see it."""
    fold = np.random.default_rng(seed).permutation(len(X)) % FOLDS
    out = np.empty((len(X), Y.shape[1]), dtype=np.float32)
    for k in range(FOLDS):
        inside = fold == k
        out[inside] = _ridge(X[~inside], Y[~inside], X[inside])
    return out


def _ridge(X: np.ndarray, Y: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Predictions (q, m) for `queries` (q, d) of a ridge regression of Y (n, m) on X (n, d) with intercept, in float64.

    The penalty is RIDGE times the mean diagonal of the Gram matrix (d, d) of the centred X.
    """
    from sklearn.linear_model import Ridge  # takes a second to import

    centre, mean = X.mean(0, dtype=np.float64), Y.mean(0, dtype=np.float64)
    X = X - centre  # centred here and not by Ridge, so that the penalty needs no second copy
    penalty = RIDGE * max(float(np.vdot(X, X)) / X.shape[1], 1e-12)
    model = Ridge(alpha=penalty, fit_intercept=False, copy_X=False, solver="cholesky").fit(X, Y - mean)
    return (model.predict(queries - centre).reshape(len(queries), -1) + mean).astype(np.float32)
