"""The learning bias on a graph: how far training on labels is from joint training, and so whether LD can help.

    labeldeconv analyze bias DATA|RUN|COMPARISON

Before any training (sec:motivation). Joint training fits phi(A-hat) psi(F) to Y, label-only training fits psi(F) to Y
itself. Suppose the encoder reaches its target exactly. Then the GNN's convolution turns it into phi(A-hat) Y, and
|| phi(A-hat) Y - Y || / || Y || is the bias, `residual_labels`: 0 where phi is the identity on the labels. With
inverse labels as targets it is || phi(A-hat) Y(gamma) - Y || / || Y ||, at the best gamma: of any sign as in
eqn:inv_label (`residual_free`), or from a softmax as in the implementation (`residual_inverse`). phi is
A-hat^N of the GNN (GCN and GAT, Appendix A.2), labels are centred, scale is free. In the motivating example these are
1 for labels and 0 for inverse labels. `dependence` asks what Assumption 1 supposes, that labels depend on the graph:
the share of the labels' energy that neighbours' labels at one and two hops explain (least squares, a node's own label
taken out). It also is the squared distance between Y and the whitened Y - a_1 A-hat Y - a_2 A-hat^2 Y.

Only labels of train nodes and edges among them are read, unless `nodes` says otherwise, so that the answer may decide
what to train. It says nothing of how well texts tell the targets: a target that is closer to the texts can help too,
and `analyze similarity` shows that.

After training: psi of the encoder alone against the GNN, the distance of the targets of LD from those of WO/LD, and
differences of test scores.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.optimize import nnls

from labeldeconv.analysis.card import homophily, isolated, labelled
from labeldeconv.analysis.known import hops_of
from labeldeconv.analysis.outcome import Outcome, outcome
from labeldeconv.errors import DataError
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import Task
from labeldeconv.propagation.adjacency import Adjacency, propagate
from labeldeconv.runs.directory import open_runs
from labeldeconv.settings.models import Config

SMALL = 0.1  # a residual, or a share of its square, that is not worth a method
INDEPENDENT = 0.05  # labels of which neighbours explain less than this do not depend on the graph


@dataclass(frozen=True)
class Before:
    """The bias from labels and graph alone; the module says what the residuals are.

    Args:
        nodes: labelled nodes looked at.
        hops: N, of phi and of the inverse labels.
        isolated: share of all nodes without a neighbour: there LD and WO/LD are the same.
        alone: share of the nodes looked at that have no neighbour among them.
        homophily: share of edges with equal labels (multi-label: mean Jaccard index).
        conflict: share of nodes whose own class is not the first among their neighbours; None for multi-label.
        target_distance: || Y(gamma) - Y || / || Y || at the uniform gamma that training starts from.
        gamma: the best gamma of a softmax; `gamma_free` of any sign, scaled to sum 1 where it can.
        removable: share of the squared bias that LD can take away at the best, 1 - (inverse / labels)^2.
    """

    nodes: int
    hops: int
    isolated: float
    alone: float
    homophily: float | None
    conflict: float | None
    dependence: float
    target_distance: float
    residual_labels: float
    residual_inverse: float
    residual_free: float
    gamma: list[float]
    gamma_free: list[float]
    removable: float
    can_help: bool
    verdict: str


@dataclass(frozen=True)
class Bias:
    """Before training and, for runs, after it."""

    data: str
    before: Before
    after: Outcome | None

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return asdict(self)

    def rows(self) -> list[dict[str, Any]]:
        """Part 'before': one row per quantity; 'run' and 'difference': one row each."""
        values = {k: " ".join(map(str, v)) if isinstance(v, list) else v for k, v in asdict(self.before).items()}
        out = [{"part": "before", "quantity": name, "value": value} for name, value in values.items()]
        if self.after:
            out += [{"part": "run", **asdict(run)} for run in self.after.runs]
            out += [{"part": "difference", **asdict(difference)} for difference in self.after.differences]
        return out


def bias(
    source: AttributedGraph | str | Path,
    config: Config | None = None,
    nodes: Literal["train", "labelled"] = "train",
) -> Bias:
    """The bias on a graph, or on the graph of a run or comparison with what came of it.

    Args:
        source: a graph, or the directory of a run or comparison, whose settings are then taken.
        config: resolved settings that give N, the GNN and its A-hat; default all defaults, or those of the run.
        nodes: whose labels are read.
    """
    if isinstance(source, AttributedGraph):
        return Bias(source.name, before_training(source, config or Config(), nodes), None)
    runs = open_runs(source)
    graph, hops = runs[0].graph, None if config else hops_of(runs[0])
    return Bias(graph.name, before_training(graph, config or runs[0].config(), nodes, hops), outcome(runs))


def before_training(
    graph: AttributedGraph, config: Config, nodes: Literal["train", "labelled"] = "train", hops: int | None = None
) -> Before:
    """The quantities of `Before` for the A-hats of the settings and for N, `hops`, or the N of the settings."""
    view = graph.training_view() if nodes == "train" else graph.induced(np.flatnonzero(labelled(graph)), graph.name)
    task, labels = Task.of(graph), config.labels
    if view.num_nodes < 2:
        raise DataError(f"graph '{graph.name}': at least 2 labelled nodes expected, got {view.num_nodes}")
    if hops is None:
        hops = Architecture.of(config.gnn).hops if labels.hops is None else labels.hops
    adj = Adjacency.from_edges(view.edges, view.num_nodes, labels.adjacency.model_copy(update={"normalization": "row"}))
    # Rows of a row-normalised A-hat sum to 1, so that centred labels stay centred; the eigenvalues are the same.
    by_row = config.gnn.adjacency.model_copy(update={"normalization": "row"})
    phi = Adjacency.from_edges(view.edges, view.num_nodes, by_row)
    targets = task.targets(view.labels).astype(np.float64)
    mean = np.nan_to_num(np.nanmean(targets, axis=0))
    Y = np.where(np.isnan(targets), mean, targets)
    residuals = _residuals(Y - mean, adj, phi, hops)
    alone = isolated(adj)
    K = list(propagate(adj, Y, max(hops, 1)))
    conflict = float((K[1].argmax(1) != Y.argmax(1)).mean()) if task.kind == "multiclass" else None
    dependence = _dependence(Y - mean, view)
    uniform = sum(K[: hops + 1]) / (hops + 1)
    can_help, verdict = _verdict(dependence, residuals)
    return Before(
        nodes=view.num_nodes,
        hops=hops,
        isolated=round(float(isolated(Adjacency.from_edges(graph.edges, graph.num_nodes)).mean()), 4),
        alone=round(float(alone.mean()), 4),
        homophily=homophily(view),
        conflict=None if conflict is None else round(conflict, 4),
        dependence=round(dependence, 4),
        target_distance=round(float(np.linalg.norm(uniform - Y) / max(float(np.linalg.norm(Y)), 1e-300)), 4),
        can_help=can_help,
        verdict=verdict,
        **residuals,
    )


def _residuals(Y: np.ndarray, adj: Adjacency, phi: Adjacency, hops: int) -> dict[str, Any]:
    """Least errors || phi(A-hat) sum_i gamma_i K_i - Y || / || Y || over gamma: Y alone, of any sign, not negative."""
    images = []  # phi(A-hat) K_i, flat
    for K_i in propagate(adj, Y, hops):
        *_, image = propagate(phi, K_i, hops)
        images.append(image.reshape(-1))
    gram = np.array([[a @ b for b in images] for a in images])
    cross = np.array([a @ Y.reshape(-1) for a in images])
    energy = max(float((Y * Y).sum()), 1e-300)

    def error(gamma: np.ndarray) -> float:
        left = energy - 2 * cross @ gamma + gamma @ gram @ gamma
        return round(float(np.sqrt(max(left, 0.0) / energy)), 4)

    free = np.linalg.lstsq(gram, cross, rcond=1e-12)[0]
    plain = _nonnegative(gram[:1, :1], cross[:1], hops + 1)
    positive = _nonnegative(gram, cross, hops + 1)
    labels, inverse = error(plain), error(positive)
    return {
        "residual_labels": labels,
        "residual_inverse": inverse,
        "residual_free": error(free),
        "gamma": _scaled(positive),
        "gamma_free": _scaled(free),
        "removable": round(1 - (inverse / labels) ** 2, 4) if labels > 0 else 0.0,
    }


def _nonnegative(gram: np.ndarray, cross: np.ndarray, size: int) -> np.ndarray:
    """Non-negative least squares (size,) from X^T X (h, h) and X^T y (h,), 0 behind h; of equal hops the first counts.

    scipy wants X and y themselves, which are as long as all labels. Any root of the Gram matrix stands for them: here
    that of its eigenvalues, without those that are 0 up to rounding, so that dependent hops do no harm.
    """
    values, U = np.linalg.eigh(gram)
    root = np.sqrt(np.where(values > 1e-12 * values[-1], values, 0.0))
    target = np.divide(U.T @ cross, root, out=np.zeros(len(root)), where=root > 0)
    order = 1 - 1e-9 * np.arange(len(cross))  # a column's scale changes no answer, but decides between equal columns
    out = np.zeros(size)
    out[: len(cross)] = order * nnls(root[:, None] * U.T * order, target)[0]
    return out


def _scaled(gamma: np.ndarray) -> list[float]:
    total = float(gamma.sum())
    return [round(float(g), 4) + 0.0 for g in (gamma / total if abs(total) > 1e-9 else gamma)]


def _dependence(Y: np.ndarray, view: AttributedGraph) -> float:
    """Share of the energy of centred labels Y (n, c) explained by A-hat Y and A-hat^2 Y without the own label."""
    adj = Adjacency.from_edges(view.edges, view.num_nodes)
    _, one, two = propagate(adj, Y, 2)
    own = (adj @ (1.0 / np.diff(adj.indptr))[:, None])[:, 0]  # diagonal of A-hat^2: walks there and back
    inner = np.maximum(1 - own, 1e-9)[:, None]
    gone = isolated(adj)[:, None]
    columns = [np.where(gone, 0.0, one), np.where(gone | (inner < 1e-6), 0.0, (two - own[:, None] * Y) / inner)]
    X, y = np.stack([c.reshape(-1) for c in columns], axis=1), Y.reshape(-1)
    left = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    return 1 - float(left @ left) / max(float(y @ y), 1e-300)


def _verdict(dependence: float, found: dict[str, Any]) -> tuple[bool, str]:
    """Whether LD can help, and one sentence why."""
    labels, inverse, free = found["residual_labels"], found["residual_inverse"], found["residual_free"]
    gamma = ", ".join(f"{g:.2f}" for g in found["gamma"])
    if labels < SMALL:
        return False, (
            f"LD is not needed: labels pass the convolution almost unchanged (error {labels:.2f}), "
            "so training on them already is joint training."
        )
    if dependence < INDEPENDENT:
        return False, (
            f"LD is unlikely to help: neighbours' labels explain only {100 * dependence:.0f}% of the labels, "
            "which hardly depend on the graph."
        )
    if found["removable"] >= SMALL:
        return True, (
            f"LD can help: behind the convolution, targets Y leave an error of {labels:.2f} and inverse labels "
            f"one of {inverse:.2f} (gamma {gamma})."
        )
    signed = f"; only weights of both signs would leave less ({free:.2f})" if free < 0.95 * labels else ""
    return False, (
        f"LD is unlikely to remove the bias: behind the convolution, targets Y leave an error of {labels:.2f} and no "
        f"mix of hop labels with weights of a softmax leaves less than {inverse:.2f}{signed}."
    )
