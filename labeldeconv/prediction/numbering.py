"""New nodes as a user names them: ids, texts and edges by id become node numbers n..n + m - 1, or are refused.

Ids are compared as text, so 7 and '7' are the same node and '007' is another. All that is wrong is told at once, each
with its row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labeldeconv.data.findings import EXAMPLES
from labeldeconv.errors import DataError, nearest
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.texts import Texts

Place = Callable[[int], str]
SUGGESTED = 20_000  # ids among which the nearest to an unknown one is looked for


@dataclass(frozen=True, eq=False)
class NewNodes:
    """m new nodes.

    Args:
        ids: m ids as text, distinct and not in the graph.
        texts: m texts, residue sequences or records; None for runs on given features.
        edges: (2, k) node numbers, sources above targets.
        features: (m, d), for runs on given features, or of the texts where they are encoded already.
        edge_values: (k, .) features of the edges, where the GNN reads some.
    """

    ids: list[str]
    texts: list[str] | None
    edges: np.ndarray
    features: np.ndarray | None = None
    edge_values: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Places:
    """How messages name the rows of nodes and edges: 'new.csv, line 4', or 'node 3'.

    `suggests` looks for the id nearest to an unknown one, which takes up to a second among many.
    """

    nodes: str = "nodes"
    edges: str = "edges"
    node: Place = field(default=lambda row: f"node {row}")
    edge: Place = field(default=lambda row: f"edge {row}")
    suggests: bool = True


class Numbers:
    """Node numbers of a graph by the user's ids as text; made once, for any number of look-ups."""

    def __init__(self, graph: AttributedGraph) -> None:
        self.graph = graph
        self._names: dict[str, int] | None = None
        self._order: np.ndarray | None = None
        if isinstance(graph.ids, Texts):
            self._names = {name: i for i, name in enumerate(graph.ids)}
        elif graph.ids is not None:
            self._order = np.argsort(graph.ids, kind="stable")

    def find(self, name: str) -> int | None:
        """The number of an id; None where the graph has no such node."""
        if self._names is not None:
            return self._names.get(name)
        number = _integer(name)
        if number is None:
            return None
        if self._order is None:
            return number if 0 <= number < self.graph.num_nodes else None
        ids = np.asarray(self.graph.ids)
        place = int(np.searchsorted(ids, number, sorter=self._order))
        if place < len(ids) and ids[self._order[place]] == number:
            return int(self._order[place])
        return None

    def number(self, name: Any) -> int:
        """The number of an id, however it is written; a DataError where the graph has no such node."""
        found = self.find(_text(name))
        if found is None:
            raise DataError(f"no node '{_text(name)}' in the run's graph; {_hint(_text(name), self, True)}")
        return found

    def some(self) -> list[str]:
        """Ids to compare an unknown one with."""
        return [self.graph.node_id(i) for i in range(min(self.graph.num_nodes, SUGGESTED))]


def numbered(
    known: Numbers,
    ids: Sequence[Any],
    edges: Sequence[tuple[Any, Any]] | np.ndarray,
    places: Places | None = None,
) -> tuple[list[str], np.ndarray]:
    """The ids (m,) as text and the edges (2, k) as node numbers, from pairs of ids; everything wrong is one error."""
    places = places or Places()
    n, names, wrong = known.graph.num_nodes, [_text(one) for one in ids], []
    missing = [row for row, name in enumerate(names) if name == ""]
    wrong += _told(missing, places.nodes, "ids are missing", places.node)
    first: dict[str, int] = {}
    twice = [row for row, name in enumerate(names) if name and first.setdefault(name, row) != row]
    wrong += _told(twice, places.nodes, "ids occur more than once", places.node, names)
    taken = [row for row, name in enumerate(names) if name and known.find(name) is not None]
    why = "ids are in the run's graph already; its nodes are not predicted anew, and a new one has an id of its own"
    wrong += _told(taken, places.nodes, why, places.node, names)
    pairs = [(_text(a), _text(b)) for a, b in edges]
    out = np.full((2, len(pairs)), -1, dtype=np.int64)
    unknown: dict[int, str] = {}
    for row, pair in enumerate(pairs):
        for side, name in enumerate(pair):
            number = known.find(name)
            if number is None and name not in first:
                unknown.setdefault(row, name)
            else:
                out[side, row] = n + first[name] if number is None else number
    if unknown:
        told = _told(
            list(unknown), places.edges, "edges name a node that is neither new nor in the graph", places.edge, unknown
        )
        wrong += [f"{told[0]}; {_hint(next(iter(unknown.values())), known, places.suggests)}"]
    between = [row for row in range(len(pairs)) if row not in unknown and (out[:, row] < n).all()]
    wrong += _told(
        between, places.edges, "edges join two nodes of the graph; one end of a new edge is new", places.edge
    )
    if wrong:
        raise DataError("new nodes:", wrong)
    return names, out


def _told(
    rows: Sequence[int], where: str, what: str, place: Place, names: Sequence[str] | Mapping[int, str] | None = None
) -> list[str]:
    if not rows:
        return []
    shown = [f"{place(row)} ('{names[row]}')" if names is not None else place(row) for row in rows[:EXAMPLES]]
    dots = ", ..." if len(rows) > EXAMPLES else ""
    return [f"{where}: {len(rows)} {what}: {', '.join(shown)}{dots}"]


def _hint(name: str, known: Numbers, suggests: bool) -> str:
    """The nearest id, without the list of all."""
    told = nearest(name, known.some()).partition("known:")[0].strip() if suggests else ""
    return told or f"the graph has {known.graph.num_nodes} nodes, such as '{known.graph.node_id(0)}'"


def _text(value: Any) -> str:
    """An id as text; a whole float, as tables with gaps have them, without its point."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _integer(name: str) -> int | None:
    """The integer that a text is, if it is written as one ('7', not '007' or '7.0')."""
    try:
        number = int(name)
    except ValueError:
        return None
    return number if str(number) == name and -(2**63) <= number < 2**63 else None
