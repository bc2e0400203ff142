"""RevGAT: reversible blocks recompute what a plain network stores, with the same gradients."""

import numpy as np
import pytest
import torch

from labeldeconv.gnns.revgat import RevGAT
from labeldeconv.propagation.adjacency import Adjacency
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


def test_inference_leaves_its_input_alone():
    gnn = RevGAT(d, c, layers=4, hidden=8, heads=2).eval()
    x = torch.randn(n, d)
    with torch.inference_mode():
        a, b = gnn(x, ADJ), gnn(x, ADJ)
    torch.testing.assert_close(a, b)
    assert np.isfinite(x.numpy()).all()
