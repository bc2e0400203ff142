"""Every recipe's stages at the true size of its data set, so that no recipe hides a step that cannot end.

    python benchmarks/paper_scale.py                       all three shapes, the cheap stages
    python benchmarks/paper_scale.py --shape products --stages hops,gamma,gnn --json products.json

Graphs are synthetic, with the nodes, edges, classes and degrees (power law) of ogbn-arxiv, -products and -proteins.
Random features stand for the large encoder's (width 768, or 1280 for ESM2), since encoding is row-wise and its cost per
token is known. Every stage runs in a process of its own, bounded in time; reported are seconds (of one epoch, for the
GNN), CPU seconds of all threads, which a busy machine changes less, and peak memory: that which the system cannot take
back, sampled five times a second, and in the file of results also with the pages of mapped files, which shrink where
others need memory. Bars: LD on products under 12 GiB, a GAT epoch's sampling on proteins under 60 s, by the clock or by
the CPU.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Shape:
    """Nodes, given edges, classes, width of features, shares of the split, and the recipe that is measured."""

    nodes: int
    edges: int
    classes: int
    width: int
    train: float
    val: float
    recipe: str
    multilabel: bool = False


SHAPES = {
    "arxiv": Shape(169_343, 1_166_243, 40, 768, 0.54, 0.18, "arxiv-revgat-ld"),
    "products": Shape(2_449_029, 61_859_140, 47, 768, 0.08, 0.016, "products-gamlp-ld"),
    "proteins": Shape(132_534, 39_561_252, 112, 1280, 0.65, 0.16, "proteins-gat-ld", True),
}
STAGES = ("adjacency", "hops", "gamma", "rows", "sampling", "gnn")
LIMIT_GIB = 12.0
LIMITS_GIB = {"gamma": 2.0}  # of single stages
LIMIT_SAMPLING = 60.0  # seconds of an epoch


class Clock:
    """Since it was made: seconds by the clock and of the CPU in all threads, and the most memory of this process.

    That is anonymous memory, which the system cannot take back as it can pages of a mapped file, read five times a
    second. What the process held before, such as torch itself, is part of it.
    """

    def __init__(self) -> None:
        self.start, self.peak, self.over = (time.perf_counter(), time.process_time()), 0.0, threading.Event()
        self.watch = threading.Thread(target=self._sample, daemon=True)
        self.watch.start()

    def _sample(self) -> None:
        from labeldeconv.stages.memory import anonymous_memory_mib

        while not self.over.wait(0.2):
            self.peak = max(self.peak, anonymous_memory_mib() or 0.0)

    def read(self) -> dict[str, float]:
        """All three by name; it stops."""
        told = {"seconds": time.perf_counter() - self.start[0], "cpu_seconds": time.process_time() - self.start[1]}
        self.over.set()
        self.watch.join()
        return {**told, "peak_mib": self.peak}


def edges_of(shape: Shape, folder: Path, seed: int = 0) -> np.ndarray:
    """(2, e) edges with power-law degrees, three quarters of them near each other, memory-mapped like a run's graph."""
    rng = np.random.default_rng(seed)
    path = folder / "edges.npy"
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.int32, shape=(2, shape.edges))
    for start in range(0, shape.edges, 1 << 22):
        part = out[:, start : start + (1 << 22)]
        size = part.shape[1]
        source = (shape.nodes * rng.random(size) ** 1.6).astype(np.int32)
        near = rng.random(size) < 0.75
        step, far = rng.integers(1, 2000, size), rng.integers(0, shape.nodes, size)
        part[:] = source, np.where(near, (source + step) % shape.nodes, far)
    out.flush()
    del out
    return np.load(path, mmap_mode="r")


def features_of(shape: Shape, folder: Path) -> np.ndarray:
    """Random features (n, d) float16 in a file, written in blocks, memory-mapped."""
    path = folder / "features.npy"
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(shape.nodes, shape.width))
    rng = np.random.default_rng(1)
    for start in range(0, shape.nodes, 1 << 16):
        stop = min(start + (1 << 16), shape.nodes)
        out[start:stop] = rng.standard_normal((stop - start, shape.width), dtype=np.float32)
    out.flush()
    del out
    return np.load(path, mmap_mode="r")


def labels_of(shape: Shape) -> np.ndarray:
    """Pseudo labels Y (n, c) float32: rows of a softmax, or independent probabilities."""
    rng = np.random.default_rng(2)
    Y = np.empty((shape.nodes, shape.classes), dtype=np.float32)
    for start in range(0, shape.nodes, 1 << 18):
        stop = min(start + (1 << 18), shape.nodes)
        part = rng.random((stop - start, shape.classes), dtype=np.float32) ** 4
        Y[start:stop] = part if shape.multilabel else part / part.sum(1, keepdims=True)
    return Y


def measure(name: str, stage: str, folder: Path) -> dict[str, Any]:
    """Run one stage of one shape, with files in `folder`; seconds and what it was."""
    from labeldeconv.labels.hops import write_hop_labels
    from labeldeconv.propagation.adjacency import Adjacency
    from labeldeconv.settings.reading import load_config

    shape = SHAPES[name]
    config = load_config(ROOT / "recipes" / f"{shape.recipe}.toml")
    edges = edges_of(shape, folder)
    if stage not in ("adjacency", "hops", "gamma"):
        return _gnn(shape, config, edges, stage, folder)
    clock = Clock()
    adj = Adjacency.from_edges(edges, shape.nodes, config.labels.adjacency)
    if stage == "adjacency":
        return {**clock.read(), "entries": int(adj.indptr[-1])}
    hops = config.labels.hops or config.gnn.layers
    Y = labels_of(shape)
    clock = Clock()
    K = write_hop_labels(adj, Y, hops, folder / "K.npy")
    if stage == "hops":
        return {**clock.read(), "hops": hops}
    del Y, adj
    return _gamma(shape, config, edges, K, folder)


