"""An explanation in the user's words: which hop and which neighbours carried a node's prediction.

    told = Predictor.load("runs/papers-ld-gcn-0").explain("W2741")
    told.by_hop, told.own, [(n.id, n.contribution) for n in told.neighbours]

own + the neighbours + others + of_labels + gap = logit - baseline. How they are found stands in prediction/attribution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from labeldeconv.errors import ConfigError, nearest
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.prediction.attribution import Attribution


@dataclass(frozen=True)
class Neighbour:
    """A node that contributed: its id, the edges from it to the explained one, and the label that the graph has.

    `label` is None where none is known, a list in a multi-label task, and a number, or a list of them, in a regression.
    """

    id: str
    distance: int
    contribution: float
    label: Any


@dataclass(frozen=True)
class Explanation:
    """What carried one logit of one node.

    Args:
        node: its id.
        of: the class that is explained.
        by: 'gnn' or 'psi', what predicted the node.
        logit: of the class; in a regression the predicted number.
        baseline: the same logit where every node has the mean features of the graph and no label is known.
        how: 'exact', or which integrated gradients.
        hops_are: what `by_hop` counts, 'powers of A-hat' or 'distances'.
        by_hop: contribution of hop 0, 1, ...
        own: of the node's own features.
        neighbours: those with the largest contributions, of either sign.
        others: of all other nodes together, of which there are `num_others`.
        of_labels: of the label inputs; None where the GNN has no label branch.
        gap: what is lacking, the error of the integral; 0 where `how` is 'exact'.
        points: of the integral.
    """

    node: str
    of: str
    by: str
    logit: float
    baseline: float
    how: str
    hops_are: str
    by_hop: list[float]
    own: float
    neighbours: list[Neighbour]
    others: float
    num_others: int
    of_labels: float | None
    gap: float
    points: int

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return asdict(self)

    def in_unit(self, mean: float, std: float) -> Explanation:
        """The same of outputs in standard units as numbers in the unit of the labels, mean + std * output."""
        return replace(
            self,
            logit=mean + std * self.logit,
            baseline=mean + std * self.baseline,
            by_hop=[std * value for value in self.by_hop],
            own=std * self.own,
            neighbours=[replace(near, contribution=std * near.contribution) for near in self.neighbours],
            others=std * self.others,
            of_labels=None if self.of_labels is None else std * self.of_labels,
            gap=std * self.gap,
        )


def class_number(names: list[str], of: str | None, logits: np.ndarray, what: str = "class") -> int:
    """The number of the class `of`; of None that of the largest of the logits (c,). `what` they are, for errors."""
    if of is None:
        return int(logits.argmax())
    if of not in names:
        raise ConfigError(f"explain: no {what} '{of}'; {nearest(of, names)}")
    return names.index(of)


def in_words(
    found: Attribution, node: int, of: int, by: str, graph: AttributedGraph, name_of: Callable[[int], str], top: int
) -> Explanation:
    """An attribution with ids in place of numbers, and the `top` neighbours named."""
    if top < 0:
        raise ConfigError(f"explain: top of at least 0 expected, got {top}")
    own = found.nodes == node
    ranked = np.argsort(-np.abs(np.where(own, 0.0, found.by_node)), kind="stable")
    ranked = ranked[~own[ranked]]
    named = ranked[:top]
    return Explanation(
        node=name_of(node),
        of=graph.class_names[of],
        by=by,
        logit=found.logit,
        baseline=found.baseline,
        how=found.how,
        hops_are=found.hops_are,
        by_hop=[float(value) for value in found.by_hop],
        own=float(found.by_node[own].sum()),
        neighbours=[
            Neighbour(name_of(int(u)), int(distance), float(value), known_label(graph, int(u)))
            for u, distance, value in zip(found.nodes[named], found.distance[named], found.by_node[named], strict=True)
        ],
        others=float(found.by_node[ranked[top:]].sum()),
        num_others=len(ranked[top:]),
        of_labels=found.of_labels,
        gap=found.gap,
        points=found.points,
    )


def known_label(graph: AttributedGraph, node: int) -> Any:
    """The class of a node, the list of its labels in a multi-label task, or its number, a list of several.

    None for a new node or a missing label.
    """
    if node >= graph.num_nodes:
        return None
    label = graph.labels[node]
    if graph.task == "regression":
        told = [None if np.isnan(value) else float(value) for value in label]
        return told[0] if len(told) == 1 else told
    if graph.task == "multiclass":
        return graph.class_names[int(label)] if label >= 0 else None
    return [graph.class_names[k] for k in np.flatnonzero(label > 0)] if (label >= 0).any() else None
