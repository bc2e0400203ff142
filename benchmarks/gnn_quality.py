"""Every GNN on X_PNE of real graphs, against an MLP and a plain reference made of PyG's own model classes.

    python benchmarks/gnn_quality.py [--data ../shared/data/citeseer] [--seeds 5] [--gnns gcn,gat] [--out FILE]

Same features, split, optimiser, width, depth and early stopping for all. The references are torch_geometric.nn.GCN and
GAT with BatchNorm; GroupAddRev over GATConv for RevGAT; MLP with APPNP (no teleport) for SpeGCN. PyG has no GAMLP, SAGN
or SpeGNN: their column is empty. Exits with 1 where a GNN is below the MLP or more than a point below its reference.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric import nn as pyg

from labeldeconv import load_config, open_data
from labeldeconv.gnns.base import GNN, GNNS
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import Task
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.runs.preparation import prepare
from labeldeconv.settings.models import Config
from labeldeconv.stages.stage import Folder
from labeldeconv.training.feed import make_feed
from labeldeconv.training.gnn import train_gnn

HIDDEN, DROPOUT, HEADS = 64, 0.5, 1
COMMON = {
    "hidden": HIDDEN,
    "dropout": DROPOUT,
    "lr": 0.01,
    "schedule": "constant",
    "epochs": 60,
    "patience": 15,
    "batch_rows": 2000,
}
LAYERS = {"revgat": 3}  # its least with a reversible block
OPTIONS = {"gat": {"heads": HEADS}, "revgat": {"heads": HEADS}}


class Reference(GNN):
    """A module of PyG behind the contract, so that the same loop trains it."""

    feed = "graph"

    def __init__(self, in_dim: int, out_dim: int, model: nn.Module, sparse: bool = False) -> None:
        super().__init__(in_dim, out_dim)
        self.model, self.sparse = model, sparse

    @property
    def hops(self) -> int:
        """Not used."""
        return 0

    def psi(self, x: Tensor) -> Tensor:
        """Not used."""
        raise NotImplementedError

    def forward(self, x: Tensor, adj: Adjacency) -> Tensor:
        """A-hat of the project as the edge index or sparse matrix that PyG's classes take."""
        return self.model(x, adj.on(x.device) if self.sparse else adj.edge_index(x.device))


class Mlp(nn.Module):
    """PyG's MLP with the call of a graph model."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.mlp = pyg.MLP([in_dim, HIDDEN, out_dim], dropout=DROPOUT, norm="batch_norm")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Features alone."""
        return self.mlp(x)


class Appnp(Mlp):
    """A-hat^2 MLP(x): APPNP without teleport."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__(in_dim, out_dim)
        self.appnp = pyg.APPNP(K=2, alpha=0.0, normalize=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """MLP, then propagation."""
        return self.appnp(self.mlp(x), edge_index)


class RevBlock(nn.Module):
    """Norm, ReLU, GATConv: the block of PyG's RevGNN example."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.conv = pyg.GATConv(width, width // HEADS, HEADS, add_self_loops=False, residual=True)

    def forward(self, x: Tensor, edge_index: Tensor, mask: Tensor | None = None) -> Tensor:
        """Shared dropout mask, as reversible blocks need."""
        x = self.norm(x).relu()
        return self.conv(x if mask is None else x * mask, edge_index)


class Rev(nn.Module):
    """GATConv, GroupAddRev of two groups, GATConv."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        width = HEADS * HIDDEN
        self.first = pyg.GATConv(in_dim, HIDDEN, HEADS, add_self_loops=False, residual=True)
        self.block = pyg.GroupAddRev(RevBlock(width // 2), num_groups=2)
        self.norm = nn.BatchNorm1d(width)
        self.last = pyg.GATConv(width, out_dim, 1, add_self_loops=False, residual=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """As PyG's RevGNN example, with attention."""
        h = self.first(F.dropout(x, 0.25, self.training), edge_index)
        mask = torch.empty_like(h).bernoulli_(1 - DROPOUT) / (1 - DROPOUT) if self.training else None
        self.block.disable = not torch.is_grad_enabled()
        h = self.block(h, edge_index, *([] if mask is None else [mask]))
        return self.last(F.dropout(self.norm(h).relu(), DROPOUT, self.training), edge_index)


