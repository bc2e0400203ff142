"""X_FNE: the encoder fine-tuned on the true labels of the train nodes, min L(psi(F), Y)."""

from __future__ import annotations

from labeldeconv import stages
from labeldeconv.job import Job
from labeldeconv.labels.true import TrueLabels
from labeldeconv.record import Stage


def finetuned(job: Job) -> Stage:
    """Features of an encoder trained on the true labels of the train nodes."""
    return stages.features(job, train_on_true_labels(job))


def train_on_true_labels(job: Job) -> Stage:
    """The encoder phase on true labels, train nodes only."""
    graph = job.graph
    return stages.train(
        job,
        targets=lambda: TrueLabels(graph.labels, job.task),
        nodes=graph.split.train,
        target_key={"true": graph.fingerprint("labels")},
    )