def _gamma(shape: Shape, config: Any, edges: np.ndarray, K: np.ndarray, folder: Path) -> dict[str, Any]:
    """The closed-form choice of gamma on frozen features, with the GNN's A-hat, as the stage makes it."""
    from labeldeconv.graph.split import Split
    from labeldeconv.graph.task import Task
    from labeldeconv.labels.gamma import choose_gamma
    from labeldeconv.propagation.adjacency import Adjacency

    x, roles = features_of(shape, folder), _roles(shape)
    task = Task("multilabel" if shape.multilabel else "multiclass", shape.classes)
    labels = _true_labels(shape)
    clock = Clock()
    adj = Adjacency.from_edges(edges, shape.nodes, config.gnn.adjacency)
    found = choose_gamma(x, K, adj, labels, Split(roles), task)
    return {**clock.read(), "candidates": len(found)}


def _gnn(shape: Shape, config: Any, edges: np.ndarray, stage: str, folder: Path) -> dict[str, Any]:
    """Hop rows written ('rows'), the batches of an epoch drawn ('sampling'), or one epoch of the GNN ('gnn')."""
    import torch

    from labeldeconv.gnns.architecture import Architecture
    from labeldeconv.graph.split import Split
    from labeldeconv.graph.task import Task
    from labeldeconv.propagation.adjacency import Adjacency
    from labeldeconv.stages.stage import Folder
    from labeldeconv.training.feed import make_feed
    from labeldeconv.training.gnn import train_gnn

    torch.manual_seed(0)
    architecture = Architecture.of(config.gnn)
    model = architecture.build(shape.width, shape.classes)
    x = features_of(shape, folder)
    adj = Adjacency.from_edges(edges, shape.nodes, config.gnn.adjacency)
    if model.edge_dim:
        rng = np.random.default_rng(3)
        adj = adj.with_edge_features(edges, rng.random((edges.shape[1], model.edge_dim), dtype=np.float32))
    task = Task("multilabel" if shape.multilabel else "multiclass", shape.classes)
    labels, split = _true_labels(shape), Split(_roles(shape))
    clock = Clock()
    feed = make_feed(model, x, adj, config.gnn, folder, torch.device("cpu"))
    if stage == "rows":
        return {**clock.read(), "feed": type(feed).__name__}
    if stage == "sampling":
        clock = Clock()
        count = sum(1 for _ in feed.batches(split.train, np.random.default_rng(0)))
        return {**clock.read(), "batches": count}
    once = config.gnn.model_copy(update={"epochs": 1, "self_training": config.gnn.self_training.model_copy(
        update={"stages": 1})})  # fmt: skip
    clock = Clock()
    train_gnn(model, feed, task, labels, split, once, 0, Folder(folder))
    return clock.read()


def _roles(shape: Shape) -> np.ndarray:
    """Train, validation and test nodes, at random, in the shares of the official split."""
    draw = np.random.default_rng(4).random(shape.nodes)
    return np.where(draw < shape.train, 0, np.where(draw < shape.train + shape.val, 1, 2)).astype(np.int8)


def _true_labels(shape: Shape) -> np.ndarray:
    rng = np.random.default_rng(5)
    if shape.multilabel:
        return rng.integers(0, 2, (shape.nodes, shape.classes), dtype=np.int8)
    return rng.integers(0, shape.classes, shape.nodes, dtype=np.int32)


def _guarded(name: str, stage: str, folder: Path, queue: Any) -> None:
    try:
        queue.put(measure(name, stage, folder))
    except Exception as error:
        queue.put({"error": f"{type(error).__name__}: {error}"})
    queue.put({"peak_mapped_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024})


def run(name: str, stage: str, minutes: float) -> dict[str, Any]:
    """One stage in a process of its own; ends it when the time is up."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    row: dict[str, Any] = {"shape": name, "stage": stage}
    with tempfile.TemporaryDirectory(prefix="paper-scale-") as scratch:  # here, so that it goes with an ended process
        process = context.Process(target=_guarded, args=(name, stage, Path(scratch), queue))
        process.start()
        process.join(60 * minutes)
        if process.is_alive():
            process.terminate()
            process.join()
            return {**row, "error": f"not done in {minutes:g} minutes"}
    while not queue.empty():
        row |= queue.get()
    if process.exitcode:
        row["error"] = f"exit code {process.exitcode}"
    return row


def main() -> None:
    """Measure, print, keep, and fail where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", action="append", choices=sorted(SHAPES))
    parser.add_argument("--stages", default="adjacency,hops,sampling")
    parser.add_argument("--minutes", type=float, default=10, help="of one stage at most")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows, missed = [], []
    for name in args.shape or SHAPES:
        for stage in args.stages.split(","):
            if stage not in STAGES:
                parser.error(f"stage '{stage}': one of {', '.join(STAGES)} expected")
            row = run(name, stage, args.minutes)
            rows.append(row)
            told = row.get("error") or "{seconds:8.1f} s {cpu_seconds:8.1f} s CPU {peak_mib:8.0f} MiB".format(**row)
            print(f"{name:10} {stage:10} {told}", flush=True)
            slow = stage == "sampling" and min(row.get("seconds", 0), row.get("cpu_seconds", 0)) > LIMIT_SAMPLING
            if row.get("error") or row["peak_mib"] > 1024 * LIMITS_GIB.get(stage, LIMIT_GIB) or slow:
                missed.append(f"{name} {stage}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    print("missed: " + ", ".join(missed) if missed else "all stages end within their bars")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
