"""Choose gamma before training, from what counts: the validation score of a graph filter on what texts can predict.

Under cross entropy the loss is linear in gamma, so a learned gamma heads for whatever hop is easiest to fit, not for
the one that helps the GNN. Instead: the encoder can at best learn E[Y(gamma) | text] = sum_i gamma_i E[K_i | text]. A
ridge regression of every K_i on the frozen features X_PNE stands for E[K_i | text] (out of fold, so that no node sees
its own targets), and one on [Z, A-hat Z, ..., A-hat^N Z] with Z = sum_i gamma_i E[K_i | text] stands for the GNN. Every
candidate is scored on the validation nodes. Y alone (alpha = 0, WO/LD) is one of them, and stays the choice unless
another one is better by more than the standard error of the difference. No encoder pass is needed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from labeldeconv.adjacency import Adjacency, propagate
from labeldeconv.graph import Split
from labeldeconv.task import Task

FOLDS = 5
RIDGE = 1e-2  # of the mean diagonal of the Gram matrix
SAMPLES = 100  # bootstrap samples of the validation nodes, for the standard error


@dataclass(frozen=True)
class Candidate:
    """A gamma (h,) with its score and its mean squared error on the validation nodes.

    `lead` is its score minus that of Y alone, `doubt` the standard error of that difference.
    """

    gamma: np.ndarray
    score: float
    error: float
    lead: float = 0.0
    doubt: float = 0.0


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
    """Candidates from X_PNE (n, d), hop labels K (n, h, c) and the GNN's A-hat: the chosen one, then best first.

    Equal scores are ordered by error, so that the choice is not an accident of a small validation set.
    """
    n, h, c = K.shape
    predicted = _out_of_fold(np.asarray(features, dtype=np.float32), np.asarray(K).reshape(n, h * c), seed)
    # Everything is linear in gamma: propagate the predictions of all hops once, (n, h, c) each.
    filtered = [x.reshape(n, h, c) for x in propagate(adj, np.ascontiguousarray(predicted), h - 1)]
    targets = np.nan_to_num(task.targets(labels[split.train]), nan=0.5)
    known = labels[split.val]
    truth = np.nan_to_num(task.targets(known), nan=0.5)

    def answer(gamma: np.ndarray) -> np.ndarray:
        inputs = np.concatenate([np.einsum("h,nhc->nc", gamma, x) for x in filtered], axis=1)  # (n, h * c)
        return _ridge(inputs[split.train], targets, inputs[split.val])

    plain = np.eye(h)[0]
    found = []
    for gamma in candidates(h):
        predictions = answer(gamma)
        found.append(Candidate(gamma, task.score(predictions, known), float(np.mean((predictions - truth) ** 2))))
    found.sort(key=lambda candidate: (-candidate.score, candidate.error))
    best, rest = found[0], found[1:]
    labels_alone = next(candidate for candidate in found if (candidate.gamma == plain).all())
    if best is labels_alone:
        return found
    doubt = _doubt(answer(best.gamma), answer(plain), known, task, seed)
    best = replace(best, lead=best.score - labels_alone.score, doubt=doubt)
    if best.lead > best.doubt:
        return [best, *rest]
    return [labels_alone, best, *(candidate for candidate in rest if candidate is not labels_alone)]


def _doubt(a: np.ndarray, b: np.ndarray, labels: np.ndarray, task: Task, seed: int) -> float:
    """Standard error of the difference of two predictions' scores on the same nodes, by the bootstrap."""
    rng = np.random.default_rng(seed)
    draws = [rng.integers(0, len(labels), len(labels)) for _ in range(SAMPLES)]
    return float(np.nanstd([task.score(a[i], labels[i]) - task.score(b[i], labels[i]) for i in draws]))


def _out_of_fold(X: np.ndarray, Y: np.ndarray, seed: int) -> np.ndarray:
    """Ridge predictions (n, m) of Y (n, m) from X (n, d), every row by a model that did not see it."""
    fold = np.random.default_rng(seed).permutation(len(X)) % FOLDS
    out = np.empty((len(X), Y.shape[1]), dtype=np.float32)
    for k in range(FOLDS):
        inside = fold == k
        out[inside] = _ridge(X[~inside], Y[~inside], X[inside])
    return out


def _ridge(X: np.ndarray, Y: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Predictions (q, m) for `queries` (q, d) of a ridge regression with intercept."""
    centre, mean = X.mean(0), Y.mean(0)
    X = (X - centre).astype(np.float64)
    gram = X.T @ X
    gram[np.diag_indices_from(gram)] += RIDGE * max(np.trace(gram) / len(gram), 1e-12)
    return ((queries - centre) @ np.linalg.solve(gram, X.T @ (Y - mean)) + mean).astype(np.float32)
