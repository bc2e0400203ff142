"""Run directories without training: the one writer's, of artefacts that are filled with chosen numbers."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.task import RegressionTask, Task
from labeldeconv.graph.texts import Texts
from labeldeconv.labels.hops import HopLabels, hop_labels
from labeldeconv.labels.pseudo import Labels
from labeldeconv.methods.base import Learned
from labeldeconv.propagation.fixed_point import quantize
from labeldeconv.runs import directory
from labeldeconv.runs.asked import Parts, resolve
from labeldeconv.runs.compare import Comparison, Row, cell_name
from labeldeconv.runs.spread import Spread
from labeldeconv.settings.reading import load_config
from labeldeconv.stages.files import write_json, write_text
from labeldeconv.stages.stage import Made
from labeldeconv.training.encoder import TrainedEncoder
from labeldeconv.training.features import Features
from labeldeconv.training.gnn import TrainedGNN

SECONDS = {"tokens": 0.5, "train": 8.0, "gnn": 1.5}


def ring(n: int = 60, texts=None, multilabel: bool = False, val: bool = True, numbers: int = 0) -> AttributedGraph:
    """A ring of n nodes with chords and three classes, or that many numbers as labels; every third node tests."""
    rng = np.random.default_rng(0)
    nodes = np.arange(n)
    edges = np.stack(
        [np.concatenate([nodes, nodes[: n // 2]]), np.concatenate([(nodes + 1) % n, (nodes[: n // 2] + 7) % n])]
    )
    labels = rng.integers(0, 3, n)
    if multilabel:
        labels = rng.integers(-1, 2, (n, 3))
        labels[0] = -1
    names = ["red", "green", "blue"]
    if numbers:
        labels = rng.normal(100, 10, (n, numbers))
        names = [f"height {k}" for k in range(numbers)]
    roles = np.array([0, 0, 1 if val else 0, 2])[nodes % 4].astype(np.int8)
    words = texts or [f"node number {i} of the ring" for i in nodes]
    return AttributedGraph(Texts.from_strings(words), edges, labels, Split(roles), names, name="ring")


def made(kind, folder: Path, **held):
    """An artefact as if a stage had made it: its arrays lie in `folder`, and its paths name files there."""
    for name, value in held.items():
        if isinstance(value, np.ndarray):
            np.save(folder / f"{name}.npy", value)
    artefact = kind(**held)
    artefact.__dict__["_made"] = Made(folder.name, "0" * 24, folder, 1.0, None, False)
    return artefact


def a_file(path: Path, rows=()) -> Path:
    """A file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_run(
    out: Path,
    graph: AttributedGraph,
    method: str = "ld",
    seed: int = 0,
    val: float | None = 0.5,
    fixed_point: bool = False,
    race=None,
    **sets,
):
    """A finished run directory; returns its logits (n, c). A GNN that is not known stands for somebody else's."""
    given = {"data": graph.name, "method": method, "seed": seed, "encoder.name": "tiny", **sets}
    stand_in = object() if ":" in given.get("gnn.name", "") else None
    config = resolve(load_config(None, given), Parts(gnn=stand_in))
    task = Task.of(graph)
    rng = np.random.default_rng([seed, len(method)])
    truth = np.nan_to_num(task.targets(graph.labels), nan=0.3)
    logits = (rng.normal(size=truth.shape) + 2 * truth).astype(np.float32)
    gamma = [0.3, 0.7] if method == "ld" else None
    test = task.score(logits[graph.split.test], graph.labels[graph.split.test])
    result = {
        "metric": task.metric,
        "higher_is_better": True,
        "val": float("nan") if val is None else val,
        "test": test,
        "gamma": gamma,
        "alpha": {"ld": 1.0, "wo-ld": 0.0}.get(method),
        "seconds": SECONDS,
        "peak_mib": {"tokens": 100.0, "train": 300.0, "gnn": None},
        "encoder_nodes": 2 * graph.num_nodes,
        "encoder_nodes_by_stage": {"tokens": 0, "train": graph.num_nodes, "gnn": graph.num_nodes},
        "step_seconds": None,
        "batch": None if method == "pne" else 32.0,
        "subgraph": None if method == "pne" else 32.0,
        "cached": [],
        "stages": {},
        "settings": config.model_dump(),
        "race": race,
        **({"targets": {"mean": list(task.mean), "std": list(task.std)}} if isinstance(task, RegressionTask) else {}),
    }
    with TemporaryDirectory() as folder:
        learned = _learned(Path(folder), graph, method, config.setting, val, logits, gamma, fixed_point)
        directory.write_run(out, learned, graph, config, result)
    return logits


