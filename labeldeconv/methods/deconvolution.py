"""Label Deconvolution, Algorithm 1 of the paper, and WO/LD, its ablation with alpha = 0."""

from __future__ import annotations

import numpy as np

from labeldeconv import stages
from labeldeconv.job import Job
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.progress import say
from labeldeconv.record import Stage


def deconvolution(job: Job) -> Stage:
    """X_LD. With `labels.rounds` above 1, the pseudo labels of a round come from a GNN on the features of the last."""
    labels = job.config.labels
    rounds = 1 if job.all_labelled else labels.rounds  # true labels do not change
    X: Stage | None = None
    for number in range(1, rounds + 1):
        X = algorithm_1(job, X, labels.alpha, "" if number == rounds else f" {number}")
    assert X is not None
    return X


def without_deconvolution(job: Job) -> Stage:
    """X_WO/LD: the same training on the plain pseudo labels, alpha = 0."""
    labels = job.config.labels.model_copy(update={"alpha": 0.0})
    job.config = job.config.model_copy(update={"labels": labels})
    return deconvolution(job)


def algorithm_1(job: Job, X: Stage | None, alpha: float, suffix: str = "") -> Stage:
    """Algorithm 1 up to line 12. The GNN phase (lines 13-17) is the same for all methods and follows.

    Pseudo labels come from a GNN on features `X`, X_PNE if None; `suffix` tells the stages of rounds apart.
    """
    graph, labels = job.graph, job.config.labels
    number = job.hops if alpha > 0 else 0  # without inverse labels only K_0 = Y is read

    # 1  Input: graph A, attributes {x_i}, (pseudo) labels Y
    Y = stages.pseudo(job, X, suffix)

    # 3  Pre-processing phase
    # 4  compute K_i = A-hat^i Y
    K = stages.hops(job, Y, number, suffix)

    # beyond the paper: gamma chosen on the validation nodes (labels/choice.py); all of it on K_0 is WO/LD
    gamma = stages.choice(job, K, suffix).info["gamma"] if labels.gamma == "auto" and alpha > 0 else None
    if gamma and gamma[0] == 1.0:
        say("[dim]choice     no mix of hop labels is surely better than Y: alpha is 0[/]")
        return algorithm_1(job, X, 0.0, suffix)

    # 5  Training phase of NEs (optimise beta, theta): for k = 1..K_1
    # 7    sample B from V                              train/batches.py
    # 8    F_B = f(x_B; beta)                           train/objective.py
    # 9    Y(gamma)_B = sum_i gamma_i [K_i]_B           labels/inverse.py
    # 10   step on L(psi(F_B; theta), Y(gamma)_B)       train/encoder.py
    everyone = labels.nodes == "all"
    trained = stages.train(
        job,
        targets=lambda: InverseLabels(K.array("hop_labels"), alpha, job.task, gamma),
        nodes=np.arange(graph.num_nodes) if everyone else graph.split.train,
        target_key={"hops": K.key, "alpha": alpha, "gamma": {"kept": gamma} if gamma else None}
        | ({} if everyone else {"nodes": "train"}),
        label=f"train{suffix}",
        pseudo_weight=labels.pseudo_weight,
        teacher=X,
    )

    # 12  infer F across all nodes
    return stages.features(job, trained, f"features{suffix}")
