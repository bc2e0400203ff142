"""Activation memory of RevGAT in one training step, by depth: must not grow with the number of layers.

    python benchmarks/revgat_memory.py [--layers 3,12,48] [--nodes 4000]

Counts the bytes of all live tensors but parameters, their gradients and the input, after every torch operation of
forward and backward, and prints the peak, and the same for the network that stores its activations (not reversible).
"""

from __future__ import annotations

import argparse
import weakref

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from labeldeconv.gnns.revgat import RevGAT
from labeldeconv.propagation.adjacency import Adjacency


class LiveBytes(TorchDispatchMode):
    """Peak of the bytes of all tensors made inside, while they live; `aside` (a function) is taken off."""

    def __init__(self, aside) -> None:
        super().__init__()
        self.alive, self.peak, self.aside = weakref.WeakValueDictionary(), 0, aside

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run the operation, then count."""
        out = func(*args, **(kwargs or {}))
        for t in tree_iter(out):
            if isinstance(t, torch.Tensor):
                storage = t.untyped_storage()
                self.alive[storage._cdata] = storage
        self.peak = max(self.peak, sum(s.nbytes() for s in self.alive.values()) - self.aside())
        return out


def measure(layers: int, nodes: int, reversible: bool) -> float:
    """Peak MiB of activations of one step."""
    torch.manual_seed(0)
    gnn = RevGAT(128, 40, layers=layers, hidden=64, heads=3, dropout=0.5).train()
    adj = Adjacency.from_edges(np.random.default_rng(0).integers(0, nodes, (2, 7 * nodes)), nodes)
    x = torch.randn(nodes, 128)
    adj.edge_index(x.device)
    if not reversible:
        for block in gnn.blocks:
            block.forward = block._forward
    with LiveBytes(lambda: sum(p.grad.nbytes for p in gnn.parameters() if p.grad is not None)) as live:
        gnn(x, adj).logsumexp(1).mean().backward()
    return live.peak / 2**20


def main() -> None:
    """Print the table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", default="3,12,48")
    parser.add_argument("--nodes", type=int, default=4000)
    args = parser.parse_args()
    depths = [int(k) for k in args.layers.split(",")]
    print(f"RevGAT, {args.nodes} nodes, {14 * args.nodes} edges, 3 heads of 64: peak MiB of activations in a step")
    print("layers  reversible  ratio  stored  ratio")
    base = None
    for layers in depths:
        row = measure(layers, args.nodes, True), measure(layers, args.nodes, False)
        base = base or row
        print(
            f"{layers:6d}  {row[0]:10.1f}  {row[0] / base[0]:5.2f}  {row[1]:6.1f}  {row[1] / base[1]:5.2f}", flush=True
        )


if __name__ == "__main__":
    main()
