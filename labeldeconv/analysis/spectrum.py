"""The spectrum table of Appendix A.3: multiple eigenvalues, missing frequencies; and whether phi(A-hat) is invertible.

    labeldeconv analyze spectrum DATA|RUN

Assumption 2 wants no multiple eigenvalue of L-hat = I - A-hat and no frequency that the features lack; Assumption 1 and
Proposition 1 want phi(A-hat) = sum_i theta_i A-hat^i invertible: phi(lambda) != 0 for every eigenvalue lambda of A-hat.
D^-1 A and D^-1/2 A D^-1/2 have the same eigenvalues; the symmetric one is decomposed. Where no connected component has
more than `dense_nodes` nodes all of it is exact. Above, the density of eigenvalues and of a signal's energy come from
Chebyshev moments, multiplicities of 1, -1 and 0 from the structure, and the lower end from Lanczos unless a bipartite
component makes it -1: R_multi is then a lower bound, N_miss an estimate.

A frequency is a distinct eigenvalue and is missing where the whole eigenspace is orthogonal to the signal, so that the
count does not depend on the basis chosen inside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from labeldeconv.analysis.chebyshev import binned, chebyshev_moments, lowest_eigenvalue
from labeldeconv.analysis.decomposition import decompose, largest_component
from labeldeconv.analysis.known import convolutions_of
from labeldeconv.analysis.phi import Invertibility, bounded_phi, exact_phi, power
from labeldeconv.analysis.structure import known_eigenvalues
from labeldeconv.errors import DataError
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import Task
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.settings.models import AdjacencyConfig, Config

DENSE_NODES = 20_000  # in the largest component: 3.2 GB and about a quarter of an hour, see `decomposition`
# Eigenvalues closer than this are one. Equal ones come out within 1e-14 of each other. Of 20,000 in [-1, 1] that do not
# repel each other two lie within 1e-8 by chance (n^2 / 2 pairs at a mean distance of 1), and none within 1e-10.
EQUAL = 1e-10
MISSING = 1e-10  # energy per dimension below this share of the mean is none (amplitude: 1e-5)
BINS, PROBES = 50, 16
SHOWN = 10  # multiple eigenvalues listed


@dataclass(frozen=True)
class Multiple:
    """An eigenvalue of A-hat and how often it comes (at least, where the spectrum is not exact)."""

    eigenvalue: float
    multiplicity: int


@dataclass(frozen=True)
class Spectrum:
    """One column of the table, the densities behind it, and every phi.

    Args:
        exact: all eigenvalues were computed; otherwise see the module.
        distinct: number of different eigenvalues; not exact: an upper bound.
        multi_ratio: R_multi, share of multiple ones among the different eigenvalues, in percent.
        coinciding: share of all eigenvalues that are not simple, in percent; not exact: a lower bound.
        multiple: the most frequent multiple eigenvalues.
        missing: N_miss by signal.
        low, high: ends of the spectrum of A-hat.
        bins: edges (b + 1,) of bins of lambda; `eigenvalues` (b,) and `energy[signal]` (b,) are shares that sum to 1.
    """

    data: str
    nodes: int
    edges: int
    exact: bool
    distinct: int
    multi_ratio: float
    coinciding: float
    multiple: list[Multiple]
    missing: dict[str, int]
    low: float
    high: float
    phi: list[Invertibility]
    bins: list[float]
    eigenvalues: list[float]
    energy: dict[str, list[float]]

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return asdict(self)

    def rows(self) -> list[dict[str, Any]]:
        """Part 'graph': the table's column; 'multiple', 'phi' and 'bin': one row each."""
        names = ("data", "nodes", "edges", "exact", "distinct", "multi_ratio", "coinciding", "low", "high")
        head = {k: getattr(self, k) for k in names}
        out: list[dict[str, Any]] = [{"part": "graph", **head} | {f"missing_{k}": v for k, v in self.missing.items()}]
        out += [{"part": "multiple", **asdict(m)} for m in self.multiple]
        out += [
            {"part": "phi", **asdict(p), "coefficients": " ".join(f"{c:.6g}" for c in p.coefficients)} for p in self.phi
        ]
        for i, share in enumerate(self.eigenvalues):
            energies = {f"energy_{name}": values[i] for name, values in self.energy.items()}
            out.append({"part": "bin", "from": self.bins[i], "to": self.bins[i + 1], "eigenvalues": share, **energies})
        return out


