"""RevGAT: reversible blocks recompute what a plain network stores, with the same gradients."""

import numpy as np
import pytest
import torch

from labeldeconv.gnns.attention import degree_roots
from labeldeconv.gnns.revgat import RevGAT
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.dropout import SMALL
from tests.samples import random_edges

n, d, c = 30, 6, 4
ADJ = Adjacency.from_edges(random_edges(n, 80), n)


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_reversible_equals_plain(norm):
    """Same output and gradients whether GroupAddRev recomputes or stores."""
    torch.manual_seed(0)
    gnn = RevGAT(d, c, layers=5, hidden=8, heads=2, groups=2, dropout=0.3, norm=norm).train()
    x, grads = torch.randn(n, d), []
    for reversible in (True, False):
        gnn.zero_grad()
        torch.manual_seed(1)
        if reversible:
            out = gnn(x, ADJ)
        else:
            from labeldeconv.gnns.attention import drop_edges

            edges, _ = drop_edges(ADJ.edge_index(x.device), None, gnn.edge_dropout, True)
            h = gnn._first(x, edges, n)
            mask = gnn._mask(h)
            for block in gnn.blocks:
                h = block._forward(h, edges, mask)
            out = gnn._last(h, edges, n)
        out.square().sum().backward()
        grads.append([out.detach(), *(p.grad.clone() for p in gnn.parameters())])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-3)


def test_backward_frees_what_the_kernel_of_activations_has_read():
    """From so many values on, norm, activation and dropout are one kernel, and numpy sees what the blocks gave."""
    torch.manual_seed(0)
    rows = SMALL // 16
    adj = Adjacency.from_edges(random_edges(rows, 2 * rows), rows)
    gnn = RevGAT(d, c, layers=4, hidden=8, heads=2).train()
    gnn(torch.randn(rows, d), adj).square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in gnn.parameters())


def test_stored_activations_do_not_grow_with_depth():
    """Tensors kept for backward, counted where autograd packs them: the blocks keep none of their own."""
    kept = []
    for layers in (3, 9):
        total = 0

        def pack(t):
            nonlocal total
            total += t.numel()
            return t

        gnn = RevGAT(d, c, layers=layers, hidden=8, heads=2).train()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            gnn(torch.randn(n, d), ADJ)
        kept.append(total)
    assert kept[0] == pytest.approx(kept[1], rel=0.1)


def test_paper_equations_of_a_block():
    """H'_0 = sum_{j >= 2} H_j, H'_j = GAT_j(H'_{j-1}) + H_j (Appendix A.2)."""
    torch.manual_seed(0)
    gnn = RevGAT(d, c, layers=3, hidden=6, heads=1, groups=3).eval()
    block, edges = gnn.blocks[0], ADJ.edge_index(torch.device("cpu"))
    H = torch.randn(n, 6)
    H1, H2, H3 = H.chunk(3, dim=1)
    first = H1 + block.convs[0](H2 + H3, edges, None)
    second = H2 + block.convs[1](first, edges, None)
    third = H3 + block.convs[2](second, edges, None)
    torch.testing.assert_close(block._forward(H, edges, None), torch.cat([first, second, third], 1))


def test_symmetric_norm_keeps_the_blocks_reversible():
    """Gradients of recomputed blocks are those of stored ones, with roots of degrees around the attention."""
    torch.manual_seed(0)
    gnn = RevGAT(d, c, layers=4, hidden=8, heads=2, dropout=0.0, edge_dropout=0.0, symmetric_norm=True).train()
    x, found = torch.randn(n, d), []
    for stored in (False, True):
        gnn.zero_grad()
        edges = ADJ.edge_index(x.device)
        roots = degree_roots(edges, n, n)
        torch.manual_seed(1)
        if stored:
            h = gnn._first(x, edges, n, None, roots)
            for block in gnn.blocks:
                h = block._forward(h, edges, None, roots)
            out = gnn._last(h, edges, n, roots)
        else:
            out = gnn(x, ADJ)
        out.square().sum().backward()
        found.append([out.detach(), *(p.grad.clone() for p in gnn.parameters())])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-3)


def test_degree_roots_by_hand():
    """Edges 0 -> 1, 0 -> 2, 1 -> 2; node 3 has none, and counts as one."""
    left, reached = degree_roots(torch.tensor([[0, 0, 1], [1, 2, 2]]), 4, 4)
    torch.testing.assert_close(left.squeeze(1), torch.tensor([2**0.5, 1, 1, 1]))
    torch.testing.assert_close(reached.squeeze(1), torch.tensor([1, 1, 2**0.5, 1]))


def test_feature_dropout_is_before_the_norm_and_not_in_psi():
    """With nothing else random, forward in training differs from pass to pass, psi does not."""
    torch.manual_seed(0)
    options = {"dropout": 0.0, "input_dropout": 0.0, "edge_dropout": 0.0, "feature_dropout": 0.4}
    gnn = RevGAT(d, c, hidden=8, heads=2, **options).train()
    x = torch.randn(n, d)
    assert not torch.equal(gnn(x, ADJ), gnn(x, ADJ))
    torch.testing.assert_close(gnn.psi(x), gnn.psi(x))
    seen = []
    gnn.input_norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    gnn(x, ADJ)
    assert 0.25 < float((seen[0] == 0).float().mean()) < 0.55
    torch.testing.assert_close(seen[0][seen[0] != 0], (x / 0.6)[seen[0] != 0])


def test_inference_leaves_its_input_alone():
    gnn = RevGAT(d, c, layers=4, hidden=8, heads=2).eval()
    x = torch.randn(n, d)
    with torch.inference_mode():
        a, b = gnn(x, ADJ), gnn(x, ADJ)
    torch.testing.assert_close(a, b)
    assert np.isfinite(x.numpy()).all()


def test_steps_are_the_convolutions_of_forward():
    """Two groups of two blocks between input and output: six steps, which over whole rows are forward."""
    torch.manual_seed(0)
    gnn = RevGAT(d, c, layers=4, hidden=8, heads=2).eval()
    x = torch.randn(n, d)
    steps = gnn.steps()
    assert len(steps) == 1 + 2 * 2 + 1
    h = x
    with torch.no_grad():
        for step in steps:
            h = step(h, ADJ)
        torch.testing.assert_close(h, gnn(x, ADJ), atol=1e-5, rtol=1e-4)


def test_the_mask_of_dropout_keeps_the_mean():
    gnn = RevGAT(d, c, layers=3, hidden=8, dropout=0.75)
    torch.manual_seed(0)
    mask = gnn.train()._mask(torch.zeros(1000, 40))
    assert mask.unique().tolist() == [0.0, 4.0]  # 1 / (1 - 0.75)
    assert mask.mean().item() == pytest.approx(1.0, abs=0.05)
    assert gnn.eval()._mask(torch.zeros(2, 2)) is None
    assert RevGAT(d, c, layers=3, hidden=8, dropout=0.0).train()._mask(torch.zeros(2, 2)) is None
