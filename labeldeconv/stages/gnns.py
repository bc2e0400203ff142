"""Stages of GNNs on fixed features (Algorithm 1, lines 14-17), the first one, which makes pseudo labels, included."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from labeldeconv.adjacency import Adjacency
from labeldeconv.data.inductive import training_view
from labeldeconv.errors import ConfigError
from labeldeconv.gnns.base import GNN
from labeldeconv.graph import AttributedGraph
from labeldeconv.job import Job, Soft
from labeldeconv.record import Stage, array_key
from labeldeconv.stages.encoding import encode
from labeldeconv.train.feed import Feed, InductiveFeed, make_feed
from labeldeconv.train.gnn import train_gnn
from labeldeconv.train.self_training import SoftLabels


def gnn(job: Job, inputs: Stage, label: str = "gnn", soft: Soft | None = None, start: Stage | None = None) -> Stage:
    """A GNN trained on fixed features (Algorithm 1, lines 14-17): logits.npy (n, c), weights and scores.

    `soft` adds nodes taught by pseudo labels; `start` is an encoder phase whose psi the GNN begins as.
    """
    config, seed = job.config.gnn, job.config.seed
    parts = {
        "features": inputs.key,
        "graph": job.graph.fingerprint("edges", "labels", "split"),
        "gnn": {**config.key(without=("init",)), "options": job.gnn_options},
        "seed": seed,
    }
    if start:
        parts["init"] = start.key
    if job.config.setting == "inductive":
        parts["setting"] = "inductive"
    if soft:
        parts["soft"] = {"labels": soft.labels.key, "ids": array_key(soft.ids), "weight": soft.weight}
    if config.options.get("edge_dim"):
        parts["edge_features"] = job.graph.fingerprint("edge_features")

    def build(folder: Path) -> Mapping[str, Any]:
        x = inputs.array("features")
        torch.manual_seed(seed)
        model = job.new_gnn(x.shape[1]).to(job.device)
        if start:
            model.load_state_dict(load_file(start.path / "psi.safetensors"))
        adj = Adjacency.from_edges(job.graph.edges, job.graph.num_nodes, config.adjacency)
        if model.edge_dim:
            adj = adj.with_edge_features(job.graph.edges, _edge_features(job.graph, model.edge_dim))
        feed = make_feed(model, x, adj, config, folder, job.device)
        if job.config.setting == "inductive":
            feed = _inductive_feed(job, model, x, feed, folder)
        given = SoftLabels(soft.labels.array("pseudo_labels"), soft.ids, soft.weight) if soft else None
        run = train_gnn(
            model, feed, job.task, job.graph.labels, job.graph.split, config, seed, folder, given, job.watch(label)
        )
        np.save(folder / "logits.npy", run.logits)
        save_file(model.state_dict(), folder / "gnn.safetensors")
        (folder / "checkpoint.safetensors").unlink(missing_ok=True)
        scores = {"val": run.val, "test": run.test, "best_epoch": run.best_epoch, "epochs": run.epochs}
        return {**scores, "seconds": run.seconds}

    return job.stage(label, "gnn", parts, build)


def first_gnn(job: Job, X: Stage | None = None, suffix: str = "") -> Stage:
    """The GNN that makes the pseudo labels: on X_PNE, or on features `X`."""
    return gnn(job, X or encode(job), label=f"first gnn{suffix}")


def _inductive_feed(job: Job, model: GNN, x: np.ndarray, whole: Feed, folder: Path) -> Feed:
    """Training batches from the graph of the train nodes alone, predictions from the whole graph."""
    config = job.config.gnn
    if model.label_hops or config.consistency.weight or config.self_training.stages > 1:
        raise ConfigError(
            f"setting 'inductive': {config.name} with label inputs, consistency or self-training uses others"
        )
    view = training_view(job.graph)
    adj = Adjacency.from_edges(view.edges, view.num_nodes, config.adjacency)
    if model.edge_dim:
        adj = adj.with_edge_features(view.edges, _edge_features(view, model.edge_dim))
    nodes = job.graph.split.train
    inner = folder / "view"
    inner.mkdir(exist_ok=True)
    return InductiveFeed(make_feed(model, x[nodes], adj, config, inner, job.device), whole, nodes)


def _edge_features(graph: AttributedGraph, width: int) -> np.ndarray:
    """The graph's edge features (e, width), as option edge_dim of the GNN asks."""
    if graph.edge_features is None or graph.edge_features.shape[1:] != (width,):
        got = "none" if graph.edge_features is None else f"shape {graph.edge_features.shape}"
        raise ConfigError(f"gnn.options.edge_dim {width}: edge features (e, {width}) expected in the data, got {got}")
    return graph.edge_features