def spectrum(
    graph: AttributedGraph | tuple[np.ndarray, int],
    signals: Mapping[str, np.ndarray] | None = None,
    phi: Mapping[str, Sequence[float]] | None = None,
    adjacency: AdjacencyConfig | None = None,
    dense_nodes: int = DENSE_NODES,
    moments: int = 256,
    seed: int = 0,
) -> Spectrum:
    """Spectrum of A-hat of a graph, or of edges (2, e) with a number of nodes.

    Args:
        signals: (n, d) arrays by name whose frequencies are looked at; default the graph's labels (0 where unknown).
        phi: coefficients theta_0, theta_1, ... by name.
        adjacency: self-loops or not; edges always count both ways. Default: the paper's, without.
        dense_nodes: where no connected component has more nodes the whole spectrum is computed.
        moments: Chebyshev moments above that; they resolve pi / moments.
        seed: of the random vectors.
    """
    edges, n = (graph.edges, graph.num_nodes) if isinstance(graph, AttributedGraph) else graph
    if signals is None:
        signals = label_signal(graph) if isinstance(graph, AttributedGraph) else {}
    for name, x in signals.items():
        if x.ndim != 2 or len(x) != n:
            raise DataError(f"signal '{name}': shape ({n}, d) expected, got {x.shape}")
    config = (adjacency or AdjacencyConfig()).model_copy(update={"undirected": True, "normalization": "symmetric"})
    adj = Adjacency.from_edges(edges, n, config)
    root = 1.0 / np.sqrt(np.diff(adj.indptr).astype(np.float64))  # in full precision: equal eigenvalues stay equal
    adj = replace(adj, left=root, right=root)
    loops = int((adj.indices == np.repeat(np.arange(n), np.diff(adj.indptr))).sum())
    head: dict[str, Any] = {
        "data": graph.name if isinstance(graph, AttributedGraph) else "graph",
        "nodes": n,
        "edges": (len(adj.indices) - loops) // 2,
    }
    grid = np.linspace(-1.0, 1.0, BINS + 1)
    filters = {name: [float(c) for c in theta] for name, theta in (phi or {}).items()}
    exact = largest_component(adj) <= max(dense_nodes, 1)  # Lanczos needs two nodes
    rest = _dense(adj, signals, filters, grid) if exact else _estimated(adj, signals, filters, grid, moments, seed)
    return Spectrum(**head, exact=exact, bins=grid.round(4).tolist(), **rest)


def spectrum_for(
    graph: AttributedGraph,
    config: Config,
    run: RunDirectory | None = None,
    hops: int | None = None,
    self_loops: bool | None = None,
    dense_nodes: int = DENSE_NODES,
) -> Spectrum:
    """The spectrum that settings speak of: phi = A-hat^N, N of the GNN or `hops`, and the labels' A-hat.

    A run adds its features as a signal and, where it has one, gamma as a filter: sum_i gamma_i A-hat^i stands for the
    inverse of phi. Without a run the given features, if any, are the second signal.
    """
    signals = label_signal(graph)
    if run is not None:
        signals["features"] = run.features
    elif graph.features is not None:
        signals["given features"] = graph.features
    number = hops
    if number is None:
        number = Architecture.of(config.gnn).hops if run is None else convolutions_of(run)
    phi = {f"A-hat^{number}": power(number)}
    if run is not None and run.gamma:
        phi["inverse labels (gamma)"] = run.gamma
    adjacency = config.labels.adjacency
    if self_loops is not None:
        adjacency = adjacency.model_copy(update={"self_loops": self_loops})
    return spectrum(graph, signals, phi, adjacency, dense_nodes)


