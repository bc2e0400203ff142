"""Sampled neighbourhoods of a batch, compiled against numpy in one process; layer-wise evaluation.

    python benchmarks/sampling.py                     # a tenth of ogbn-proteins' nodes, its degree: under a minute
    python benchmarks/sampling.py --shape proteins    # 132 k nodes, 79 M entries, 6 layers, fan-out 32, batch 8662
    python benchmarks/sampling.py --rounds 5 --json
    python benchmarks/sampling.py --evaluate          # layer-wise evaluation of a GCN too: time, and memory at the peak

The graph is synthetic (`benchmarks/hops.py`); every entry has edge features to be found, as on ogbn-proteins. `numpy`
is the vectorised sampler that was used before: Floyd's algorithm over all rows at once, then a sort to number the
sources. Rounds are interleaved; ratios are of the minimum wall time and of the minimum CPU time.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from hops import make_edges, measure, summary

from labeldeconv.gnns.gcn import GCN
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.edge_features import EdgeFeatures
from labeldeconv.propagation.sampling import sample_blocks
from labeldeconv.settings.models import GNNAdjacencyConfig
from labeldeconv.stages.memory import peak_memory_mib
from labeldeconv.training.layerwise import infer

SHAPES = {  # nodes, edges, batch
    "proteins-tenth": (13_253, 3_956_125, 866),
    "proteins": (132_534, 39_561_252, 8662),
}
LAYERS, FANOUT = 6, 32
WIDTH, HIDDEN, CLASSES = 128, 64, 112  # of the GCN that is evaluated


def numpy_blocks(adj: Adjacency, seeds: np.ndarray, generator: np.random.Generator) -> int:
    """The former way: rows, sources and edge features per convolution; returns |G(B)|."""
    nodes = seeds
    for _ in range(LAYERS):
        first = adj.indptr[nodes]
        degree = adj.indptr[nodes + 1] - first
        counts = np.minimum(degree, FANOUT)
        start = np.cumsum(counts) - counts
        entries = np.repeat(first - start, counts) + np.arange(counts.sum())
        cut = np.flatnonzero(degree > FANOUT)
        drawn = np.empty((len(cut), FANOUT), dtype=np.int64)
        for j in range(FANOUT):
            last = degree[cut] - FANOUT + j
            new = generator.integers(0, last + 1)
            taken = (drawn[:, :j] == new[:, None]).any(1)
            drawn[:, j] = np.where(taken, last, new)
        entries[start[cut, None] + np.arange(FANOUT)] = first[cut, None] + drawn
        columns = adj.indices[entries].astype(np.int64)
        sources = np.concatenate([nodes, np.setdiff1d(columns, nodes)])
        order = np.argsort(sources, kind="stable")
        _ = order[np.searchsorted(sources, columns, sorter=order)]
        assert adj.edge_features is not None
        _ = adj.edge_features.index[entries]
        nodes = sources
    return len(nodes)


def run(shape: str, rounds: int, evaluate: bool) -> dict[str, Any]:
    """Ratios and times of one shape."""
    n, e, batch = SHAPES[shape]
    adj = Adjacency.from_edges(make_edges(n, e), n, GNNAdjacencyConfig())
    rng = np.random.default_rng(0)
    index = rng.integers(0, e, len(adj.indices), dtype=np.int32)
    adj = replace(adj, edge_features=EdgeFeatures(np.zeros((e, 8), np.float32), index, np.zeros(8, np.float32)))
    seeds = np.sort(rng.permutation(n)[:batch])
    sizes: dict[str, int] = {}

    def own() -> None:
        sizes["own"] = len(sample_blocks(adj, seeds, [FANOUT] * LAYERS, rng)[0])

    def peer() -> None:
        sizes["numpy"] = numpy_blocks(adj, seeds, rng)

    own()  # compiles
    runs: dict[str, list[dict[str, float]]] = {"own": [], "numpy": []}
    for _ in range(rounds):
        for name, work in (("own", own), ("numpy", peer), ("own", own)):
            runs[name].append(measure(work))
    wall, cpu = summary(runs, "wall"), summary(runs, "cpu")
    found: dict[str, Any] = {
        "shape": shape,
        "nodes": n,
        "entries": len(adj.indices),
        "batch": batch,
        "subgraph": sizes,
        "seconds": {name: round(t["min"], 4) for name, t in wall.items()},
        "cpu_seconds": {name: round(t["min"], 4) for name, t in cpu.items()},
        "ratio_wall": round(wall["numpy"]["min"] / wall["own"]["min"], 2),
        "ratio_cpu": round(cpu["numpy"]["min"] / cpu["own"]["min"], 2),
    }
    return found | (layerwise(adj, rng) if evaluate else {})


def layerwise(adj: Adjacency, rng: np.random.Generator) -> dict[str, float]:
    """Seconds of an evaluation of all nodes, and by how much it raised the peak of the process's memory."""
    n = adj.num_nodes
    features = rng.standard_normal((n, WIDTH), dtype=np.float32).astype(np.float16)
    gnn = GCN(WIDTH, CLASSES, layers=LAYERS, hidden=HIDDEN).eval()
    before = peak_memory_mib() or 0.0
    with TemporaryDirectory() as folder, torch.inference_mode():
        seconds = measure(lambda: infer(gnn, features, adj, np.arange(n), Path(folder), torch.device("cpu")))
    more = (peak_memory_mib() or 0.0) - before
    return {
        "layerwise_seconds": round(seconds["wall"], 2),
        "layerwise_cpu_seconds": round(seconds["cpu"], 2),
        "layerwise_more_peak_mib": round(more, 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=list(SHAPES), default="proteins-tenth")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = run(args.shape, args.rounds, args.evaluate)
    print(json.dumps(found) if args.json else "\n".join(f"{name}: {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
