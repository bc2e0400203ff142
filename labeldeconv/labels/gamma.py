"""Choose gamma before training, from what counts: the validation error of a graph filter on what texts can predict.

Under cross entropy the loss is linear in gamma, so a learned gamma heads for whatever hop is easiest to fit, not for
the one that helps the GNN. Instead: the encoder can at best learn E[Y(gamma) | text] = sum_i gamma_i E[K_i | text]. A
ridge regression of every K_i on the frozen features X_PNE stands for E[K_i | text] (out of fold, so that no node sees
its own targets), and one on [Z, A-hat Z, ..., A-hat^N Z] with Z = sum_i gamma_i E[K_i | text] stands for the GNN. Every
candidate is scored on the validation nodes. Y alone (alpha = 0, WO/LD) is one of them, and stays the choice unless
another one has a smaller error, by more than two standard errors of the difference (it is the best of many, so one
would often be exceeded by luck) and by more than one percent. No encoder pass is needed.

Everything is streamed. A ridge needs its sums over rows alone (`Moments`), which are added up block by block; a model
that did not see a fold has all sums less the fold's. What lies between the two regressions is on disk, and goes through
the graph 16 columns at a time. With n nodes, d features, h = N + 1 hops, c classes and g candidates memory is about

    n (3 * 64 + 17) + 8 (FOLDS + 2) d (d + h c) + 8 g (h c)^2 + blocks of rows, bytes, besides A-hat:

0.6 GiB on ogbn-products (2.45 M nodes, d = 768, h = 6, c = 47), and 4 h c (n + h m) bytes of disk for m train and
validation nodes: 4.1 GiB there.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np

from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.missing import hidden
from labeldeconv.graph.split import Split
from labeldeconv.graph.task import Task
from labeldeconv.labels.hops import HopLabels
from labeldeconv.propagation.adjacency import Adjacency, propagate
from labeldeconv.propagation.fixed_point import dequantize
from labeldeconv.propagation.outofcore import release
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.stages.files import scratch
from labeldeconv.stages.keys import Reads
from labeldeconv.stages.memory_limit import check_room
from labeldeconv.stages.stage import Artefact, Folder, stage

FOLDS = 5
RIDGE = 1e-2  # of the mean diagonal of the Gram matrix
MARGIN, LEAST = 2.0, 0.01  # a candidate must lead Y alone by so many standard errors, and by such a share of its error
ROWS = 4096  # nodes in a block
LINE = 16  # float32 in a line of the processor's cache: columns that go through the graph together, at least
COLUMN_BYTES = 160 << 20  # of one column block over all nodes, where LINE allows


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


@stage(version=2)
def gamma(
    out: Folder,
    K: HopLabels,
    X: HasValues,
    graph: Annotated[AttributedGraph, Reads("edges", "num_nodes", "known_labels", "split", "task", "num_classes")],
    adjacency: AdjacencyConfig,
) -> ChosenGamma:
    """gamma, chosen by a closed form on the validation nodes; `adjacency` is the GNN's."""
    size, (_, h, c) = (graph.num_nodes, graph.edges.shape[1], adjacency), K.values.shape
    working = choosing_bytes(graph.num_nodes, X.values.shape[1], h, c)
    needed = max(Adjacency.building_bytes(*size), Adjacency.held_bytes(*size) + working)
    check_room(out.label, needed, "give labels.gamma, or learn it")
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes, adjacency)
    task = Task.of(graph, train_labels=hidden(graph.known_labels, graph.split.roles == 0))
    found = choose_gamma(X.values, K.values, adj, graph.known_labels, graph.split, task, 0, out.path)
    tried = [{**asdict(c), "gamma": [round(float(g), 4) for g in c.gamma]} for c in found]
    return ChosenGamma([float(g) for g in found[0].gamma], tried)


def choosing_bytes(n: int, d: int, h: int, c: int) -> float:
    """Memory of `choose_gamma` at its peak, besides A-hat: what the head of this module says."""
    columns = 3 * 4 * n * _columns(n, h * c)  # a block of them, its hop and the one before
    rows = 8 * ROWS * (d + 2 * h * h * c)  # features, and filtered predictions of every hop
    sums = 8 * (FOLDS + 2) * d * (d + h * c) + 8 * len(candidates(h)) * (h * c) ** 2
    return columns + 17 * n + sums + rows