def _learned(root, graph, method, setting, val, logits, gamma, fixed_point) -> Learned:
    folders = {name: root / name for name in ("features", "gnn", "train", "pseudo", "hops")}
    for folder in folders.values():
        folder.mkdir()
    epochs = [{"epoch": t, "loss": 1.0 / t, "val": val if val is None else val * t / 10} for t in range(1, 11)]
    steps = [{"step": t, "epoch": 0, "loss": 2.0 / t, "lr": 1e-4, "gamma": gamma} for t in range(1, 21)]
    X = np.random.default_rng(0).normal(size=(graph.num_nodes, 4)).astype(np.float16)
    gnn, train = folders["gnn"], folders["train"]
    trained = Y = K = None
    if method != "pne":
        trained = made(
            TrainedEncoder,
            train,
            encoder=a_file(train / "encoder" / "config.json").parent,
            head=a_file(train / "head.safetensors"),
            log=a_file(train / "steps.jsonl", steps),
            gamma=gamma,
            steps=20,
            loss=0.1,
            encoder_nodes=graph.num_nodes,
            batch=32.0,
            subgraph=32.0,
            seconds=8.0,
            step_seconds={},
        )
    if method in ("ld", "wo-ld"):
        truth = np.nan_to_num(Task.of(graph).targets(graph.labels), nan=0.3)
        shares = graph.task != "regression"
        values = (np.clip(truth, 0, 1) if shares else truth).astype(np.float32)
        hops = hop_labels(graph.edges, values, 1 if gamma else 0)
        nodes = graph.split.train if setting == "inductive" else np.arange(graph.num_nodes)
        Y = made(Labels, folders["pseudo"], values=values[nodes])
        K = made(HopLabels, folders["hops"], values=quantize(hops[nodes]) if fixed_point else hops[nodes])
    return Learned(
        features=made(Features, folders["features"], values=X, encoder_nodes=graph.num_nodes, seconds=1.0),
        gnn=made(
            TrainedGNN,
            gnn,
            logits=logits,
            weights=a_file(gnn / "gnn.safetensors"),
            log=a_file(gnn / "epochs.jsonl", epochs),
            val=float("nan") if val is None else val,
            best_epoch=10,
            epochs=10,
            seconds=1.5,
        ),
        encoder=trained,
        labels=Y,
        hop_labels=K,
        alpha={"ld": 1.0, "wo-ld": 0.0}.get(method),
    )


def write_comparison(folder: Path, graph: AttributedGraph, methods=("pne", "ld"), gnns=("gcn",), seeds=1, varied=({},)):
    """A comparison's folder with the run directory of every cell."""
    rows = []
    for values in varied:
        for gnn in gnns:
            for method in methods:
                names = tuple(cell_name(method, gnn, values, seed) for seed in range(seeds))
                for seed, name in enumerate(names):
                    write_run(folder / name, graph, method, seed, **{"gnn.name": gnn, **values})
                tests = [directory.RunDirectory.open(folder / name).result["test"] for name in names]
                p = 0.01 if seeds > 1 and method != "ld" else None
                spreads = Spread(0.5, 0.1 if seeds > 1 else 0.0), Spread.of(tests)
                costs = seeds, 10.0, 300.0, 2.0, SECONDS
                rows.append(Row(method, gnn, values, *spreads, *costs, tests, p, cells=names))
    comparison = Comparison(graph.name, Task.of(graph).metric, True, rows, folder)
    write_json(folder / directory.COMPARISON, comparison.to_dict())
    return folder
