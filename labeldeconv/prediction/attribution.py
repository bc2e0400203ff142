"""What carried a logit: contributions of hops and of neighbours that sum to its difference from a baseline.

The baseline is the same node in the same graph where every node has the mean features of the graph and no label is
known. Three ways, by what the GNN is:

| GNN | contribution of node u |
|---|---|
| phi(A-hat) psi(x), by `phi_coefficients` | exact: sum_i theta_i [A-hat^i]_vu (psi(x_u) - psi(mean)) |
| fed by rows of hop features | integrated gradients over the hop features, which are linear in x_u |
| fed by the graph | integrated gradients over the features x_u of the neighbourhood |

Integrated gradients (Sundararajan, Taly, Yan, ICML 2017): (x - x') times the mean gradient on the straight way from x'
to x. They are exact where the model is linear and sum to the difference elsewhere, up to the error of the integral: the
number of points is doubled until that is below a hundredth of the difference, and what is left is told (`gap`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from labeldeconv.gnns.base import GNN
from labeldeconv.prediction.incremental import Inputs
from labeldeconv.prediction.reach import Layers, hop_weights, part_of_graph, within
from labeldeconv.propagation.grown import GrownAdjacency

POINTS = (8, 16, 32, 64, 128, 256, 512)  # of Gauss and Legendre on the way from the baseline
TOLERANCE = 0.01  # of the difference
LEAST = 1e-3  # in logits: a smaller gap is never worth another integral
SAME = 1e-2  # logits of a part of the graph that count as those of the whole
EXACT = "exact"
OVER_HOPS = "integrated gradients over hop features"
OVER_NODES = "integrated gradients over the features of the neighbourhood"
POWERS, DISTANCES = "powers of A-hat", "distances"
Several = Callable[[Sequence[Tensor]], Tensor]


@dataclass(frozen=True, eq=False)
class Attribution:
    """Contributions to one logit of one node.

    Args:
        logit: at the node's neighbourhood as it is.
        baseline: the same where every node has the mean features, without labels.
        how: EXACT, OVER_HOPS or OVER_NODES.
        hops_are: what `by_hop` counts: POWERS of A-hat, or DISTANCES of the contributing nodes.
        by_hop: (h,).
        nodes: (s,) ascending.
        distance: (s,) edges that lead from each to the explained node.
        by_node: (s,), with the same sum as `by_hop`.
        of_labels: of the label inputs; None for GNNs without a label branch.
        points: of the integral; 0 where none was needed.
    """

    logit: float
    baseline: float
    how: str
    hops_are: str
    by_hop: np.ndarray
    nodes: np.ndarray
    distance: np.ndarray
    by_node: np.ndarray
    of_labels: float | None = None
    points: int = 0

    @property
    def gap(self) -> float:
        """What the contributions lack of the difference."""
        return self.logit - self.baseline - float(self.by_hop.sum()) - (self.of_labels or 0.0)


@dataclass(frozen=True, eq=False)
class Integral:
    """f at the inputs and at the baseline, the mean gradients between them by input, and the points it took."""

    top: float
    bottom: float
    gradients: list[Tensor]
    points: int


def integrate(f: Several, x: Sequence[Tensor], base: Sequence[Tensor], together: int = 1) -> Integral:
    """Integrated gradients: the contribution of an entry is its (x - base) times its mean gradient.

    Args:
        f: inputs with a leading axis of p points to p numbers, each of its own point.
        x: inputs, without that axis.
        base: their baselines.
        together: points that f gets at a time.
    """
    steps = [a - b for a, b in zip(x, base, strict=True)]

    def at(points: Tensor) -> list[Tensor]:
        return [b + points.view(-1, *[1] * b.ndim) * step for b, step in zip(base, steps, strict=True)]

    with torch.no_grad():
        bottom, top = (float(f(at(torch.full((1,), end)))) for end in (0.0, 1.0))
    enough = max(TOLERANCE * abs(top - bottom), LEAST)
    mean: list[Tensor] = []
    for count in POINTS:
        places, shares = np.polynomial.legendre.leggauss(count)
        grid = torch.from_numpy(np.stack([(places + 1) / 2, shares / 2])).float()
        mean = [torch.zeros_like(a) for a in x]
        for points, weights in zip(*(row.split(together) for row in grid), strict=True):
            here = [one.requires_grad_() for one in at(points)]
            grads = torch.autograd.grad((weights * f(here)).sum(), here, allow_unused=True)
            for total, grad in zip(mean, grads, strict=True):
                total += 0.0 if grad is None else grad.sum(0)
        told = sum(float((step * grad).sum()) for step, grad in zip(steps, mean, strict=True))
        if abs(top - bottom - told) <= enough:
            break
    return Integral(top, bottom, mean, count)


def attribute(
    gnn: GNN,
    grown: GrownAdjacency,
    inputs: Inputs,
    mean: Tensor,
    node: int,
    of: int,
    labels: Inputs | None = None,
    known: np.ndarray | None = None,
) -> Attribution:
    """What carried the logit of class `of` at `node`.

    Args:
        gnn: in eval mode.
        inputs: node numbers (s,) to their features (s, d).
        mean: features (d,) of the baseline.
        labels: node numbers (s,) to the labels (s, c) that a label branch reads; None without one.
        known: the logits (c,) of the node from the whole graph, for GNNs without steps; None asks for no comparison.
    """
    if gnn.phi_coefficients is not None:
        return _of_polynomial(gnn, gnn.phi_coefficients, grown, inputs, mean, node, of)
    if gnn.feed == "rows":
        return _of_rows(gnn, grown, inputs, mean, node, of, labels)
    return _of_graph(gnn, grown, inputs, mean, node, of, known)


def of_psi(psi: Callable[[Tensor], Tensor], x: Tensor, mean: Tensor, node: int, of: int) -> Attribution:
    """The same for psi, which reads nothing but the node's own features x (d,)."""
    with torch.no_grad():
        top, bottom = (float(value) for value in psi(torch.stack([x, mean]))[:, of])
    own = np.array([top - bottom])
    return Attribution(top, bottom, EXACT, POWERS, own, np.array([node]), np.zeros(1, np.int64), own)


