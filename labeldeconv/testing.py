"""The contract suite of GNNs, for the built-in ones and for your own:

    from labeldeconv.testing import GNN_CHECKS, check_gnn

    check_gnn(MyGNN)                                    # everything at once, or in pytest, one test per check:

    @pytest.mark.parametrize("check", GNN_CHECKS, ids=lambda check: check.__name__)
    def test_my_gnn(check):
        check(MyGNN)

A factory is the class, or any function from (in_dim, out_dim) to a new GNN. A broken promise is an AssertionError that
says which.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from labeldeconv.adjacency import Adjacency, propagate
from labeldeconv.config import AdjacencyConfig
from labeldeconv.errors import DataError
from labeldeconv.gnns.base import GNN, Psi

Factory = Callable[[int, int], GNN]
N, D, C, E = 14, 6, 4, 26  # nodes, features, classes, given edges of the graph the checks run on


def check_gnn(factory: Factory) -> None:
    """Run every check."""
    for check in GNN_CHECKS:
        check(factory)


def check_shapes(factory: Factory) -> None:
    """`feed`, `hops`, forward (n, c) and psi (b, c), down to a batch of one node in training."""
    gnn = _make(factory)
    assert gnn.feed in ("graph", "rows"), f"feed 'graph' or 'rows' expected, got {gnn.feed!r}"
    assert isinstance(gnn.hops, int), f"hops: an int expected, got {gnn.hops!r}"
    assert gnn.hops >= 0, f"hops of at least 0 expected, got {gnn.hops}"
    out = logits(gnn, _features(), _edges())
    assert out.shape == (N, C), f"forward: ({N}, {C}) expected, got {tuple(out.shape)}"
    psi = Psi(gnn).train()
    for rows in (1, 4, N):
        out = psi(_features()[:rows])
        assert out.shape == (rows, C), f"psi: ({rows}, {C}) expected, got {tuple(out.shape)}"
        assert out.isfinite().all(), f"psi of {rows} rows in training is not finite"


def check_edges_matter(factory: Factory) -> None:
    """Another graph gives other logits, and psi needs none."""
    gnn = _make(factory).eval()
    a, b = (logits(gnn, _features(), _edges(seed)) for seed in (0, 1))
    assert not torch.allclose(a, b), "forward does not depend on the edges"


def check_psi(factory: Factory) -> None:
    """Where `psi_exact` is claimed, psi(x) is forward with every node its own and only neighbour."""
    gnn = _make(factory).eval()
    if not gnn.psi_exact:
        return
    x = _features()
    alone = logits(gnn, x, np.zeros((2, 0), dtype=np.int64))
    torch.testing.assert_close(gnn.psi(x), alone, msg=lambda m: f"psi differs from forward without edges: {m}")


def check_equivariance(factory: Factory) -> None:
    """Renumbering the nodes renumbers the logits."""
    gnn = _make(factory).eval()
    x, edges, order = _features(), _edges(), np.random.default_rng(3).permutation(N)
    there = np.argsort(order)
    a, b = logits(gnn, x[order], there[edges]), logits(gnn, x, edges)[order]
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4, msg=lambda m: f"not permutation-equivariant: {m}")


def check_gradients(factory: Factory) -> None:
    """Forward gives every trained parameter a gradient, and psi gives its features one."""
    gnn = _make(factory).train()
    torch.manual_seed(0)
    logits(gnn, _features(), _edges(), label_inputs=torch.rand(N, C)).pow(2).sum().backward()
    silent = [name for name, p in gnn.named_parameters() if p.requires_grad and p.grad is None]
    assert not silent, f"no gradient reaches {', '.join(silent)}"
    broken = [name for name, p in gnn.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    assert not broken, f"the gradient is not finite in {', '.join(broken)}"
    x = _features().requires_grad_()
    Psi(gnn)(x).pow(2).sum().backward()
    assert x.grad is not None, "psi passes no gradient back to the encoder"
    assert x.grad.abs().sum() > 0, "psi passes no gradient back to the encoder"


def check_determinism(factory: Factory) -> None:
    """The same seed gives the same weights and, in training, the same logits; eval has no randomness."""
    outs = []
    for _ in range(2):
        gnn = _make(factory).train()
        torch.manual_seed(1)
        outs.append(logits(gnn, _features(), _edges()))
    assert torch.equal(*outs), "two runs with one seed differ"
    gnn.eval()
    a, b = (logits(gnn, _features(), _edges()) for _ in range(2))
    assert torch.equal(a, b), "eval mode is random"


def check_bad_input(factory: Factory) -> None:
    """Features of a wrong width or type are answered with a DataError that names the GNN and what it expects."""
    gnn = _make(factory)
    name = type(gnn).__name__
    for wrong in (torch.zeros(N, D + 1), torch.zeros(N, D, dtype=torch.int64)):
        for run in (lambda x: logits(gnn, x, _edges()), lambda x: Psi(gnn)(x)):
            message = _refusal(run, wrong)
            assert message, f"{name}: features {tuple(wrong.shape)} {wrong.dtype} are taken without a word"
            assert name in message, f"the message does not name {name}: {message}"
            assert str(D) in message, f"the message does not name the expected width {D}: {message}"


def check_steps(factory: Factory) -> None:
    """Where there are `steps`, they give the same as forward in eval mode, and never leave rows behind."""
    gnn = _make(factory).eval()
    steps = gnn.steps()
    if gnn.feed != "graph" or steps is None:
        return
    x, adj = _features(), _adjacency(_edges(), gnn)
    h = x
    for i, step in enumerate(steps):
        h = step(h, adj)
        assert h.shape[0] == N, f"step {i}: {N} rows expected, got {h.shape[0]}"
    torch.testing.assert_close(h, gnn(x, adj), atol=1e-5, rtol=1e-4, msg=lambda m: f"steps differ from forward: {m}")


def check_output_bias(factory: Factory) -> None:
    """Where there is an `output_bias`, it is a parameter (c,) that adds to psi."""
    gnn = _make(factory).eval()
    bias, x = gnn.output_bias, _features()
    if bias is None:
        return
    assert bias.shape == (C,), f"output_bias: ({C},) expected, got {tuple(bias.shape)}"
    with torch.no_grad():
        before, shift = gnn.psi(x), torch.arange(C).float()
        bias += shift
        torch.testing.assert_close(gnn.psi(x), before + shift, msg=lambda m: f"output_bias does not add to psi: {m}")


def logits(gnn: GNN, x: Tensor, edges: np.ndarray, label_inputs: Tensor | None = None) -> Tensor:
    """Logits (n, c) of any GNN from features (n, d) and edges (2, e), fed as it wants."""
    adj = _adjacency(edges, gnn)
    if gnn.feed == "graph":
        return gnn(x, adj)
    wide = x if x.is_floating_point() else x.double()
    rows = torch.stack(list(propagate(adj, wide, gnn.hops)), dim=1).to(x.dtype)  # (n, h, d)
    return gnn(rows, label_inputs) if gnn.label_hops and label_inputs is not None else gnn(rows)


def _refusal(run: Callable[[Tensor], Tensor], x: Tensor) -> str | None:
    """What a GNN says against its input; None where it takes it."""
    try:
        run(x)
    except DataError as error:
        return str(error)
    return None


def _make(factory: Factory) -> GNN:
    torch.manual_seed(0)
    return factory(D, C)


def _features() -> Tensor:
    return torch.randn(N, D, generator=torch.Generator().manual_seed(0))


def _edges(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, N, (2, E))


def _adjacency(edges: np.ndarray, gnn: GNN) -> Adjacency:
    adj = Adjacency.from_edges(edges, N, AdjacencyConfig())
    values = np.cos(np.outer(np.arange(edges.shape[1]), 1.0 + np.arange(gnn.edge_dim))).astype(np.float32)  # (e, k)
    return adj.with_edge_features(edges, values) if gnn.edge_dim else adj


GNN_CHECKS: list[Callable[[Factory], None]] = [
    check_shapes,
    check_edges_matter,
    check_psi,
    check_equivariance,
    check_gradients,
    check_determinism,
    check_bad_input,
    check_steps,
    check_output_bias,
]