def reference(name: str, d: int, c: int) -> GNN | None:
    """The plain reference of a GNN, where PyG has the classes for it."""
    basic = {"hidden_channels": HIDDEN, "num_layers": 2, "out_channels": c, "dropout": DROPOUT, "norm": "batch_norm"}
    if name == "mlp":
        return Reference(d, c, Mlp(d, c))
    if name == "gcn":
        return Reference(d, c, pyg.GCN(d, normalize=False, **basic), sparse=True)
    if name == "gat":
        wide = {**basic, "hidden_channels": HEADS * HIDDEN}
        return Reference(d, c, pyg.GAT(d, heads=HEADS, add_self_loops=False, **wide))
    if name == "revgat":
        return Reference(d, c, Rev(d, c))
    return Reference(d, c, Appnp(d, c), sparse=True) if name == "spegcn" else None


def train_reference(name: str, config: Config, graph: AttributedGraph, x: np.ndarray, seed: int) -> float | None:
    """Test score of a reference with one seed."""
    torch.manual_seed(seed)
    gnn = reference(name, x.shape[1], graph.num_classes)
    if gnn is None:
        return None
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes, config.gnn.adjacency)
    with tempfile.TemporaryDirectory() as folder:
        feed = make_feed(gnn, x, adj, config.gnn, Path(folder), torch.device("cpu"))
        run = train_gnn(gnn, feed, Task.of(graph), graph.labels, graph.split, config.gnn, seed, Folder(Path(folder)))
        return test_score(graph, run.logits)


def test_score(graph: AttributedGraph, logits: np.ndarray) -> float:
    """The score of logits (n, c) on the test nodes."""
    test = graph.split.test
    return Task.of(graph).score(logits[test], graph.labels[test])


def measure(data: str, gnns: list[str], seeds: int) -> list[dict]:
    """One row per GNN, the MLP first."""
    base = load_config(None, {"data": data, **{f"gnn.{k}": v for k, v in COMMON.items()}})
    graph = open_data(data).graph
    x = prepare(base, graph).encode().values
    rows = []
    for name in ["mlp", *gnns]:
        own, plain = [], []
        for seed in range(seeds):
            settings = {"seed": seed, "gnn.name": name, "gnn.options": OPTIONS.get(name, {})}
            config = load_config(base, {**settings, "gnn.layers": LAYERS.get(name, 2)})
            if name != "mlp":
                run = prepare(config, graph)
                own.append(test_score(graph, run.gnn(run.encode()).logits))
            score = train_reference(name, config, graph, np.asarray(x), seed)
            plain += [] if score is None else [score]
        rows.append({"data": graph.name, "gnn": name, "own": own, "reference": plain})
        print(line(rows[-1], rows[0]), flush=True)
    return rows


def line(row: dict, mlp: dict) -> str:
    """A row as text: means and standard deviations in percent, and the differences that count."""
    own, plain = row["own"], row["reference"]
    cells = [f"{row['data']:10} {row['gnn']:8}", f"{_spread(own):>14}", f"{_spread(plain):>14}"]
    if own:
        cells.append(f"{100 * (_mean(own) - _mean(mlp['reference'])):+8.2f}")
        cells.append(f"{100 * (_mean(own) - _mean(plain)):+8.2f}" if plain else f"{'-':>8}")
    return " ".join(cells)


def _mean(values: list[float]) -> float:
    return statistics.mean(values)


def _spread(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{100 * _mean(values):.2f} ± {100 * (statistics.stdev(values) if len(values) > 1 else 0):.2f}"


def main() -> None:
    """Print the table, keep it as JSON, and say whether it holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", action="append")
    parser.add_argument("--gnns", default=",".join(GNNS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    print(f"test accuracy, mean ± std over {args.seeds} seeds; own - MLP, own - reference in points")
    print(f"{'data':10} {'GNN':8} {'own':>14} {'PyG reference':>14} {'- MLP':>8} {'- ref':>8}")
    failed, everything = [], []
    for data in args.data or ["../shared/data/citeseer", "../shared/data/stacks"]:
        rows = measure(data, args.gnns.split(","), args.seeds)
        everything += rows
        for row in rows[1:]:
            if _mean(row["own"]) < _mean(rows[0]["reference"]):
                failed.append(f"{row['data']} {row['gnn']}: below the MLP")
            if row["reference"] and _mean(row["own"]) < _mean(row["reference"]) - 0.01:
                failed.append(f"{row['data']} {row['gnn']}: more than a point below its reference")
    if args.out:
        args.out.write_text(json.dumps(everything, indent=1))
    print("\n".join(failed) or "all hold: every GNN at least as good as the MLP and within a point of its reference")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
