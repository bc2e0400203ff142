"""Sampled neighbourhoods of a batch, compiled against numpy in one process; with training; layer-wise evaluation.

    python benchmarks/sampling.py                     # a tenth of ogbn-proteins' nodes, its degree: under a minute
    python benchmarks/sampling.py --shape proteins    # 132 k nodes, 79 M entries, 6 layers, fan-out 32, batch 8662
    python benchmarks/sampling.py --shape products    # or arxiv: two convolutions, fan-outs 15 and 10, batch 1,024
    python benchmarks/sampling.py --shape arxiv --training 20    # batches a second while a SAGE trains on them
    python benchmarks/sampling.py --rounds 5 --json
    python benchmarks/sampling.py --evaluate          # layer-wise evaluation of a GCN too: time, and memory at the peak

The graph is synthetic (`benchmarks/hops.py`); on proteins' shapes every entry has edge features to be found. `numpy`
is the vectorised sampler that was used before: Floyd's algorithm over all rows at once, then a sort to number the
sources. `pyg` is PyG's NeighborLoader, where pyg-lib or torch-sparse is installed. Rounds are interleaved; ratios are
of the minimum wall time and of the minimum CPU time. `--training` compares epochs whose batches are drawn while the one
before trains with epochs over batches that were drawn before: what is left of the time of drawing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from hops import interleaved, make_edges, measure, summary
from torch.nn import functional

from labeldeconv.gnns.gcn import GCN
from labeldeconv.gnns.sage import SAGE
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.edge_features import EdgeFeatures
from labeldeconv.propagation.sampling import sample_blocks
from labeldeconv.settings.models import GNNAdjacencyConfig
from labeldeconv.stages.memory import peak_memory_mib
from labeldeconv.training.feed import Batch, NeighborFeed
from labeldeconv.training.layerwise import infer

LAYERS, FANOUT = 6, 32
SHAPES: dict[str, tuple[int, int, int, list[int]]] = {  # nodes, edges, batch, fan-outs from the first convolution on
    "proteins-tenth": (13_253, 3_956_125, 866, [FANOUT] * LAYERS),
    "proteins": (132_534, 39_561_252, 8662, [FANOUT] * LAYERS),
    "arxiv": (169_343, 1_157_799, 1024, [10, 15]),
    "products": (2_449_029, 61_859_140, 1024, [10, 15]),
}
WIDTH, HIDDEN, CLASSES = 128, 64, 112  # of the GCN that is evaluated


def numpy_blocks(adj: Adjacency, seeds: np.ndarray, fanouts: list[int], generator: np.random.Generator) -> int:
    """The former way: rows, sources and edge features per convolution; returns |G(B)|."""
    nodes = seeds
    for fanout in reversed(fanouts):
        first = adj.indptr[nodes]
        degree = adj.indptr[nodes + 1] - first
        counts = np.minimum(degree, fanout)
        start = np.cumsum(counts) - counts
        entries = np.repeat(first - start, counts) + np.arange(counts.sum())
        cut = np.flatnonzero(degree > fanout)
        drawn = np.empty((len(cut), fanout), dtype=np.int64)
        for j in range(fanout):
            last = degree[cut] - fanout + j
            new = generator.integers(0, last + 1)
            taken = (drawn[:, :j] == new[:, None]).any(1)
            drawn[:, j] = np.where(taken, last, new)
        entries[start[cut, None] + np.arange(fanout)] = first[cut, None] + drawn
        columns = adj.indices[entries].astype(np.int64)
        sources = np.concatenate([nodes, np.setdiff1d(columns, nodes)])
        order = np.argsort(sources, kind="stable")
        _ = order[np.searchsorted(sources, columns, sorter=order)]
        if adj.edge_features is not None:
            _ = adj.edge_features.index[entries]
        nodes = sources
    return len(nodes)


def pyg_sampler(adj: Adjacency, seeds: np.ndarray, fanouts: list[int]) -> Callable[[], int] | None:
    """One batch of PyG's NeighborLoader; None where what it needs is not installed."""
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader
    from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

    if not (WITH_PYG_LIB or WITH_TORCH_SPARSE):
        return None
    data = Data(edge_index=adj.edge_index(torch.device("cpu")), num_nodes=adj.num_nodes)
    nodes = torch.from_numpy(seeds)
    loader = NeighborLoader(data, fanouts[::-1], input_nodes=nodes, batch_size=len(seeds), num_workers=0)
    return lambda: next(iter(loader)).num_nodes


