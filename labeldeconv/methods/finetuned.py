"""X_FNE: the encoder fine-tuned on the true labels of the train nodes, min L(psi(F), Y)."""

from __future__ import annotations

from labeldeconv import stages
from labeldeconv.labels.true import TrueLabels
from labeldeconv.record import Stage
from labeldeconv.stages import Job


def finetuned(job: Job) -> Stage:
    """Features of an encoder trained on true labels, train nodes only."""
    graph = job.graph
    trained = stages.train(
        job,
        targets=lambda: TrueLabels(graph.labels, job.task),
        nodes=graph.split.train,
        target_key={"true": graph.fingerprint("labels")},
    )
    return stages.features(job, trained)
