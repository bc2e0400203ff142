"""Growth with the graph: planted at 10^4, 10^5, 10^6 (and 10^7) nodes, time and memory by part, and their exponents.

    python benchmarks/scale.py
    python benchmarks/scale.py --sizes 10000,100000,1000000,10000000 --json
    python benchmarks/scale.py --flow                # every stage of `fit`, then report and predict; a tiny encoder

Every size runs in a process of its own: CSR from the edge list, hop labels K_0..K_2 on disk, the token store, one
training step of LD with MiniLM. `--flow` opens Parquet tables and fits LD with gamma 'auto' and GCN, then SAGN, an
epoch of the encoder and three of each GNN; there seconds are CPU time of all threads. Exponents are slopes of
log(seconds) and log(memory) over log(edges), from the second size on, since below it constants rule. Memory is what a
part adds at its peak to the process before it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import torch

from labeldeconv.data.sets.planted import planted
from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.encoders.tokens import write_tokens
from labeldeconv.encoders.vocabulary import used_vocabulary
from labeldeconv.gnns.base import Psi
from labeldeconv.gnns.gcn import GCN
from labeldeconv.graph.task import Task
from labeldeconv.labels.hops import write_hop_labels
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.prediction.predictor import Predictor
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.report.html import write_report
from labeldeconv.runs.fit import fit
from labeldeconv.settings.models import EncoderConfig, TrainConfig
from labeldeconv.stages import stage
from labeldeconv.stages.memory import peak_memory_mib
from labeldeconv.stages.stage import Folder
from labeldeconv.training.encoder import Objective, train_encoder

STEP_NODES = 320  # ten steps: compiled and warm after the first


def measure(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> tuple[dict[str, float], Any]:
    """Seconds of a part and the memory it adds at its peak."""
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_memory_mib() or 0.0
    start = clock()
    result = work()
    seconds = clock() - start
    return {"seconds": seconds, "mib": (peak_memory_mib() or 0.0) - before}, result


def one_size(nodes: int, folder: Path) -> dict[str, Any]:
    """All parts for one number of nodes."""
    Adjacency.from_edges(np.array([[0, 1], [1, 2]]), 3) @ np.zeros((3, 10), np.float32)  # kernels come from their cache
    parts: dict[str, dict[str, float]] = {}
    parts["graph"], data = measure(lambda: planted(num_nodes=nodes))
    graph = data.graph
    encoder = load_encoder(EncoderConfig(layers=2))
    parts["csr"], adj = measure(lambda: Adjacency.from_edges(graph.edges, graph.num_nodes))
    Y = np.lib.format.open_memmap(folder / "Y.npy", mode="w+", dtype=np.float32, shape=(nodes, graph.num_classes))
    Y[:] = np.random.default_rng(0).random(Y.shape, dtype=np.float32)
    parts["hop labels"], _ = measure(lambda: write_hop_labels(adj, Y, 2, folder / "K.npy"))
    tokenizer = encoder.tokenizer_part  # its key is hashed once per process
    parts["token store"], store = measure(lambda: write_tokens(tokenizer, graph.texts, 32, folder))
    K = np.load(folder / "K.npy", mmap_mode="r")
    task = Task("multiclass", graph.num_classes)
    psi = Psi(GCN(encoder.dim, graph.num_classes, layers=1))
    objective = Objective(encoder, psi, InverseLabels(K, 1.0, task), task)
    chosen = np.sort(np.random.default_rng(0).choice(nodes, STEP_NODES, replace=False))
    config = TrainConfig(epochs=1, precision="float32")
    with used_vocabulary(encoder, store):
        parts["ten steps"], _ = measure(lambda: train_encoder(objective, store, chosen, config, 0, Folder(folder)))
    return {"nodes": nodes, "edges": graph.edges.shape[1], "parts": parts, "whole_mib": peak_memory_mib()}


def flow(nodes: int, folder: Path) -> dict[str, Any]:
    """Every stage of `fit` on tables, and what follows, for one number of nodes; seconds are CPU time."""
    stage.time = SimpleNamespace(perf_counter=time.process_time)  # type: ignore[attr-defined]
    graph = planted(num_nodes=nodes).graph
    roles = np.array(["", "train", "val", "test"])[graph.split.roles + 1]
    with duckdb.connect() as con:
        con.register("nodes", {"id": np.arange(nodes), "text": np.array(list(graph.texts)), "label": graph.labels,
                               "split": roles})  # fmt: skip
        con.register("edges", {"source": graph.edges[0].copy(), "target": graph.edges[1].copy()})
        for name in ("nodes", "edges"):
            con.execute(f"COPY (SELECT * FROM {name}) TO '{folder}/{name}.parquet' (FORMAT parquet)")
    parts: dict[str, dict[str, float]] = {}
    cache = folder / "cache"
    for gnn in ("gcn", "sagn"):
        result = fit(folder, method="ld", encoder="tiny", gnn=gnn, gnn__epochs=3, train__epochs=1,
                     labels__gamma="auto", out=folder / gnn, cache=cache)  # fmt: skip
        for label, seconds in result.seconds.items():
            if label not in result.cached:
                name = f"{label}, {gnn}" if "gnn" in label else label
                parts.setdefault(name, {"seconds": seconds, "mib": result.peak_mib[label] or 0.0})
    parts["report"], _ = measure(lambda: write_report(folder / "gcn"), time.process_time)
    parts["open a run"], predictor = measure(lambda: Predictor.load(folder / "gcn"), time.process_time)
    edges = [("new-0", "1"), ("new-0", "2")]
    predictor.predict([graph.texts[0]], edges=edges)
    parts["predict a node"], _ = measure(lambda: predictor.predict([graph.texts[1]], edges=edges), time.process_time)
    return {"nodes": nodes, "edges": graph.edges.shape[1], "parts": parts, "whole_mib": peak_memory_mib()}


def exponent(edges: list[int], values: list[float]) -> float:
    """Slope of log(value) over log(edges)."""
    if len(edges) < 2:
        return float("nan")
    return float(np.polyfit(np.log(edges), np.log(np.maximum(values, 1e-3)), 1)[0])


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--json", action="store_true", help="one JSON line")
    parser.add_argument("--flow", action="store_true", help="every stage of fit with a tiny encoder")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps((flow if args.flow else one_size)(args.one, Path(folder))))
        return
    rows = []
    for size in args.sizes.split(","):
        command = [sys.executable, __file__, "--one", size, *(["--flow"] if args.flow else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        if not args.json:
            parts = ", ".join(f"{k} {v['seconds']:.2f} s {v['mib']:.0f} MiB" for k, v in rows[-1]["parts"].items())
            print(f"{rows[-1]['nodes']:>10,} nodes {rows[-1]['edges']:>11,} edges: {parts}", flush=True)
    large = rows[1:] if len(rows) > 2 else rows
    edges = [r["edges"] for r in large]
    exponents = {
        part: {unit: exponent(edges, [r["parts"][part][unit] for r in large]) for unit in ("seconds", "mib")}
        for part in rows[0]["parts"]
    }
    if args.json:
        print(json.dumps({"exponents": exponents, "sizes": rows, "threads": torch.get_num_threads()}))
        return
    for part, slopes in exponents.items():
        print(f"{part:16} time ~ edges^{slopes['seconds']:.2f}   memory ~ edges^{slopes['mib']:.2f}")


if __name__ == "__main__":
    main()
