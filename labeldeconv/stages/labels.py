"""Stages of labels: (pseudo) labels Y, hop labels K_i = A-hat^i Y, and gamma where it is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from labeldeconv.adjacency import Adjacency
from labeldeconv.errors import ConfigError
from labeldeconv.gather import dequantize
from labeldeconv.job import Job
from labeldeconv.labels.choice import LEAST, MARGIN, choose_gamma
from labeldeconv.labels.hops import write_hop_labels
from labeldeconv.labels.pseudo import pseudo_labels
from labeldeconv.record import Stage
from labeldeconv.stages.encoding import encode
from labeldeconv.stages.gnns import first_gnn


def pseudo(job: Job, X: Stage | None = None, suffix: str = "") -> Stage:
    """(Pseudo) labels Y (n, c): true on train nodes, softened predictions of the first GNN elsewhere."""
    label = f"pseudo{suffix}"
    if not job.all_labelled:
        return soften(job, first_gnn(job, X, suffix), job.config.labels.temperature, label)

    def build(folder: Path) -> None:  # the inductive setting: every node is a train node, nothing is to be predicted
        Y = job.task.targets(job.graph.labels)
        np.save(folder / "pseudo_labels.npy", np.where(np.isnan(Y), np.nan_to_num(np.nanmean(Y, axis=0)), Y))

    return job.stage(label, "pseudo", {"labels": job.graph.fingerprint("labels")}, build)


def soften(job: Job, predicted: Stage, temperature: float, label: str = "pseudo") -> Stage:
    """Pseudo labels (n, c) from the logits of a stage: true on train nodes, softened predictions elsewhere."""
    parts = {"logits": predicted.key, "temperature": temperature, "labels": job.graph.fingerprint("labels", "split")}

    def build(folder: Path) -> None:
        Y = pseudo_labels(job.task, job.graph.labels, job.graph.split.train, predicted.array("logits"), temperature)
        np.save(folder / "pseudo_labels.npy", Y)

    return job.stage(label, "pseudo", parts, build)


def hops(job: Job, Y: Stage, number: int, suffix: str = "") -> Stage:
    """K_i = A-hat^i Y for i = 0..number (Algorithm 1, line 4): hop_labels.npy (n, number + 1, c)."""
    adjacency = job.config.labels.adjacency
    parts = {
        "labels": Y.key,
        "edges": job.graph.fingerprint("edges"),
        "adjacency": adjacency.model_dump(),
        "hops": number,
        "store": job.config.labels.store,
    }

    def build(folder: Path) -> None:
        adj = Adjacency.from_edges(job.graph.edges, job.graph.num_nodes, adjacency)
        write_hop_labels(adj, Y.array("pseudo_labels"), number, folder / "hop_labels.npy", job.config.labels.store)

    return job.stage(f"hops{suffix}", "hops", parts, build)


def choice(job: Job, K: Stage, suffix: str = "") -> Stage:
    """gamma, chosen by a closed form on the validation nodes; info holds it and all candidates."""
    split = job.graph.split
    if len(split.val) == 0:
        raise ConfigError("labels.gamma 'auto': validation nodes expected; the inductive setting hides them")
    X = encode(job)
    adjacency = job.config.gnn.adjacency
    graph = job.graph.fingerprint("edges", "labels", "split")
    parts = {
        "hops": K.key,
        "features": X.key,
        "graph": graph,
        "adjacency": adjacency.model_dump(),
        "margin": [MARGIN, LEAST],
    }

    def build(folder: Path) -> Mapping[str, Any]:
        adj = Adjacency.from_edges(job.graph.edges, job.graph.num_nodes, adjacency)
        hop_labels = dequantize(K.array("hop_labels"))
        found = choose_gamma(X.array("features"), hop_labels, adj, job.graph.labels, split, job.task)
        tried = [{**asdict(c), "gamma": [round(float(g), 4) for g in c.gamma]} for c in found]
        return {"gamma": [float(g) for g in found[0].gamma], "candidates": tried}

    return job.stage(f"choice{suffix}", "choice", parts, build)
