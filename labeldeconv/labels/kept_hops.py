"""Hop labels that an earlier run had, found in the cache, for a graph of which a little has changed since.

A run names the results of the stage `hops` that it used. One of them serves where it lies in the cache, was made by
this version of the stage with the same settings, of the edges that the run directory holds, by their hash. Which node
is which is said by ids, and cannot make a result wrong: rows are compared before they are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.texts import Texts
from labeldeconv.propagation.changed_hops import EarlierHops
from labeldeconv.stages.stage import Stage


@dataclass(frozen=True, eq=False)
class KeptHops:
    """Hop labels of an earlier run, and how its nodes are called now.

    Args:
        run: its folder, for messages.
        keys: of the results of the stage `hops` that it used.
        open_graph: gives the graph that they are of; it is called when the graph is first needed.
        now: the graph whose hop labels are wanted.
    """

    run: str
    keys: tuple[str, ...]
    open_graph: Callable[[], AttributedGraph]
    now: AttributedGraph

    @cached_property
    def graph(self) -> AttributedGraph:
        """The graph that the kept hop labels are of."""
        return self.open_graph()

    @cached_property
    def rows(self) -> np.ndarray:
        """The rows (n,) that nodes of now have in the kept hop labels, -1 for new ones."""
        return places_of(_ids(self.now), _ids(self.graph))

    @cached_property
    def edges(self) -> np.ndarray:
        """The edges (2, e) of then in the numbers of now, n for nodes that are gone."""
        n, then = len(self.rows), self.graph
        if n >= then.num_nodes and np.array_equal(self.rows[: then.num_nodes], np.arange(then.num_nodes)):
            return then.edges
        now = np.full(then.num_nodes, n, then.edges.dtype)
        now[self.rows[self.rows >= 0]] = np.flatnonzero(self.rows >= 0)
        return now[then.edges]

    def found(self, stage: Stage[Any, Any], backward: bool, **arguments: Any) -> Iterator[EarlierHops]:
        """Those that lie in the cache as they were written, made with the same arguments."""
        for key, made_of in stage.kept(backward=backward, **arguments):
            if key not in self.keys or (K := stage.opened(key)) is None:
                continue
            if made_of["graph"] == {name: self.graph.key_of(name) for name in ("edges", "num_nodes")}:
                yield EarlierHops(K.values, self.edges[::-1] if backward else self.edges, self.rows)


def places_of(ids: np.ndarray | Texts, among: np.ndarray | Texts) -> np.ndarray:
    """Where the ids (n,) stand in others (m,), -1 for those that are not there; numbers and their digits are alike."""
    if any(isinstance(each, Texts) or each.dtype.kind not in "iu" for each in (ids, among)):
        known = {str(each): place for place, each in enumerate(among)}
        return np.array([known.get(str(each), -1) for each in ids], dtype=np.int64)
    ids, among = np.asarray(ids), np.asarray(among)
    if not len(among):
        return np.full(len(ids), -1)
    order = np.argsort(among, kind="stable")
    at = order[np.minimum(np.searchsorted(among, ids, sorter=order), len(among) - 1)]
    return np.where(among[at] == ids, at, -1)


def _ids(graph: AttributedGraph) -> np.ndarray | Texts:
    return np.arange(graph.num_nodes) if graph.ids is None else graph.ids