def _columns(n: int, width: int) -> int:
    """How many columns of (n, width) go through the graph together: whole lines."""
    return LINE * min(-(-width // LINE), max(1, COLUMN_BYTES // (4 * LINE * n)))


def candidates(h: int) -> list[np.ndarray]:
    """Gammas to try: uniform over 0..k for every k (k = 0 is Y alone), single hops, pairs, and Y mixed with uniform."""
    eye = np.eye(h)
    uniform = [eye[: k + 1].mean(0) for k in range(h)]
    tried = [*reversed(uniform), *eye[1:], *((eye[i] + eye[j]) / 2 for i, j in itertools.combinations(range(h), 2))]
    tried += [(1 - alpha) * eye[0] + alpha * uniform[-1] for alpha in (0.2, 0.5)]
    return list({tuple(gamma.round(6)): gamma for gamma in tried}.values())


def choose_gamma(
    features: np.ndarray,
    K: np.ndarray,
    adj: Adjacency,
    labels: np.ndarray,
    split: Split,
    task: Task,
    seed: int = 0,
    folder: Path | None = None,
) -> list[Candidate]:
    """Candidates from X_PNE (n, d), hop labels K (n, h, c) and the GNN's A-hat: the chosen one, then by error.

    The squared error decides, not the score: it tells more about few nodes, and about texts that tell everything.

    Args:
        features, K: perhaps memory-mapped; K in float32, or in fixed point as `hops` keeps it.
        folder: for files that go away again; None takes a temporary one.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="labeldeconv-") as temporary:
            return choose_gamma(features, K, adj, labels, split, task, seed, Path(temporary))
    h = K.shape[1]
    train, targets = _known(split.train, task, labels)
    val, truth = _known(split.val, task, labels)
    targets = np.where(np.isnan(targets), np.nan_to_num(np.nanmean(targets, axis=0)), targets)
    predicted = out_of_fold(features, K, seed, folder)
    filtered = Filtered.of(adj, predicted, np.concatenate([train, val]), h, K.shape[2], folder)
    gammas = candidates(h)
    # Everything is linear in gamma, so one reading of the train rows serves the sums of all candidates.
    moments = [Moments.zero(h * K.shape[2], targets.shape[1]) for _ in gammas]
    for lo, hi in _blocks(0, len(train)):
        rows = filtered.rows(lo, hi)
        for gamma, sums in zip(gammas, moments, strict=True):
            sums.add(_mixed(rows, gamma), targets[lo:hi])

    def tried(gamma: np.ndarray, sums: Moments) -> tuple[np.ndarray, float]:
        """Squared error of every validation node, and the score."""
        filter_of_it = sums.ridge()
        parts = [filter_of_it(_mixed(filtered.rows(*block), gamma)) for block in _blocks(len(train), filtered.count)]
        answer = np.concatenate([np.empty((0, truth.shape[1]), np.float32), *parts])
        return np.nanmean((answer - truth) ** 2, axis=1), task.score(answer, labels[val])

    results = [tried(gamma, sums) for gamma, sums in zip(gammas, moments, strict=True)]
    alone = next(errors for gamma, (errors, _) in zip(gammas, results, strict=True) if gamma[0] == 1)
    found = []
    for gamma, (errors, score) in zip(gammas, results, strict=True):
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


def _blocks(lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """Row ranges from lo to hi, of at most ROWS rows."""
    return ((a, min(a + ROWS, hi)) for a in range(lo, hi, ROWS))


def _mixed(rows: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """[Z, A-hat Z, ..., A-hat^N Z] (b, h c) of Z = sum_i gamma_i E[K_i | text], from rows (b, h, h, c)."""
    return np.einsum("h,bfhc->bfc", gamma, rows).reshape(len(rows), -1)


@dataclass(eq=False)
class Moments:
    """Sums over rows x (d,) and y (m,): all that a ridge regression of y on x needs, in float64.

    x is taken about `shift` (d,), near its mean, so that the sums of squares lose no digits to it.
    """

    shift: np.ndarray
    count: int
    x: np.ndarray
    y: np.ndarray
    xx: np.ndarray
    xy: np.ndarray

    @classmethod
    def zero(cls, d: int, m: int, shift: np.ndarray | None = None) -> Moments:
        """Sums over no rows."""
        centre = np.zeros(d) if shift is None else shift
        return cls(centre, 0, np.zeros(d), np.zeros(m), np.zeros((d, d)), np.zeros((d, m)))

    def add(self, x: np.ndarray, y: np.ndarray) -> None:
        """Count the rows x (b, d), y (b, m)."""
        x, y = x - self.shift, y.astype(np.float64)
        self.count += len(x)
        self.x += x.sum(0)
        self.y += y.sum(0)
        self.xx += x.T @ x
        self.xy += x.T @ y

    def plus(self, other: Moments, sign: int = 1) -> Moments:
        """Sums over the rows of both; with sign -1 over those that `other` has not."""
        sums = ((a + sign * b) for a, b in zip(self._sums, other._sums, strict=True))
        return Moments(self.shift, self.count + sign * other.count, *sums)

    @property
    def _sums(self) -> tuple[np.ndarray, ...]:
        return self.x, self.y, self.xx, self.xy

    def ridge(self) -> Ridge:
        """The regression with intercept; the penalty is RIDGE times the mean diagonal of the centred Gram matrix."""
        count = max(self.count, 1)
        centre, mean = self.x / count, self.y / count
        gram = self.xx - count * np.outer(centre, centre)
        penalty = RIDGE * max(float(gram.diagonal().mean()), 1e-12)
        gram[np.diag_indices_from(gram)] += penalty
        return Ridge(self.shift + centre, np.linalg.solve(gram, self.xy - count * np.outer(centre, mean)), mean)


@dataclass(frozen=True, eq=False)
class Ridge:
    """A regression with intercept: (x - centre) W + mean."""

    centre: np.ndarray
    W: np.ndarray
    mean: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Predictions (b, m) of x (b, d)."""
        return ((x - self.centre) @ self.W + self.mean).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Columns:
    """A matrix of `width` columns as `parts` (k, ..., w), each some of its columns, the last ones perhaps idle."""

    parts: np.ndarray
    width: int

    def split(self, block: np.ndarray) -> np.ndarray:
        """Columns (b, width) as they lie in `parts`: (k, b, w)."""
        k, w = len(self.parts), self.parts.shape[-1]
        wide = np.zeros((len(block), k * w), np.float32)
        wide[:, : self.width] = block
        return wide.reshape(len(block), k, w).transpose(1, 0, 2)


def out_of_fold(X: np.ndarray, K: np.ndarray, seed: int, folder: Path) -> Columns:
    """Ridge predictions (n, h c) of the hop labels K (n, h, c) from X (n, d), every row by a model that did not see it.

    They are on disk, in blocks of columns.
    """
    n, d = X.shape
    width = K.shape[1] * K.shape[2]
    fold = (np.random.default_rng(seed).permutation(n) % FOLDS).astype(np.uint8)
    shift = np.asarray(X[:ROWS], np.float64).mean(0)
    moments = [Moments.zero(d, width, shift) for _ in range(FOLDS)]
    for lo, hi in _blocks(0, n):
        x, y = np.asarray(X[lo:hi], np.float32), dequantize(K[lo:hi]).reshape(hi - lo, width)
        for k, sums in enumerate(moments):
            inside = fold[lo:hi] == k
            sums.add(x[inside], y[inside])
        release(X, lo, hi)
        release(K, lo, hi)
    total = moments[0]
    for sums in moments[1:]:
        total = total.plus(sums)
    models = [total.plus(sums, -1).ridge() for sums in moments]
    w = _columns(n, width)
    out = Columns(scratch(folder, "predicted", (-(-width // w), n, w), np.dtype(np.float32)), width)
    for lo, hi in _blocks(0, n):
        x, y = np.asarray(X[lo:hi], np.float32), np.empty((hi - lo, width), np.float32)
        for k, model in enumerate(models):
            inside = fold[lo:hi] == k
            y[inside] = model(x[inside])
        for part, values in zip(out.parts, out.split(y), strict=True):
            part[lo:hi] = values
            release(part, lo, hi)
        release(X, lo, hi)
    return out


@dataclass(frozen=True, eq=False)
class Filtered:
    """A-hat^i of the predictions, i = 0..N, of some nodes: `parts` (k, h, count, w) on disk, in blocks of columns."""

    parts: np.ndarray
    hops: int
    classes: int

    @classmethod
    def of(cls, adj: Adjacency, predicted: Columns, nodes: np.ndarray, h: int, c: int, folder: Path) -> Filtered:
        """Send all predictions through the graph, a block of columns at a time, and keep those of `nodes` (count,)."""
        k, _, w = predicted.parts.shape
        parts = scratch(folder, "filtered", (k, h, len(nodes), w), np.dtype(np.float32))
        for source, part in zip(predicted.parts, parts, strict=True):
            for i, values in enumerate(propagate(adj, np.array(source), h - 1)):
                for lo, hi in _blocks(0, len(nodes)):
                    part[i, lo:hi] = values[nodes[lo:hi]]
                    release(part[i], lo, hi)
            release(source, 0, len(source))
        return cls(parts, h, c)

    @property
    def count(self) -> int:
        """Nodes that were kept."""
        return self.parts.shape[2]

    def rows(self, lo: int, hi: int) -> np.ndarray:
        """Rows (b, h, h, c): the hop of the filter, the hop of the label, the class."""
        k, h, _, w = self.parts.shape
        found = np.array(self.parts[:, :, lo:hi]).transpose(2, 1, 0, 3).reshape(hi - lo, h, k * w)
        for part in self.parts:
            for hop in part:
                release(hop, lo, hi)
        return found[:, :, : self.hops * self.classes].reshape(hi - lo, h, self.hops, self.classes)