def reach_of(gnn: GNN) -> int:
    """How many edges away a node can be and still count."""
    steps = None if gnn.feed == "rows" else gnn.steps()
    return gnn.hops if steps is None else len(steps)


def _of_polynomial(
    gnn: GNN, theta: Tensor, grown: GrownAdjacency, inputs: Inputs, mean: Tensor, node: int, of: int
) -> Attribution:
    """theta_i [A-hat^i]_vu (psi(x_u) - psi(mean)): nothing to integrate."""
    weights = hop_weights(grown, node, len(theta) - 1)
    nodes, distance = within(grown, node, len(theta) - 1)
    with torch.no_grad():
        z = gnn.psi(gnn.enter(torch.cat([inputs(nodes), mean[None]])))[:, of].double().numpy()  # (s + 1,)
    table = _table(weights, nodes) * np.asarray(theta.detach().double())[:, None]  # (h, s)
    values = table * (z[:-1] - z[-1])
    baseline = float(table.sum() * z[-1])
    return Attribution(
        float((table * z[:-1]).sum()), baseline, EXACT, POWERS, values.sum(1), nodes, distance, values.sum(0)
    )


def _of_rows(
    gnn: GNN,
    grown: GrownAdjacency,
    inputs: Inputs,
    mean: Tensor,
    node: int,
    of: int,
    labels: Inputs | None,
) -> Attribution:
    """Integrated gradients over hop features (h, d), handed on to the nodes that each of them is a sum of."""
    nodes, distance = within(grown, node, gnn.hops)
    table = torch.from_numpy(_table(hop_weights(grown, node, gnn.hops), nodes)).float()  # (h, s)
    x = inputs(nodes)
    given, base = [table @ x], [table.sum(1, keepdim=True) * mean]  # (h, d)
    if labels is not None:
        of_whom, share = hop_weights(grown, node, gnn.label_hops)[-1]
        read = torch.from_numpy(share).float() @ labels(of_whom)  # (c,)
        given, base = [*given, read], [*base, torch.zeros_like(read)]

    found = integrate(lambda here: gnn(*here)[:, of], given, base, together=max(POINTS))
    gradient = found.gradients[0]  # (h, d)
    by_hop = ((given[0] - base[0]) * gradient).sum(1)
    by_node = (table * (gradient @ (x - mean).t())).sum(0)  # of g_i sum_u w_iu (x_u - mean), the part of u
    return Attribution(
        found.top,
        found.bottom,
        OVER_HOPS,
        POWERS,
        by_hop.double().numpy(),
        nodes,
        distance,
        by_node.double().numpy(),
        None if labels is None else float((given[1] * found.gradients[1]).sum()),
        found.points,
    )