def label_signal(graph: AttributedGraph) -> dict[str, np.ndarray]:
    """The true labels (n, c) of a graph as a signal, 0 where unknown."""
    return {"labels": np.nan_to_num(Task.of(graph).targets(graph.labels)).astype(np.float64)}


def _dense(
    adj: Adjacency, signals: Mapping[str, np.ndarray], phi: Mapping[str, list[float]], grid: np.ndarray
) -> dict[str, Any]:
    n = adj.num_nodes
    values, strengths = decompose(adj, signals)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(values) > EQUAL) + 1])
    sizes = np.diff([*starts, n])
    means = np.add.reduceat(values, starts) / sizes
    missing, energy = {}, {}
    for name, strength in strengths.items():  # (n,) energy per eigenvector
        total = max(float(strength.sum()), 1e-300)
        missing[name] = int((np.add.reduceat(strength, starts) / sizes <= MISSING * total / n).sum())
        energy[name] = _shares(np.histogram(np.clip(values, -1, 1), grid, weights=strength)[0])
    order = np.argsort(-sizes, kind="stable")[:SHOWN]
    return {
        "distinct": len(starts),
        "multi_ratio": round(100 * float((sizes > 1).mean()), 4),
        "coinciding": round(100 * float(sizes[sizes > 1].sum()) / n, 4),
        "multiple": [Multiple(round(float(means[i]), 8) + 0.0, int(sizes[i])) for i in order if sizes[i] > 1],
        "missing": missing,
        "low": float(values[0]),
        "high": float(values[-1]),
        "phi": [exact_phi(name, theta, values) for name, theta in phi.items()],
        "eigenvalues": _shares(np.histogram(np.clip(values, -1, 1), grid)[0]),
        "energy": energy,
    }


def _estimated(
    adj: Adjacency,
    signals: Mapping[str, np.ndarray],
    phi: Mapping[str, list[float]],
    grid: np.ndarray,
    moments: int,
    seed: int,
) -> dict[str, Any]:
    n, rng = adj.num_nodes, np.random.default_rng(seed)
    known = known_eigenvalues(adj)
    start = rng.standard_normal(n)
    low, high = -1.0 if -1.0 in known else lowest_eigenvalue(adj, start), 1.0
    density = np.array(_shares(binned(chebyshev_moments(adj, rng.choice([-1.0, 1.0], (n, PROBES)), moments), grid)))
    missing, energy = {}, {}
    for name, x in signals.items():
        # Random mixtures of the columns have the same energy per frequency in the mean, at the cost of a few columns.
        mixed = np.asarray(x, dtype=np.float64)
        if x.shape[1] > PROBES:
            mixed = mixed @ rng.standard_normal((x.shape[1], PROBES))
        energy[name] = _shares(binned(chebyshev_moments(adj, mixed, moments), grid))
        there = density * n >= 1
        none = there & (np.array(energy[name]) < MISSING**0.5 * density)  # blurred, so less strict than exact
        missing[name] = round(float(n * density[none].sum()))
    several = {value: count for value, count in known.items() if count > 1}
    distinct = n - sum(count - 1 for count in several.values())
    return {
        "distinct": distinct,
        "multi_ratio": round(100 * len(several) / distinct, 4),
        "coinciding": round(100 * sum(several.values()) / n, 4),
        "multiple": [Multiple(v, c) for v, c in sorted(several.items(), key=lambda item: -item[1])],
        "missing": missing,
        "low": low,
        "high": high,
        "phi": [bounded_phi(name, theta, low, list(known), density, grid) for name, theta in phi.items()],
        "eigenvalues": density.tolist(),
        "energy": energy,
    }


def _shares(values: np.ndarray) -> list[float]:
    return (values / max(float(values.sum()), 1e-300)).tolist()
