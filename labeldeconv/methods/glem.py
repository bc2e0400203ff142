"""X_GLEM: EM rounds. The E-step trains the encoder on gold and the GNN's pseudo labels, the M-step the GNN on the
encoder's features with gold and the encoder's pseudo labels. The round with the best validation score decides.
"""

from __future__ import annotations

import numpy as np

from labeldeconv import stages
from labeldeconv.job import Job, Soft
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.methods.finetuned import finetuned, train_on_true_labels
from labeldeconv.record import Stage


def glem(job: Job) -> Stage:
    """Features of the best of several EM rounds; its GNN is the M-step's."""
    config = job.config.glem
    if not (job.graph.split.roles > 0).any():
        return finetuned(job)  # the inductive setting: no evaluation node to label, so GLEM is FNE (Section 5.8)
    trained: Stage | None = None
    if config.first == "gnn":
        teacher = stages.first_gnn(job)
    else:
        trained = train_on_true_labels(job)
        teacher = _m_step(job, trained, 0)[1]
    best: tuple[Stage, Stage] | None = None
    for number in range(1, config.rounds + 1):
        trained = _e_step(job, teacher, None if config.restart else trained, number)
        X, teacher = _m_step(job, trained, number)
        if best is None or teacher.info["val"] > best[1].info["val"]:
            best = X, teacher
    assert best is not None
    X, job.final = best
    return X


def _e_step(job: Job, teacher: Stage, start: Stage | None, number: int) -> Stage:
    """Train the encoder on gold and on the teacher's pseudo labels."""
    config = job.config.glem
    Y = stages.soften(job, teacher, config.temperature, label=f"pseudo {number}")
    chosen = choose(job, Y, config.encoder_ratio)
    nodes = np.concatenate([job.graph.split.train, chosen])
    return stages.train(
        job,
        targets=lambda: InverseLabels(Y.array("pseudo_labels")[:, None], alpha=0.0, task=job.task),
        nodes=np.sort(nodes),
        target_key={"pseudo": Y.key, "ratio": config.encoder_ratio, "confident": config.confident},
        label=f"train {number}",
        pseudo_weight=config.encoder_weight if len(chosen) else None,
        start=start,
    )


def _m_step(job: Job, trained: Stage, number: int) -> tuple[Stage, Stage]:
    """Features of the encoder, and a GNN on them taught by gold and by the encoder's pseudo labels."""
    config = job.config.glem
    X = stages.features(job, trained, label=f"features {number}")
    predicted = stages.predict(job, trained, X, label=f"predict {number}")
    Y = stages.soften(job, predicted, config.temperature, label=f"encoder pseudo {number}")
    chosen = choose(job, Y, config.gnn_ratio)
    w = min(config.gnn_weight, 1 - 1e-6)
    soft = Soft(Y, chosen, w / (1 - w)) if len(chosen) and w > 0 else None  # gold has weight 1 there
    return X, stages.gnn(job, X, label=f"gnn {number}", soft=soft)


def choose(job: Job, Y: Stage, ratio: float) -> np.ndarray:
    """Evaluation nodes (m,) to be taught by pseudo labels: the most confident share, then a seeded sample."""
    split = job.graph.split
    others = np.flatnonzero(split.roles > 0)
    labels = Y.array("pseudo_labels")[others]
    sure = labels.max(1) if job.task.kind == "multiclass" else np.abs(labels - 0.5).mean(1)
    kept = others[np.argsort(-sure, kind="stable")[: round(job.config.glem.confident * len(others))]]
    count = min(len(kept), round(ratio * len(split.train)))
    return np.sort(np.random.default_rng(job.config.seed).choice(kept, count, replace=False))
