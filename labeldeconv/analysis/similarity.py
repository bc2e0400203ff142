"""The similarity figure: nodes with similar texts but different labels, and how similar their inverse labels are.

    labeldeconv analyze similarity RUN

As in the paper: pairs with a TF-IDF similarity above 0.6 and different true labels, drawn at random, and cosine
similarities of texts, true labels and inverse labels among their nodes. The pairs are chosen to have different labels,
so that true labels must fail on them; `fits` therefore also says, over all similar pairs found and as many random ones,
how text similarity correlates with that of the true labels, of the (pseudo) labels Y = K_0, which is what WO/LD trains
on, and of the inverse labels. Y stands between the two because pseudo labels alone already follow the texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labeldeconv.analysis.tfidf import Tfidf
from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import Task
from labeldeconv.runs.directory import run_with_gamma

DIFFERENT = 0.5  # label similarity up to which labels count as different; multi-class ones are 0 or 1
NEIGHBOURS = 5  # nearest texts looked up per node
EXCERPT = 160  # characters of a text that are shown
KINDS = ("true", "pseudo", "inverse")


@dataclass(frozen=True)
class SimilarNode:
    """A node of the figure."""

    node: int
    id: str
    label: str
    text: str


@dataclass(frozen=True)
class LabelFit:
    """How labels of one kind follow the texts.

    Args:
        correlation: Pearson's, of text and label similarity over `count` pairs, half of them random.
        similar: mean label similarity of pairs with similar texts and different true labels (`Similarity.found`).
        random: mean label similarity of random pairs with different true labels.
    """

    correlation: float | None
    similar: float | None
    random: float | None
    count: int


@dataclass(frozen=True)
class Similarity:
    """Matrices (m, m) over `nodes`, two by two the pairs, and the summary `fits` by kind of label."""

    data: str
    run: str
    gamma: list[float]
    threshold: float
    found: int
    nodes: list[SimilarNode]
    text: list[list[float]]
    true: list[list[float]]
    pseudo: list[list[float]]
    inverse: list[list[float]]
    fits: dict[str, LabelFit]

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return asdict(self)

    def rows(self) -> list[dict[str, Any]]:
        """Part 'pair': one row per two nodes of the figure; part 'fit': one per kind of label."""
        m = len(self.nodes)
        names = ("text", *KINDS)
        pairs = [
            {"part": "pair", "a": self.nodes[i].id, "b": self.nodes[j].id}
            | {"label_a": self.nodes[i].label, "label_b": self.nodes[j].label}
            | {name: getattr(self, name)[i][j] for name in names}
            for i in range(m)
            for j in range(i + 1, m)
        ]
        return pairs + [{"part": "fit", "labels": kind, **asdict(fit)} for kind, fit in self.fits.items()]


def similarity(
    run: str | Path,
    pairs: int | Sequence[tuple[int, int]] = 3,
    threshold: float = 0.6,
    sample: int = 20_000,
    seed: int = 0,
) -> Similarity:
    """The figure for a run with inverse labels (of a comparison: the first one).

    Args:
        run: a run directory, or that of a comparison.
        pairs: how many pairs to draw, or the pairs of node numbers themselves.
        threshold: least text similarity of a pair; where too few reach it, the most similar ones are taken.
        sample: nodes whose nearest texts are looked up; time and memory grow with it, not with n squared.
        seed: of sample and draw.
    """
    source = run_with_gamma(run)
    graph, K = source.labelled_graph()
    if graph.task == "regression":
        raise DataError(f"{run}: similarity of labels is that of classes; a run whose labels are classes expected")
    task, texts = Task.of(graph), Tfidf.of(graph)
    rng = np.random.default_rng(seed)
    usable = np.flatnonzero(_with_a_class(graph) & ~texts.empty)
    if len(usable) < 4:
        raise DataError(f"{run}: at least 4 labelled nodes with a text expected, got {len(usable)}")

    def labels(kind: str, ids: np.ndarray) -> np.ndarray:
        """Rows (m, c) of unit length."""
        if kind == "true":
            rows = np.nan_to_num(task.targets(graph.labels[ids]))
        else:
            rows = source.targets(K, task, ids, alpha=1.0 if kind == "inverse" else 0.0)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)

    near = _near_pairs(texts, usable, min(sample, len(usable)), rng)
    far = rng.choice(usable, near.shape)
    far = far[far[:, 0] != far[:, 1]]
    alike = {kind: _alike(near, kind, labels) for kind in KINDS}
    random = {kind: _alike(far, kind, labels) for kind in KINDS}
    near_text, far_text = texts.cosines(*near.T), texts.cosines(*far.T)
    different = alike["true"] <= DIFFERENT
    wanted = different & (near_text >= threshold)
    text_both = np.concatenate([near_text, far_text])
    fits = {
        kind: LabelFit(
            _correlation(text_both, np.concatenate([alike[kind], random[kind]])),
            _mean(alike[kind][wanted]),
            _mean(random[kind][random["true"] <= DIFFERENT]),
            len(text_both),
        )
        for kind in KINDS
    }
    if isinstance(pairs, int):
        order = rng.permutation(np.flatnonzero(wanted))
        rest = np.flatnonzero(different & ~wanted)
        order = np.concatenate([order, rest[np.argsort(-near_text[rest], kind="stable")]])
        chosen = _disjoint(near[order], pairs)
    else:
        chosen = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        if chosen.size and not (0 <= chosen.min() and chosen.max() < graph.num_nodes):
            raise DataError(f"pairs: node numbers 0..{graph.num_nodes - 1} expected, got {chosen.max()}")
    ids = chosen.reshape(-1)
    grid = np.meshgrid(ids, ids, indexing="ij")
    matrices = {"text": texts.cosines(grid[0].reshape(-1), grid[1].reshape(-1)).reshape(grid[0].shape)}
    matrices |= {kind: (rows := labels(kind, ids)) @ rows.T for kind in KINDS}
    return Similarity(
        data=graph.name,
        run=source.name,
        gamma=source.gamma or [],
        threshold=threshold,
        found=int(wanted.sum()),
        nodes=[_node(graph, int(i)) for i in ids],
        fits=fits,
        **{name: np.round(matrix.astype(float), 4).tolist() for name, matrix in matrices.items()},
    )


def _with_a_class(graph: AttributedGraph) -> np.ndarray:
    """Whether a node (n,) has a class, or a positive label: labels without one have no direction to compare."""
    return np.asarray(graph.labels >= 0 if graph.task == "multiclass" else (graph.labels > 0).any(1))


def _near_pairs(texts: Tfidf, usable: np.ndarray, sample: int, rng: np.random.Generator) -> np.ndarray:
    """Pairs (m, 2) of a sampled node and one of its nearest texts, each pair once."""
    queries = np.sort(rng.choice(usable, sample, replace=False))
    ids, _ = texts.nearest(queries, NEIGHBOURS)
    pairs = np.stack([np.repeat(queries, ids.shape[1]), ids.reshape(-1)], axis=1)
    pairs = np.sort(pairs[np.isin(pairs[:, 1], usable)], axis=1)
    if not len(pairs):
        raise DataError("similarity: no two labelled nodes share a word")
    return np.unique(pairs, axis=0)


def _alike(pairs: np.ndarray, kind: str, labels: Any) -> np.ndarray:
    """Cosine similarity (m,) of the labels of pairs (m, 2), in blocks."""
    blocks = [pairs[i : i + (1 << 14)] for i in range(0, len(pairs), 1 << 14)]
    return np.concatenate([(labels(kind, b[:, 0]) * labels(kind, b[:, 1])).sum(1) for b in blocks])


def _disjoint(pairs: np.ndarray, count: int) -> np.ndarray:
    """The first `count` pairs (count, 2) that share no node."""
    used: set[int] = set()
    out: list[tuple[int, int]] = []
    for a, b in pairs.tolist():
        if len(out) == count:
            break
        if a not in used and b not in used:
            used |= {a, b}
            out.append((a, b))
    return np.array(out, dtype=np.int64).reshape(-1, 2)


def _correlation(x: np.ndarray, y: np.ndarray) -> float | None:
    return round(float(np.corrcoef(x, y)[0, 1]), 4) if x.std() > 0 and y.std() > 0 else None


def _mean(values: np.ndarray) -> float | None:
    return round(float(values.mean()), 4) if len(values) else None


def _node(graph: AttributedGraph, node: int) -> SimilarNode:
    if graph.task == "multiclass":
        label = graph.class_names[graph.labels[node]]
    else:
        label = ", ".join(graph.class_names[k] for k in np.flatnonzero(graph.labels[node] > 0))
    return SimilarNode(node, graph.node_id(node), label, graph.texts[node][:EXCERPT])