def run(shape: str, rounds: int, evaluate: bool, training_batches: int) -> dict[str, Any]:
    """Ratios and times of one shape."""
    n, e, batch, fanouts = SHAPES[shape]
    adj = Adjacency.from_edges(make_edges(n, e), n, GNNAdjacencyConfig())
    rng = np.random.default_rng(0)
    if shape.startswith("proteins"):
        index = rng.integers(0, e, len(adj.indices), dtype=np.int32)
        adj = replace(adj, edge_features=EdgeFeatures(np.zeros((e, 8), np.float32), index, np.zeros(8, np.float32)))
    seeds = np.sort(rng.permutation(n)[:batch])
    sizes: dict[str, int] = {}

    def own() -> None:
        sizes["own"] = len(sample_blocks(adj, seeds, list(fanouts), rng)[0])

    def peer() -> None:
        sizes["numpy"] = numpy_blocks(adj, seeds, fanouts, rng)

    works: dict[str, Callable[[], Any]] = {"own": own, "numpy": peer}
    if pyg := pyg_sampler(adj, seeds, fanouts):
        works["pyg"] = pyg
    runs = interleaved(works, rounds)
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
        "pyg": round(wall["pyg"]["min"] / wall["own"]["min"], 2) if pyg else "not installed",
    }
    found |= layerwise(adj, rng) if evaluate else {}
    return found | (trained(adj, batch, fanouts, training_batches, rounds) if training_batches else {})


def trained(adj: Adjacency, batch: int, fanouts: list[int], batches: int, rounds: int) -> dict[str, float]:
    """Batches a second of a SAGE's training: drawn along the way, drawn before, and of drawing alone."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((adj.num_nodes, WIDTH), dtype=np.float32).astype(np.float16)
    labels = torch.from_numpy(rng.integers(0, CLASSES, adj.num_nodes))
    nodes = np.sort(rng.permutation(adj.num_nodes)[: batch * batches])
    gnn = SAGE(WIDTH, CLASSES, layers=len(fanouts), hidden=4 * HIDDEN)
    optimizer = torch.optim.Adam(gnn.parameters())
    with TemporaryDirectory() as folder:
        feed = NeighborFeed(x, adj, batch, fanouts, Path(folder), torch.device("cpu"))
        before = list(feed.batches(nodes, np.random.default_rng(1)))

        def steps(drawn: Iterable[Batch]) -> None:
            for part in drawn:
                optimizer.zero_grad()
                functional.cross_entropy(part.logits(gnn), labels[part.ids]).backward()
                optimizer.step()

        works: dict[str, Callable[[], Any]] = {
            "along": lambda: steps(feed.batches(nodes, np.random.default_rng(1))),
            "before": lambda: steps(before),
            "drawn": lambda: sum(len(part.ids) for part in feed.batches(nodes, np.random.default_rng(1))),
        }
        times = summary(interleaved(works, rounds), "wall")
    along, trained_alone, drawn = (times[name]["min"] for name in works)
    return {
        "batches_a_second": round(len(before) / along, 2),
        "batches_a_second_drawn_before": round(len(before) / trained_alone, 2),
        "batches_a_second_of_drawing": round(len(before) / drawn, 2),
        "drawing_hidden": round((drawn + trained_alone - along) / drawn, 3),
    }


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
    parser.add_argument("--training", type=int, default=0, help="so many batches of a SAGE's training")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = run(args.shape, args.rounds, args.evaluate, args.training)
    print(json.dumps(found) if args.json else "\n".join(f"{name}: {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