def _of_graph(
    gnn: GNN,
    grown: GrownAdjacency,
    inputs: Inputs,
    mean: Tensor,
    node: int,
    of: int,
    known: np.ndarray | None,
) -> Attribution:
    """Integrated gradients over the features of all nodes that lead to the node."""
    steps = gnn.steps()
    if steps is None:
        forward, nodes, distance = _on_a_part(gnn, grown, inputs, node, known)
        sources = nodes
    else:
        forward = layers = Layers(steps, grown, node)
        sources = layers.sources
        nodes, distance = within(grown, node, len(steps))
    x = inputs(sources)
    base = mean.expand_as(x)
    found = integrate(lambda here: torch.stack([forward(one)[0, of] for one in here[0]]), [x], [base])
    by_node = ((x - base) * found.gradients[0]).sum(1).double().numpy()[np.argsort(sources)]
    by_hop = np.bincount(distance, weights=by_node)
    return Attribution(
        found.top, found.bottom, OVER_NODES, DISTANCES, by_hop, nodes, distance, by_node, None, found.points
    )


def _on_a_part(
    gnn: GNN, grown: GrownAdjacency, inputs: Inputs, node: int, known: np.ndarray | None
) -> tuple[Callable[[Tensor], Tensor], np.ndarray, np.ndarray]:
    """A GNN without steps on a part of the graph: features (s, d) to logits (1, c); the part (s,), and its distances.

    One hop more than the GNN counts lets every layer see the true degrees of all that it reads. A GNN that reaches
    further than it says gives other logits there than on the whole graph, and then gets the whole graph.
    """
    nodes, distance = within(grown, node, gnn.hops + 1)
    forward = _at_node(gnn, grown, nodes, node)
    if known is None:
        return forward, nodes, distance
    with torch.no_grad():
        here = forward(inputs(nodes))[0].float().numpy()
    if np.allclose(here, known, atol=SAME, rtol=SAME):
        return forward, nodes, distance
    everyone = np.arange(grown.num_nodes)
    reached, steps = within(grown, node, grown.num_nodes)
    far = np.full(len(everyone), steps.max() + 1)  # what no edges lead from, one step behind all else
    far[reached] = steps
    return _at_node(gnn, grown, everyone, node), everyone, far


def _at_node(gnn: GNN, grown: GrownAdjacency, nodes: np.ndarray, node: int) -> Callable[[Tensor], Tensor]:
    """From features (s, d) of `nodes` (s,), ascending, to logits (1, c) of one of them."""
    adj, place = part_of_graph(grown, nodes), int(np.searchsorted(nodes, node))
    return lambda x: gnn(x, adj)[place : place + 1]


def _table(weights: Sequence[tuple[np.ndarray, np.ndarray]], nodes: np.ndarray) -> np.ndarray:
    """[A-hat^i]_vu (h, s) of hops i and nodes u (s,)."""
    out = np.zeros((len(weights), len(nodes)))
    for row, (some, share) in zip(out, weights, strict=True):
        row[np.searchsorted(nodes, some)] = share
    return out
