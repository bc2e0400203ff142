"""A GNN on new nodes alone: its steps over the rows of A-hat that lead to them, and over no others.

The output of step l at a node needs the outputs of step l - 1 at its neighbours. Whatever a new node does not change
can be taken from activations that were kept of the old graph; what is changed is computed anew:

| mode | computed anew at step l |
|---|---|
| exact, nothing kept | every node that leads to a new one: the in-neighbourhood of L - l hops |
| exact | of these, the ones that a new node reaches through l steps |
| fast | the new nodes alone: old ones keep the activations that they had |

A GNN fed by rows of hop features is a chain of convolutions whose outputs at the new nodes are its input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from labeldeconv.gnns.base import GNN, Step
from labeldeconv.propagation.adjacency import Adjacency, convolve
from labeldeconv.propagation.grown import GrownAdjacency
from labeldeconv.training.layerwise import BLOCK_ENTRIES, take_rows

Inputs = Callable[[np.ndarray], Tensor]


def chain(gnn: GNN) -> Sequence[Step] | None:
    """The steps by which a GNN reads the graph; None where it has none and needs the whole graph at once."""
    return convolutions(gnn.hops) if gnn.feed == "rows" else gnn.steps()


def convolutions(hops: int) -> Sequence[Step]:
    """h, A-hat h, A-hat^2 h, ... as steps."""
    return [_convolution] * hops


def _convolution(h: Tensor, rows: Adjacency) -> Tensor:
    return convolve(rows, h)


def along(
    steps: Sequence[Step],
    grown: GrownAdjacency,
    inputs: Inputs,
    seeds: np.ndarray,
    kept: Sequence[np.ndarray] = (),
    anew: Sequence[np.ndarray | None] = (),
) -> list[Tensor]:
    """The input and the output of every step at the new nodes `seeds` (m,), ascending: L + 1 tensors (m, .).

    Args:
        inputs: node numbers (s,) to their features (s, d).
        kept: outputs (n, .) of the steps 1..L - 1 on the old graph.
        anew: for the same steps, which nodes (n + m,) are computed anew, True for all new ones; the others are read
            from `kept`. None, or nothing given, computes all that are needed.
    """
    masks = [*anew, *[None] * (len(steps) - len(anew))]
    targets = _targets(grown, seeds, masks, len(steps))
    outs = [inputs(seeds)]
    known: np.ndarray | None = None  # the nodes whose values are in h, ascending; None: read `inputs`
    h = outs[0]
    for level, step in enumerate(steps):
        parts = []
        for part in _blocks(grown, targets[level]):
            sources, rows = grown.rows(part)
            old = kept[level - 1] if level and level <= len(kept) else None
            x = inputs(sources) if known is None else _gathered(h, known, old, sources, grown)
            parts.append(step(x, rows).float())
        h, known = torch.cat(parts), targets[level]
        outs.append(h[torch.from_numpy(np.searchsorted(known, seeds))])
    return outs


def reached(grown: GrownAdjacency, steps: int) -> list[np.ndarray]:
    """For every step but the last, the nodes (n + m,) whose output differs from that on the old graph.

    Step 1: rows with other entries, and with symmetric weights the rows that read a node of another degree. Step l:
    these, and the rows that read a node which differs after step l - 1.
    """
    first = np.zeros(grown.num_nodes, bool)
    first[grown.changed] = True
    if grown.config.normalization == "symmetric":
        first[grown.readers(grown.changed)] = True
    masks: list[np.ndarray] = []
    for _ in range(steps - 1):
        mask = first.copy()
        if masks:
            mask[grown.readers(np.flatnonzero(masks[-1]))] = True
        masks.append(mask)
    return masks


def new_only(grown: GrownAdjacency, steps: int) -> list[np.ndarray]:
    """For every step but the last: the new nodes."""
    mask = np.zeros(grown.num_nodes, bool)
    mask[grown.new_nodes] = True
    return [mask] * (steps - 1)


def _targets(
    grown: GrownAdjacency, seeds: np.ndarray, masks: Sequence[np.ndarray | None], steps: int
) -> list[np.ndarray]:
    """The nodes (t,) that every step computes, ascending, found from the last step back."""
    targets = [seeds]
    for level in range(steps - 1, 0, -1):
        mask = masks[level - 1]
        needed = np.union1d(grown.columns(targets[0]), targets[0])
        targets.insert(0, needed if mask is None else needed[mask[needed]])
    return targets


def _blocks(grown: GrownAdjacency, targets: np.ndarray) -> Iterator[np.ndarray]:
    """Targets in order, in blocks of about `BLOCK_ENTRIES` entries; one row may have more."""
    block = (np.cumsum(grown.degree(targets)) - 1) // BLOCK_ENTRIES
    yield from np.split(targets, np.flatnonzero(np.diff(block)) + 1)


def _gathered(
    h: Tensor, known: np.ndarray, old: np.ndarray | None, sources: np.ndarray, grown: GrownAdjacency
) -> Tensor:
    """Values (s, .) of the sources: those of `known` from h, the others as they were in the old graph."""
    place = np.minimum(np.searchsorted(known, sources), len(known) - 1)
    fresh = known[place] == sources
    if fresh.all():
        return h[torch.from_numpy(place)]
    assert old is not None
    out = torch.empty(len(sources), h.shape[1], dtype=h.dtype)
    out[torch.from_numpy(fresh)] = h[torch.from_numpy(place[fresh])]
    out[torch.from_numpy(~fresh)] = take_rows(old, grown.inside(sources[~fresh]))
    return out
