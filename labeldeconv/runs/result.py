"""What a run has come to: its scores, costs and files, as `fit` returns them and as result.json holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from labeldeconv.errors import ConfigError
from labeldeconv.graph.task import RegressionTask, Task
from labeldeconv.methods.base import Learned, Run
from labeldeconv.runs.calibration import calibration
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.stages.files import write_json
from labeldeconv.stages.stage import Use


@dataclass(frozen=True)
class Result:
    """Scores, costs and files of one run.

    Args:
        metrics: every metric of the task, the one of `val` and `test` included: {"val": {name: score}, "test": ...};
            empty for runs older than it, None for a score without labels.
        gamma: weights of the hops at the end of training; None without inverse labels.
        alpha: share of the inverse labels in the targets; None for methods without them.
        chosen: the method that 'auto' took, None for others; `tried` are its candidates: method, epochs, val,
            and leads with their standard errors over what they would have replaced.
        seconds: by stage, as it was when the stage was computed.
        peak_mib: by stage, likewise.
        peak_accelerator_mib: by stage, of tensors on the fullest GPU; None without one.
        encoder_nodes: texts that went through the encoder, training epochs included; also by stage.
        reused_nodes_by_stage: nodes whose texts did not, since the same weights had encoded them before.
        step_seconds: where the time of the encoder's training steps went.
        largest_batch: nodes of `encoder.max_tokens` tokens in the largest training step of the encoder that fits the
            device's memory, where `find_batch` asked for it; None elsewhere, and for methods that train no encoder.
        batch: mean |B| of these steps: nodes of the batch.
        subgraph: mean |G(B)|: all nodes that a batch touches, halo nodes included; another than |B| in joint training.
        race: where gnn.name was 'auto': the GNN chosen, the reason in words, and the candidates with name, score,
            epochs, seeds, seconds and why they were dropped; None where the GNN was named.
        calibration: temperature fitted on the validation nodes, and the expected calibration error before and after it
            on validation and test nodes; None for runs older than it, and where labels are numbers.
        targets: where labels are numbers: `mean` and `std` (c,) of the train nodes' labels; None for classes.
        cached: stages that this run took from the cache.
        stages: by label, the folder of every stage inside the cache: its name and key.
        warnings: what was said of the data: what is odd about its files, an encoder that does not fit its attributes.
        provenance: command, versions, hardware, threads and state of the source of the process that wrote the run;
            empty for runs older than it.
        settings: resolved.
        run: the run directory.
        features: X of the method (n, d), memory-mapped; rows follow the graph's nodes. It stays open, so that it is
            this run's even if the directory is replaced.
        logits: predictions of the GNN (n, c) before softmax or sigmoid, likewise; of a regression in standard units,
            which `values` has in the unit of the labels.
    """

    metric: str
    higher_is_better: bool
    val: float
    test: float
    metrics: dict[str, dict[str, float | None]]
    gamma: list[float] | None
    alpha: float | None
    chosen: str | None
    tried: list[dict[str, Any]]
    seconds: dict[str, float]
    peak_mib: dict[str, float | None]
    peak_accelerator_mib: dict[str, float | None]
    encoder_nodes: int
    encoder_nodes_by_stage: dict[str, int]
    reused_nodes_by_stage: dict[str, int]
    step_seconds: dict[str, float] | None
    largest_batch: int | None
    batch: float | None
    subgraph: float | None
    cached: list[str]
    stages: dict[str, str]
    warnings: list[str]
    provenance: dict[str, Any]
    settings: dict[str, Any]
    race: dict[str, Any] | None
    calibration: dict[str, Any] | None
    targets: dict[str, list[float]] | None
    run: Path
    features: np.ndarray = field(repr=False, compare=False)
    logits: np.ndarray = field(repr=False, compare=False)

    @classmethod
    def of(cls, run: RunDirectory) -> Result:
        """The result of a run directory."""
        younger: dict[str, Any] = {
            "metrics": {},
            "peak_accelerator_mib": {},
            "largest_batch": None,
            "reused_nodes_by_stage": {},
            "chosen": None,
            "tried": [],
            "warnings": [],
            "provenance": {},
            "race": None,
            "calibration": None,
            "targets": None,
        }  # than the oldest runs of this format
        known = younger | run.result
        held = {f.name: known[f.name] for f in fields(cls) if f.name not in ("run", "features", "logits")}
        return cls(**held, run=run.path, features=run.features, logits=run.logits)

    @property
    def values(self) -> np.ndarray:
        """Predicted numbers (n, c) of a regression, in the unit of the labels."""
        if self.targets is None:
            raise ConfigError("values: numbers are predicted where labels are numbers; here they are classes")
        return np.asarray(self.logits, np.float64) * np.array(self.targets["std"]) + np.array(self.targets["mean"])

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
        """What `--json` prints."""
        held = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("features", "logits")}
        return {**held, "run": str(self.run)}


def result_of(run: Run, learned: Learned, used: Sequence[Use]) -> dict[str, Any]:
    """What result.json says of a run: its scores, here with the test labels for once, and the account of its stages."""
    task, trained = Task.of(run.whole, run.settings.metric), learned.encoder
    metrics = {
        role: task.all_scores(learned.gnn.logits[ids], run.whole.labels[ids])
        for role in ("val", "test")
        for ids in [run.whole.split.ids(role)]
    }
    made = {use.label: use.artefact.made for use in used}
    counts = {use.label: int(getattr(use.artefact, "encoder_nodes", 0)) for use in used}
    kept = run.encoder.trained if run.settings.encoder.adapt == "none" else None
    reused = {use.label: int(getattr(use.artefact, "reused", 0)) for use in used}
    return {
        "metric": task.metric,
        "higher_is_better": task.higher_is_better,
        "val": learned.gnn.val,
        "test": metrics["test"][task.metric_name],
        "metrics": metrics,
        "gamma": trained.gamma if trained else None,
        "encoder_key": trained.made.key if trained else None if kept is None else kept.content_key,
        "alpha": learned.alpha,
        "chosen": learned.method,
        "tried": [asdict(tried) for tried in learned.tried],
        "seconds": {label: how.seconds for label, how in made.items()},
        "peak_mib": {label: how.peak_mib for label, how in made.items()},
        "peak_accelerator_mib": {label: how.peak_accelerator_mib for label, how in made.items()},
        "encoder_nodes": sum(counts.values()),
        "encoder_nodes_by_stage": counts,
        "reused_nodes_by_stage": {label: count for label, count in reused.items() if count},
        "step_seconds": (trained.step_seconds or None) if trained else None,
        "batch": trained.batch if trained else None,
        "subgraph": trained.subgraph if trained else None,
        "cached": [label for label, how in made.items() if how.cached],
        "stages": {label: f"{how.stage}/{how.key}" for label, how in made.items()},
        "settings": run.settings.model_dump(),
        **_probability_or_unit(task, learned, run),
    }


def _probability_or_unit(task: Task, learned: Learned, run: Run) -> dict[str, Any]:
    """The calibration of classes, or of a regression the mean and standard deviation that its outputs are in."""
    if isinstance(task, RegressionTask):
        return {"calibration": None, "targets": {"mean": list(task.mean), "std": list(task.std)}}
    return {"calibration": calibration(task, learned.gnn.logits, run.whole.labels, run.whole.split)}
