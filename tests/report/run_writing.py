"""Run directories without training: the files that `fit` and `compare` leave, filled with chosen numbers."""

import json
from pathlib import Path

import numpy as np

from labeldeconv.comparison import Row, cell_name
from labeldeconv.evaluate import Spread
from labeldeconv.graph import AttributedGraph
from labeldeconv.labels.hops import hop_labels
from labeldeconv.record import write_json, write_text
from labeldeconv.settings import load_config
from labeldeconv.split import Split
from labeldeconv.task import Task
from labeldeconv.texts import Texts

SECONDS = {"tokens": 0.5, "train": 8.0, "gnn": 1.5}


def ring(n: int = 60, texts=None, multilabel: bool = False, val: bool = True) -> AttributedGraph:
    """A ring of n nodes with chords and three classes; every third node tests."""
    rng = np.random.default_rng(0)
    nodes = np.arange(n)
    edges = np.stack(
        [np.concatenate([nodes, nodes[: n // 2]]), np.concatenate([(nodes + 1) % n, (nodes[: n // 2] + 7) % n])]
    )
    labels = rng.integers(0, 3, n)
    if multilabel:
        labels = rng.integers(-1, 2, (n, 3))
        labels[0] = -1
    roles = np.array([0, 0, 1 if val else 0, 2])[nodes % 4].astype(np.int8)
    words = texts or [f"node number {i} of the ring" for i in nodes]
    return AttributedGraph(
        Texts.from_strings(words), edges, labels, Split(roles), ["red", "green", "blue"], name="ring"
    )


def write_run(folder: Path, graph: AttributedGraph, method: str = "ld", seed: int = 0, val: float | None = 0.5, **sets):
    """A finished run directory; returns its logits (n, c)."""
    folder.mkdir(parents=True, exist_ok=True)
    config = load_config(None, {"data": graph.name, "method": method, "seed": seed, "encoder.name": "tiny", **sets})
    task = Task.of(graph)
    rng = np.random.default_rng([seed, len(method)])
    truth = np.nan_to_num(task.targets(graph.labels), nan=0.3)
    logits = (rng.normal(size=truth.shape) + 2 * truth).astype(np.float32)
    np.save(folder / "logits.npy", logits)
    gamma = [0.3, 0.7] if method == "ld" else None
    if method in ("ld", "wo-ld"):
        Y = np.clip(truth, 0, 1).astype(np.float32)
        np.save(folder / "pseudo_labels.npy", Y)
        np.save(folder / "hop_labels.npy", hop_labels(graph.edges, Y, 1 if gamma else 0))
    if method != "pne":
        steps = [{"step": t, "epoch": 0, "loss": 2.0 / t, "lr": 1e-4, "gamma": gamma} for t in range(1, 21)]
        write_text(folder / "steps.jsonl", "".join(json.dumps(row) + "\n" for row in steps))
    epochs = [{"epoch": t, "loss": 1.0 / t, "val": val if val is None else val * t / 10} for t in range(1, 11)]
    write_text(folder / "epochs.jsonl", "".join(json.dumps(row) + "\n" for row in epochs))
    write_text(folder / "config.toml", config.to_toml())
    graph.save(folder / "graph")
    test = task.score(logits[graph.split.test], graph.labels[graph.split.test])
    result = {
        "metric": task.metric,
        "higher_is_better": True,
        "val": float("nan") if val is None else val,
        "test": test,
        "gamma": gamma,
        "seconds": SECONDS,
        "peak_mib": {"tokens": 100.0, "train": 300.0, "gnn": None},
        "encoder_nodes": 2 * graph.num_nodes,
        "cached": [],
        "settings": config.model_dump(),
        "run": str(folder),
    }
    write_json(folder / "result.json", result)
    return logits


def write_comparison(folder: Path, graph: AttributedGraph, methods=("pne", "ld"), gnns=("gcn",), seeds=1, varied=({},)):
    """A comparison's folder with the run directory of every cell."""
    rows = []
    for values in varied:
        for gnn in gnns:
            for method in methods:
                tests = []
                for seed in range(seeds):
                    path = folder / cell_name(method, gnn, values, seed)
                    write_run(path, graph, method, seed, **{"gnn.name": gnn, **values})
                    tests.append(json.loads((path / "result.json").read_text())["test"])
                p = 0.01 if seeds > 1 and method != "ld" else None
                val = Spread(0.5, 0.1 if seeds > 1 else 0.0)
                rows.append(Row(method, gnn, values, val, Spread.of(tests), seeds, 10.0, 300.0, 2.0, SECONDS, tests, p))
    table = {"data": graph.name, "metric": Task.of(graph).metric, "higher_is_better": True, "run": str(folder)}
    write_json(
        folder / "compare.json",
        {**table, "rows": [{**r.__dict__, "val": r.val.__dict__, "test": r.test.__dict__} for r in rows]},
    )
    return folder
