"""One new node on a graph of Debian's size: exact and fast prediction against a pass over the whole grown graph.

    python benchmarks/predict.py                       # 63,620 nodes, 336,570 edges, features of 384 numbers
    python benchmarks/predict.py --gnns gcn,sagn --even --json

A random graph whose nodes are linked to by Zipf's law, so that there are hubs as libc6 is one (16,000 neighbours), or,
with --even, all alike. Every round adds one node with five edges to nodes drawn by the same law; GNNs have random
weights and their own defaults. Times are beyond the encoder's own. `wall` is what a user waits, `cpu` what one thread
computes: on a busy machine only the latter says something, and the ratios are of it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeldeconv.gnns.base import GNNS
from labeldeconv.prediction.logits import GraphModel
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import GNNAdjacencyConfig
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.stage import session

WIDTH, CLASSES, LINKS = 384, 58, 5


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Milliseconds of one call: wall, CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return 1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - cpu)


def measured(name: str, nodes: int, edges: int, even: bool, rounds: int, warm: int = 2) -> dict[str, Any]:
    """Median and 95th percentile of both modes, and the whole graph, for one GNN."""
    rng = np.random.default_rng(0)
    law = np.ones(nodes) if even else 1 / np.arange(1, nodes + 1) ** 0.9
    law /= law.sum()
    ends = np.stack([rng.integers(0, nodes, edges), rng.choice(nodes, edges, p=law)])
    kind = GNNS[name]
    said = {k.rpartition(".")[2]: v for k, v in kind.suggests.items() if k.startswith("gnn.adjacency.")}
    config = GNNAdjacencyConfig(**said)
    torch.manual_seed(0)
    layers = max(2, kind.least_layers, int(kind.suggests.get("gnn.layers", 2)))
    gnn = kind(WIDTH, CLASSES, layers=layers, hidden=256, dropout=0.5).eval()
    x = rng.normal(size=(nodes, WIDTH)).astype(np.float16)
    adj = Adjacency.from_edges(ends, nodes, config)
    model = GraphModel(gnn, x, adj, config, ends, None, name)
    out: dict[str, Any] = {"gnn": name, "largest_degree": int(np.diff(adj.indptr).max())}
    for mode in ("exact", "fast"):
        times = []
        for _ in range(rounds + warm):
            new = np.stack([np.full(LINKS, nodes), rng.choice(nodes, LINKS, p=law)])
            own = rng.normal(size=(1, WIDTH)).astype(np.float16)

            def one(new: np.ndarray = new, own: np.ndarray = own, mode: Any = mode) -> None:
                grown = model.grow(1, new)
                model.logits(grown, own, new, grown.new_nodes, mode)

            times.append(timed(one))
        wall, cpu = np.array(times[warm:]).T
        out[mode] = {"wall_p50": np.median(wall), "wall_p95": np.percentile(wall, 95)}
        out[mode] |= {"cpu_p50": np.median(cpu), "cpu_p95": np.percentile(cpu, 95)}
    grown = model.grow(1, new)
    wall, cpu = timed(lambda: model.on_the_whole(grown, own, new, grown.new_nodes))
    out["whole"] = {"wall": wall, "cpu": cpu}
    out["times_faster"] = {mode: cpu / out[mode]["cpu_p50"] for mode in ("exact", "fast")}
    return out


def main() -> None:
    """Measure the GNNs one after the other, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=63_620)
    parser.add_argument("--edges", type=int, default=336_570)
    parser.add_argument("--gnns", default=",".join(GNNS))
    parser.add_argument("--even", action="store_true", help="no hubs")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON line per GNN")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for name in args.gnns.split(","):
        with tempfile.TemporaryDirectory() as folder, session(Cache(Path(folder))):
            row = measured(name, args.nodes, args.edges, args.even, args.rounds)
        if args.json:
            print(json.dumps({"nodes": args.nodes, "edges": args.edges, "even": args.even, **row}))
            continue
        for mode in ("exact", "fast"):
            t, times = row[mode], row["times_faster"][mode]
            print(f"{name:8s} {mode:5s} p50 {t['wall_p50']:8.1f} ms wall {t['cpu_p50']:8.1f} ms CPU,", end=" ")
            print(f"p95 {t['wall_p95']:8.1f}, {t['cpu_p95']:8.1f}; {times:6.0f} times faster than the whole graph")


if __name__ == "__main__":
    main()
