"""run(config): data -> method -> GNN -> scores -> run directory. The whole of labeldeconv from one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeldeconv import stages
from labeldeconv.config import Config
from labeldeconv.data.inductive import training_view
from labeldeconv.errors import ConfigError
from labeldeconv.graph import AttributedGraph
from labeldeconv.job import Job
from labeldeconv.methods.giant import adapt, giant
from labeldeconv.methods.given import given
from labeldeconv.methods.joint import evaluate
from labeldeconv.metrics import open_metrics
from labeldeconv.names import (
    attribute_warning,
    encoder_builder,
    encoder_identity,
    gnn_builder,
    method_named,
    open_data,
    resolved_options,
)
from labeldeconv.progress import say
from labeldeconv.record import Cache, Stage, link, write_json, write_text
from labeldeconv.settings import load_config

GRAPH_PARTS = ("texts", "edges", "labels", "split")


@dataclass(frozen=True)
class Result:
    """Scores, costs and files of one run.

    `encoder_nodes` counts texts that went through the encoder, training epochs included; `step_seconds` says where the
    time of the encoder's training steps went; `batch` and `subgraph` are the mean |B| and |G(B)| of these steps: nodes
    whose loss counts, and nodes encoded for it, which differ in joint training only. `features` (n, d) and `logits`
    (n, c) are memory-mapped from the run directory; rows follow the graph's nodes.
    """

    metric: str
    higher_is_better: bool
    val: float
    test: float
    gamma: list[float] | None
    seconds: dict[str, float]
    peak_mib: dict[str, float | None]
    encoder_nodes: int
    encoder_nodes_by_stage: dict[str, int]
    step_seconds: dict[str, float] | None
    batch: float | None
    subgraph: float | None
    cached: list[str]
    settings: dict[str, Any]
    run: Path

    @property
    def features(self) -> np.ndarray:
        """X of the method (n, d) float16."""
        return np.load(self.run / "features.npy", mmap_mode="r")

    @property
    def logits(self) -> np.ndarray:
        """Predictions of the GNN (n, c) float32, before softmax or sigmoid."""
        return np.load(self.run / "logits.npy", mmap_mode="r")

    def write_profile(self) -> dict[str, list[dict[str, Any]]]:
        """Where the time went, by stage and inside the encoder's training steps; also as profile.json of the run."""
        whole = sum(self.seconds.values()) or 1.0
        stages = [
            {
                "stage": label,
                "seconds": seconds,
                "share": round(seconds / whole, 4),
                "peak_mib": self.peak_mib[label],
                "computed": "before" if label in self.cached else "now",
            }
            for label, seconds in self.seconds.items()
        ]
        profile = {"stages": stages}
        if self.step_seconds:
            whole = sum(self.step_seconds.values()) or 1.0
            parts = sorted(self.step_seconds.items(), key=lambda part: -part[1])
            profile["step"] = [{"part": k, "seconds": s, "share": round(s / whole, 4)} for k, s in parts]
        write_json(self.run / "profile.json", profile)
        return profile

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints and `result.json` holds."""
        return {**self.__dict__, "run": str(self.run)}


def fit(
    data: str | Path | AttributedGraph,
    *,
    method: str | None = None,
    encoder: str | None = None,
    gnn: str | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    config: Config | str | Path | None = None,
    cache: str | Path | None = None,
    **settings: Any,
) -> Result:
    """Learn node features and predictions on a graph.

    Args:
        data: an `AttributedGraph`, a folder of tables, a saved graph, or a name such as 'planted'.
        method: a name of `labeldeconv list`; 'ld' unless set otherwise.
        encoder: a name of `labeldeconv list`, a hub id or a folder.
        gnn: a name of `labeldeconv list`, or 'package.module:Name'.
        seed: of everything random.
        out: run directory; default runs/DATA-METHOD-GNN-SEED.
        config: a `Config` or a TOML file to start from.
        cache: where finished stages live; default LABELDECONV_CACHE or the user's cache folder.
        settings: any other setting, dots written as two underscores: train__epochs=2.

    Example:
        result = fit("planted", method="ld", encoder="minilm", gnn="gcn", train__epochs=2)
        result.test, result.features.shape
    """
    given: dict[str, Any] = {"method": method, "encoder.name": encoder, "gnn.name": gnn, "seed": seed}
    overrides = {k: v for k, v in given.items() if v is not None}
    overrides |= {name.replace("__", "."): value for name, value in settings.items()}
    graph = data if isinstance(data, AttributedGraph) else None
    overrides["data"] = graph.name if graph is not None else str(data)
    resolved = load_config(config if config is None or isinstance(config, Config) else Path(config), overrides)
    return run(resolved, graph, Path(out) if out else None, Cache(Path(cache)) if cache else None)


def run(
    config: Config, graph: AttributedGraph | None = None, out: Path | None = None, cache: Cache | None = None
) -> Result:
    """Run one method with one GNN and one seed, from the cache where possible, and write the run directory."""
    cache = cache or Cache()
    if graph is None:
        source = open_data(config.data, config.data_seed, cache)
        graph = source.graph
        for warning in source.warnings:
            say(f"[yellow]warning[/] {warning}")
    graph = graph.resplit(config.split, config.data_seed)
    job = make_job(config, graph, cache)
    if mismatch := attribute_warning(config.encoder, graph):
        say(f"[yellow]warning[/] {mismatch}")
    method = method_named(config.method)
    out = out or Path("runs") / f"{graph.name}-{config.method}-{config.gnn.name}-{config.seed}"
    with open_metrics(config.log, out, out.name, config.model_dump()) as log:
        job.log = log
        X = _learn(job, method) if config.setting == "transductive" else _learn_inductively(job, method)
        final = job.final or stages.gnn(job, X, start=job.psi if config.gnn.init == "psi" else None)
        result = _write_run(job, X, final, out)
        if log is not None:
            log.add({"score/val": result.val, "score/test": result.test}, "score/seed", config.seed)
    return result


def _learn(job: Job, method: Callable[[Job], Stage]) -> Stage:
    """Run the method, on an encoder adapted to the graph if that is asked for and the method does not do it itself."""
    if job.config.encoder.adapt == "giant" and method not in (given, giant):
        adapt(job)
    return method(job)


def _learn_inductively(job: Job, method: Callable[[Job], Stage]) -> Stage:
    """Run the method on the graph of the train nodes, then encode all nodes with the encoder it trained."""
    settings = job.config.model_copy(update={"setting": "transductive"})
    inner = replace(job, graph=training_view(job.graph), config=settings, used={}, psi=None)
    if settings.train.psi_init == "gnn":
        raise ConfigError("setting 'inductive': train.psi_init 'fresh' expected, since there is no first GNN")
    _learn(inner, method)
    job.used.update(inner.used)
    job.psi = inner.psi
    trained = last_trained(inner)
    if trained is None:
        return method(job)  # untrained features are the same for all
    X = stages.features(job, trained)
    job.final = evaluate(job, trained, X) if inner.final else None  # joint training has made its GNN
    return X


def last_trained(job: Job) -> Stage | None:
    """The last encoder phase of a run, if it had one."""
    return next((stage for stage in reversed(job.used.values()) if stage.name == "train"), None)


def make_job(config: Config, graph: AttributedGraph, cache: Cache) -> Job:
    """Turn the names of a config into builders."""
    method_named(config.method)
    return Job(
        graph,
        config,
        cache,
        build_encoder=encoder_builder(config.encoder),
        encoder_identity=encoder_identity(config.encoder),
        build_gnn=gnn_builder(config.gnn, graph.num_classes),
        gnn_options=resolved_options(config.gnn),
        device=_device(config.device),
    )


def _write_run(job: Job, X: Stage, final: Stage, out: Path) -> Result:
    """Gather what a report needs in `out`: links into the cache where possible, `result.json` last."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "result.json").unlink(missing_ok=True)
    write_text(out / "config.toml", job.config.to_toml())
    if not _same_graph(out / "graph", job.graph):
        job.graph.save(out / "graph")
    link(X.path / "features.npy", out / "features.npy")
    for name in ("logits.npy", "gnn.safetensors", "epochs.jsonl"):
        link(final.path / name, out / name)
    trained = last_trained(job)
    for stage, names in (
        (job.used.get("pseudo"), ("pseudo_labels.npy",)),
        (job.used.get("hops"), ("hop_labels.npy",)),
        (trained, ("encoder", "psi.safetensors", "steps.jsonl")),
    ):
        for name in names:
            if stage:
                link(stage.path / name, out / name)
    batch = trained.info.get("batch", _mean_batch(trained)) if trained else None
    counts = {label: stage.info.get("encoder_nodes", 0) for label, stage in job.used.items()}
    result = Result(
        metric=job.task.metric,
        higher_is_better=job.task.higher_is_better,
        val=final.info["val"],
        test=final.info["test"],
        gamma=trained.info["gamma"] if trained else None,
        seconds={label: stage.seconds for label, stage in job.used.items()},
        peak_mib={label: stage.peak_mib for label, stage in job.used.items()},
        encoder_nodes=sum(counts.values()),
        encoder_nodes_by_stage=counts,
        step_seconds=trained.info.get("step_seconds") if trained else None,
        batch=batch,
        subgraph=trained.info.get("subgraph", batch) if trained else None,
        cached=[label for label, stage in job.used.items() if stage.cached],
        settings=job.config.model_dump(),
        run=out,
    )
    write_json(out / "result.json", result.to_dict())
    return result


def _mean_batch(trained: Stage) -> float:
    """Mean |B| of an encoder phase: nodes per optimiser step."""
    return round(trained.info["encoder_nodes"] / max(1, trained.info["steps"]), 1)


def _same_graph(folder: Path, graph: AttributedGraph) -> bool:
    """Whether an earlier run has left this very graph there."""
    if not (folder / "graph.json").exists():
        return False
    return AttributedGraph.load(folder).fingerprint(*GRAPH_PARTS) == graph.fingerprint(*GRAPH_PARTS)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device '{name}': {str(error).splitlines()[0]}") from None
