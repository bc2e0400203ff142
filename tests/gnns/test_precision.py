"""Every GNN in every precision: under autocast and in bfloat16, on whole, sampled and clustered graphs."""

import numpy as np
import pytest
import torch

from labeldeconv.gnns.base import GNN, GNNS, Psi
from labeldeconv.gnns.precision import in_float32
from labeldeconv.propagation.adjacency import Adjacency, convolve, propagate
from labeldeconv.propagation.sampling import induced, sample_blocks
from labeldeconv.settings.models import AdjacencyConfig
from tests.samples import random_edges

n, d, c = 40, 6, 4
EDGES = random_edges(n, 90)
X = torch.randn(n, d, generator=torch.Generator().manual_seed(0))
OPTIONS = {"gat": {"edge_dim": 3, "ngnn": 2}, "gamlp": {"label_hops": 2}, "sagn": {"label_hops": 2}}
VARIANTS = [
    *((name, OPTIONS.get(name, {})) for name in GNNS),
    ("gamlp", {"attention": "jk"}),
    ("gat", {"norm": "layer"}),
]
# Precision: whether autocast is on, the type of the features, the type of the weights.
PRECISIONS = {
    "autocast": (True, torch.float32, torch.float32),
    "autocast, features in bfloat16": (True, torch.bfloat16, torch.float32),
    "features in bfloat16": (False, torch.bfloat16, torch.float32),
    "all in bfloat16": (False, torch.bfloat16, torch.bfloat16),
}


def adjacency():
    adj = Adjacency.from_edges(EDGES, n, AdjacencyConfig())
    return adj.with_edge_features(EDGES, np.cos(np.outer(np.arange(EDGES.shape[1]), np.arange(1.0, 4.0))).astype("f4"))


def whole(gnn, x):
    if gnn.feed == "graph":
        return gnn(x, adjacency())
    rows = torch.stack(list(propagate(adjacency(), x.float(), gnn.hops)), 1).to(x.dtype)
    return gnn(rows, torch.full((n, c), 0.5, dtype=x.dtype)) if gnn.label_hops else gnn(rows)


def sampled(gnn, x):
    ids, blocks = sample_blocks(adjacency(), np.arange(8), [3] * len(gnn.steps()), np.random.default_rng(0))
    h = x[torch.from_numpy(ids)]
    for step, rows in zip(gnn.steps(), blocks, strict=True):
        h = step(h, rows)
    return h


def clustered(gnn, x):
    return gnn(x[:20], induced(adjacency(), np.arange(20)))


def psi(gnn, x):
    return Psi(gnn)(x)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=lambda part: part if isinstance(part, str) else "")
def test_every_gnn_runs_in_every_precision(name, options, precision):
    """Logits are those of float32 up to the rounding of bfloat16 (2^-8 a step), and gradients arrive, finite."""
    autocast, of_features, of_weights = PRECISIONS[precision]
    ways = [whole, psi] if GNNS[name].feed == "rows" else [whole, sampled, clustered, psi]
    for way in ways:
        torch.manual_seed(0)
        gnn = GNNS[name](d, c, layers=3, hidden=8, dropout=0.0, **options).eval()
        with torch.no_grad():
            expected = way(gnn, X)
        gnn = gnn.to(of_weights)
        x = X.clone().to(of_features).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            found = way(gnn, x)
        scale = expected.abs().max()
        assert (found.float() - expected).abs().max() < 0.08 * scale, way.__name__
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            found = way(gnn.train(), x)
        found.float().square().sum().backward()
        assert x.grad.isfinite().all(), way.__name__
        grads = [p.grad for p in gnn.parameters() if p.grad is not None]
        assert all(g.isfinite().all() for g in grads), way.__name__
        assert sum(bool(g.any()) for g in grads) > 2, way.__name__


@pytest.mark.parametrize("autocast", [False, True])
def test_training_a_reversible_block_under_autocast_finds_the_gradient(autocast):
    """Blocks are recomputed from their outputs in backward: in bfloat16 they would not come back to their inputs."""
    torch.manual_seed(0)
    gnn = GNNS["revgat"](d, c, layers=6, hidden=8, dropout=0.0, input_dropout=0.0, edge_dropout=0.0, norm="layer")
    grads = []
    for stored in (False, True):
        for block in gnn.blocks:
            block.forward = block._forward if stored else type(block).forward.__get__(block)
        gnn.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = gnn(X, adjacency()).float().square().mean()
        loss.backward()
        grads.append(torch.cat([p.grad.float().flatten() for p in gnn.parameters()]))
    torch.testing.assert_close(grads[0], grads[1], atol=1e-4, rtol=1e-3)


class OwnGNN(GNN):
    """A GNN of a user: no psi of its own, and the kernel as it is."""

    feed = "graph"

    def __init__(self, in_dim, out_dim):
        super().__init__(in_dim, out_dim)
        self.linear = torch.nn.Linear(in_dim, out_dim)

    @property
    def hops(self):
        return 1

    def forward(self, x, adj):
        return convolve(adj, self.linear(x))


def test_an_own_gnn_that_convolves_runs_under_autocast():
    """The linear map gives bfloat16, which the kernel does not know: logits and gradients are near those of float32."""
    gnn, found = OwnGNN(d, c), []
    for enabled in (True, False):
        x = X.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            out = gnn(x, adjacency())
        out.float().square().sum().backward()
        found.append((out.float().detach(), x.grad))
    for low, full in zip(*found, strict=True):
        torch.testing.assert_close(low, full, atol=0.1, rtol=0.05)


def test_the_default_psi_runs_under_autocast():
    gnn = OwnGNN(d, c)
    with torch.autocast("cpu", torch.bfloat16):
        out = Psi(gnn)(X.bfloat16())
    torch.testing.assert_close(out.float(), gnn.linear(X), atol=0.05, rtol=0.05)


def test_in_float32_gives_back_the_type_it_got():
    for kind in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        seen = []

        def square(x, seen=seen):
            seen.append(x.dtype)
            return x @ x

        with torch.autocast("cpu", torch.bfloat16):
            out = in_float32(lambda x, square=square: square(square(x)), torch.ones(2, 2, dtype=kind))
        wide = torch.float64 if kind is torch.float64 else torch.float32
        assert seen == [wide, wide]  # the second would be bfloat16 under autocast
        assert out.dtype is kind


def test_enter_takes_the_type_of_the_weights_unless_autocast_chooses():
    gnn = OwnGNN(2, 2).bfloat16()
    assert gnn.enter(torch.ones(2)).dtype is torch.bfloat16
    assert gnn.enter(torch.ones(2, dtype=torch.int64)).dtype is torch.int64
    with torch.autocast("cpu", torch.bfloat16):
        assert gnn.enter(torch.ones(2)).dtype is torch.float32
