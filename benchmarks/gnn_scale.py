"""GAMLP and SAGN on a planted graph of ogbn-products' size: 2.4 M nodes, 60 M edges, 128 features, under 12 GiB.

    python benchmarks/gnn_scale.py [--nodes 2400000] [--gnns gamlp,sagn] [--epochs 2] [--limit 12]

The graph is generated once into the stage cache and memory-mapped from there; every GNN trains in a process of its own,
whose peak resident memory, mapped files included, is printed. `--gnns gcn,gat` samples neighbours and infers layer by
layer.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from labeldeconv import AttributedGraph
from labeldeconv.data.sets.planted import planted
from labeldeconv.gnns.base import GNNS
from labeldeconv.graph.task import Task
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import GNNConfig
from labeldeconv.stages.memory import peak_memory_mib
from labeldeconv.stages.stage import Artefact, Folder, stage
from labeldeconv.training.feed import make_feed
from labeldeconv.training.gnn import train_gnn

WIDTH, DEGREE, HOPS, HIDDEN = 128, 50.0, 3, 128


@dataclass(frozen=True, eq=False)
class Generated(Artefact):
    """The folder of a generated graph."""

    folder: Path


@stage(version=1)
def gnn_scale_graph(out: Folder, nodes: int, degree: float, features: int) -> Generated:
    """Generate a planted graph and keep it in the cache."""
    made = planted(nodes, mean_degree=degree, num_features=features, num_words=2, fractions=(0.08, 0.02))
    return Generated(made.graph.save(out.path / "graph"))


def train(folder: Path, name: str, epochs: int, scratch: Path | None) -> None:
    """Train one GNN and print what it took."""
    start = time.perf_counter()
    graph = AttributedGraph.load(folder)
    assert graph.features is not None
    layers = HOPS if GNNS[name].feed == "rows" else 2
    sampled = {"batching": "neighbors", "batch_nodes": 2048, "fanouts": [8]}
    config = GNNConfig(name=name, layers=layers, hidden=HIDDEN, epochs=epochs, lr=0.003, batch_rows=20_000, **sampled)
    torch.manual_seed(0)
    gnn = GNNS[name](WIDTH, graph.num_classes, layers=layers, hidden=HIDDEN, dropout=0.2)
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes, config.adjacency)
    ready = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        feed = make_feed(gnn, graph.features, adj, config, Path(place), torch.device("cpu"))
        fed = time.perf_counter()
        run = train_gnn(gnn, feed, Task.of(graph), graph.labels, graph.split, config, 0, Folder(Path(place)))
    done = time.perf_counter()
    peak = (peak_memory_mib() or 0.0) / 1024
    test = graph.split.test
    score = Task.of(graph).score(run.logits[test], graph.labels[test])
    chance = np.bincount(graph.labels).max() / graph.num_nodes
    print(
        f"{name:7} {graph.num_nodes:,} nodes, {graph.num_edges:,} edges: peak {peak:.2f} GiB; test accuracy"
        f" {100 * score:.1f}% (largest class {100 * chance:.1f}%); seconds: A-hat {ready - start:.0f},"
        f" hop features {fed - ready:.0f}, {run.epochs} epochs and prediction {done - fed:.0f}",
        flush=True,
    )
    print(f"PEAK {peak}")


def main() -> None:
    """Generate, then train each GNN in its own process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=2_400_000)
    parser.add_argument("--gnns", default="gamlp,sagn")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=12.0, help="GiB")
    parser.add_argument("--scratch", type=Path, help="where hop features go; default the system's temporary folder")
    parser.add_argument("--prepare", action="store_true", help="only generate the graph")
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        return train(Path(args.train[0]), args.train[1], args.epochs, args.scratch)
    if args.prepare:
        return print(gnn_scale_graph(args.nodes, DEGREE, WIDTH).folder)
    # In a process of its own too: what generation took must not count.
    made = subprocess.run(
        [sys.executable, __file__, "--prepare", "--nodes", str(args.nodes)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    folder, failed = made.stdout.split()[-1], []
    for name in args.gnns.split(","):
        command = [sys.executable, __file__, "--train", folder, name, "--epochs", str(args.epochs)]
        command += ["--scratch", str(args.scratch)] if args.scratch else []
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        report, _, peak = out.partition("PEAK ")
        print(report, end="", flush=True)
        if float(peak) >= args.limit:
            failed.append(name)
    print(f"over {args.limit} GiB: {', '.join(failed)}" if failed else f"all under {args.limit} GiB")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
