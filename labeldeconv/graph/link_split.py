"""Edges split into train, validation and test ones, negatives for each, and OGB's ranks of the true ones among them.

The edges are undirected, without loops, each once. Negatives of an edge (u, v) are pairs (u, w) that are no edge of any
part: w uniform over the nodes, or `hard`, of the class of v where that is known. The metrics are those of
ogb.linkproppred.Evaluator (eval_metric "mrr"): a rank counts ties half, 1 + (number above + number not below) / 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from labeldeconv.errors import ConfigError, DataError
from labeldeconv.stages.keys import array_key

SHARES = (0.85, 0.05)  # of train and validation edges; the rest is test
CUTS = (1, 10, 50)  # K of Hits@K
TRIES = 20  # times that a negative which is an edge is drawn again of its group, and then uniformly


@dataclass(frozen=True, eq=False)
class LinkSplit:
    """Edges (2, k) of the three parts, and negatives (k, m) of those that are scored.

    Args:
        group: (n,) what a hard negative shares with the true end, -1 where nothing is known; None for uniform ones.
    """

    num_nodes: int
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    val_negatives: np.ndarray
    test_negatives: np.ndarray
    group: np.ndarray | None = None

    @cached_property
    def content_key(self) -> str:
        """Of all edges and negatives."""
        held = [self.train, self.val, self.test, self.val_negatives, self.test_negatives]
        return array_key(*held, *([] if self.group is None else [self.group]))

    @cached_property
    def known(self) -> np.ndarray:
        """Codes of all edges both ways, sorted."""
        return edge_codes(np.concatenate([self.train, self.val, self.test], axis=1), self.num_nodes)

    def part(self, role: str) -> tuple[np.ndarray, np.ndarray]:
        """Edges (2, k) and negatives (k, m) of 'val' or 'test'."""
        return (self.val, self.val_negatives) if role == "val" else (self.test, self.test_negatives)

    def draw(self, sources: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
        """Ends (k, count) that are no neighbours of the sources (k,), for training: uniform or hard."""
        return draw_negatives(sources, None, count, self.num_nodes, self.known, self.group, rng)


def edge_codes(edges: np.ndarray, num_nodes: int) -> np.ndarray:
    """One number u n + v per edge and direction, sorted, each once."""
    both = np.concatenate([edges, edges[::-1]], axis=1).astype(np.int64)
    return np.unique(both[0] * num_nodes + both[1])


def split_edges(
    edges: np.ndarray, num_nodes: int, seed: int, negatives: int = 100, group: np.ndarray | None = None
) -> LinkSplit:
    """The split of a graph's edges (2, e) by a seed: 85, 5 and 10 per cent, at least one edge in each part.

    Args:
        negatives: drawn for every validation and test edge.
        group: (n,) classes or types, -1 unknown, for hard negatives; None draws uniform ones.
    """
    if negatives < max(CUTS):
        raise ConfigError(f"negatives per edge: at least {max(CUTS)} expected for Hits@{max(CUTS)}, got {negatives}")
    codes = edge_codes(edges, num_nodes)
    one = np.stack([codes // num_nodes, codes % num_nodes])
    one = one[:, one[0] < one[1]]  # once, without loops
    e = one.shape[1]
    if e < 20:
        raise DataError(f"links: at least 20 edges expected, so that each part has one, got {e}")
    rng = np.random.default_rng(seed)
    one = one[:, rng.permutation(e)]
    flip = rng.random(e) < 0.5  # which end is asked for is a matter of chance, not of numbering
    one[:, flip] = one[::-1, flip]
    first, second = round(SHARES[0] * e), round(sum(SHARES) * e)
    train, val, test = one[:, :first], one[:, first:second], one[:, second:]
    of_val, of_test = (draw_negatives(p[0], p[1], negatives, num_nodes, codes, group, rng) for p in (val, test))
    return LinkSplit(num_nodes, train, val, test, of_val, of_test, group)


def draw_negatives(
    sources: np.ndarray,
    ends: np.ndarray | None,
    count: int,
    num_nodes: int,
    known: np.ndarray,
    group: np.ndarray | None,
    rng: np.random.Generator,
) -> np.ndarray:
    """Ends (k, count) for sources (k,) that make no known edge and no loop, uniform or of the group of the true `ends`.

    In training, where no true end is given, a hard negative has the group of its source. A pair that is an edge is
    drawn again; after 20 times, as at a node linked to nearly all of its group, it is drawn uniformly.
    """
    wrong = _candidates(sources, ends, count, num_nodes, group, rng)
    source = np.broadcast_to(sources[:, None], wrong.shape)
    for tried in range(2 * TRIES):
        again = np.isin(source * num_nodes + wrong, known) | (source == wrong)
        if not again.any():
            return wrong
        hard = group if tried < TRIES else None
        rows = np.nonzero(again)[0]
        wrong[again] = _candidates(sources[rows], None if ends is None else ends[rows], 1, num_nodes, hard, rng)[:, 0]
    raise DataError("links: no pairs without an edge were found; a graph that is not nearly complete expected")


def _candidates(
    sources: np.ndarray,
    ends: np.ndarray | None,
    count: int,
    num_nodes: int,
    group: np.ndarray | None,
    rng: np.random.Generator,
) -> np.ndarray:
    wrong = rng.integers(0, num_nodes, (len(sources), count))
    if group is None:
        return wrong
    order = np.argsort(group, kind="stable")
    of = group[sources if ends is None else ends]
    lo, hi = np.searchsorted(group[order], of), np.searchsorted(group[order], of, side="right")
    places = lo[:, None] + (rng.random(wrong.shape) * (hi - lo)[:, None]).astype(np.int64)
    return np.where((of >= 0)[:, None], order[np.minimum(places, num_nodes - 1)], wrong)


def ranks_of(positive: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """Rank (k,) of every positive score (k,) among its negatives (k, m), ties counted half: OGB's formula."""
    above = (negative > positive[:, None]).sum(1)
    not_below = (negative >= positive[:, None]).sum(1)
    return 0.5 * (above + not_below) + 1


def link_metrics(positive: np.ndarray, negative: np.ndarray) -> dict[str, float]:
    """MRR and Hits@1, 10 and 50 of positive scores (k,) among their negatives (k, m)."""
    ranks = ranks_of(positive, negative)
    return {"mrr": float((1 / ranks).mean())} | {f"hits@{k}": float((ranks <= k).mean()) for k in CUTS}
