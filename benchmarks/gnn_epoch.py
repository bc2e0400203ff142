"""A full-graph training epoch of a GCN against PyG's ways to run it, at ogbn-arxiv's size.

    python benchmarks/gnn_epoch.py
    python benchmarks/gnn_epoch.py --rounds 9 --json

Same weights, features, normalisation and loss; forward, backward and Adam step. Peers: GCNConv on a torch sparse CSR
tensor, on PyG's EdgeIndex with its CSR and transposed CSR cached, and on a plain edge_index. Rounds are interleaved;
ratios are of the minimum.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric
from hops import SHAPES, make_edges
from torch_geometric import EdgeIndex
from torch_geometric.nn import GCNConv

from labeldeconv.gnns.gcn import GCN
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import AdjacencyConfig

CPU = torch.device("cpu")


class Peer(torch.nn.Module):
    """The same GCN of PyG's layers; `graph` is what they take, with weights of their own where it has none."""

    def __init__(self, twin: GCN, graph: Any, weight: torch.Tensor | None) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(
            GCNConv(conv.lin.in_channels, conv.lin.out_channels, normalize=False) for conv in twin.convs
        )
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm1d(norm.num_features) for norm in twin.norms)
        self.graph, self.weight = graph, weight
        with torch.no_grad():
            for mine, theirs in zip(self.convs, twin.convs, strict=True):
                mine.lin.weight.copy_(theirs.lin.weight)
                mine.bias.copy_(theirs.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features (n, d) to logits (n, c)."""
        for i, conv in enumerate(self.convs):
            x = conv(x, self.graph, self.weight)
            if i < len(self.convs) - 1:
                x = self.norms[i](x).relu()
        return x


def run(rounds: int, hidden: int, layers: int) -> dict[str, Any]:
    """Seconds of an epoch for every contestant."""
    warnings.filterwarnings("ignore", message="Sparse")
    n, e, c = SHAPES["arxiv"]
    adj = Adjacency.from_edges(make_edges(n, e), n, AdjacencyConfig(normalization="symmetric", self_loops=True))
    torch.manual_seed(0)
    own = GCN(128, c, layers=layers, hidden=hidden, dropout=0.0)
    matrix, pairs = adj.on(CPU), adj.edge_index(CPU)
    weight = matrix.values()
    index = EdgeIndex(pairs[[0, 1]], sparse_size=(n, n), sort_order="col", is_undirected=True)
    index.fill_cache_()
    models = {
        "own": (own, lambda x: own(x, adj)),
        "torch_csr": (peer := Peer(own, matrix, None), peer),
        "edge_index_class": (peer := Peer(own, index, weight), peer),
        "plain_edge_index": (peer := Peer(own, pairs, weight), peer),
    }
    x = torch.randn(n, 128)
    y = torch.randint(c, (n,))
    optimizers = {name: torch.optim.Adam(model.parameters(), lr=0.01) for name, (model, _) in models.items()}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    losses: dict[str, list[float]] = {name: [] for name in models}
    for k in range(rounds + 1):
        for name, (_, forward) in models.items():
            start = time.perf_counter()
            loss = F.cross_entropy(forward(x), y)
            loss.backward()
            optimizers[name].step()
            optimizers[name].zero_grad(set_to_none=True)
            losses[name].append(float(loss.detach()))
            if k:
                seconds[name].append(time.perf_counter() - start)
    best = {name: min(s) for name, s in seconds.items()}
    return {
        **{f"ratio_{name}": best[name] / best["own"] for name in best if name != "own"},
        "losses_equal_to": float(np.ptp([losses[name][-1] for name in losses])),
        "nodes": n,
        "entries": len(adj.indices),
        "hidden": hidden,
        "layers": layers,
        "threads": torch.get_num_threads(),
        "versions": {"torch": torch.__version__, "torch_geometric": torch_geometric.__version__},
        "median": {name: float(np.median(s)) for name, s in seconds.items()},
        "raw": seconds,
    }


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON line")
    args = parser.parse_args()
    result = run(args.rounds, args.hidden, args.layers)
    if args.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        if name != "raw":
            print(f"{name:28} {value}")


if __name__ == "__main__":
    main()
