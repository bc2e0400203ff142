"""Graph sampling: encoder and GNN trained together on sampled subgraphs, with GAS histories or SAGE sampling."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from labeldeconv import stages
from labeldeconv.adjacency import Adjacency
from labeldeconv.encoders.tokens import TokenStore
from labeldeconv.encoders.vocabulary import used_vocabulary
from labeldeconv.job import Job
from labeldeconv.record import Stage
from labeldeconv.train.feed import make_feed
from labeldeconv.train.joint import GasSampler, JointModel, SageSampler, train_joint


def joint_gas(job: Job) -> Stage:
    """Features of an encoder trained jointly with the GNN on METIS parts with historical embeddings (GAS)."""
    return _joint(job, "gas")


def joint_sage(job: Job) -> Stage:
    """Features of an encoder trained jointly with the GNN on sampled neighbourhoods (SAGE)."""
    return _joint(job, "sage")


def _joint(job: Job, kind: Literal["gas", "sage"]) -> Stage:
    trained = _train(job, kind)
    X = stages.features(job, trained)
    if job.config.joint.gnn == "joint":
        job.final = evaluate(job, trained, X)
    return X


def _train(job: Job, kind: Literal["gas", "sage"]) -> Stage:
    """The joint phase; the GNN's weights go to psi.safetensors, beside the encoder."""
    config, seed, graph = job.config, job.config.seed, job.graph
    store_stage = stages.tokens(job)
    fixed = config.train.lr == 0
    first = stages.encode(job) if kind == "gas" or fixed else None  # what histories start from, or all there is
    parts = {
        "kind": kind,
        "tokens": store_stage.key,
        "encoder": job.first_weights,
        "pooling": config.encoder.pooling,
        "lora": config.encoder.lora_rank,
        "graph": graph.fingerprint("edges", "labels", "split"),
        "gnn": config.gnn.key(("name", "layers", "hidden", "dropout", "adjacency", "output_bias")),
        "options": job.gnn_options,
        "joint": config.joint.key(without=("gnn",)),
        "train": config.train.key(),
        "precision": job.precision,
        "seed": seed,
    }

    def build(folder: Path) -> Mapping[str, Any]:
        torch.manual_seed(seed)
        encoder = job.first_encoder()
        features = first.array("features") if first else None
        model = JointModel(encoder, job.new_gnn(encoder.dim), features if fixed else None).to(job.device)
        adj = Adjacency.from_edges(graph.edges, graph.num_nodes, config.gnn.adjacency)
        sampler: GasSampler | SageSampler = SageSampler(adj, graph.split.train, config.joint)
        if kind == "gas" and features is not None:
            sampler = GasSampler(adj, graph.split.train, config.joint, features)
        store = TokenStore.open(store_stage.path, encoder.pad_id)
        labels, task = graph.labels, job.task
        args = labels, task, config.joint, config.train, seed, folder, job.watch("train")
        with used_vocabulary(encoder, store):
            run = train_joint(model, sampler, store, *args)
        encoder.save(folder / "encoder")
        save_file(model.gnn.state_dict(), folder / "psi.safetensors")
        (folder / "checkpoint.safetensors").unlink(missing_ok=True)
        sizes = {"batch": round(run.batch, 1), "subgraph": round(run.subgraph, 1)}
        return {"steps": run.steps, "loss": run.loss, "gamma": None, **sizes, "encoder_nodes": run.encoder_nodes,
                "seconds": run.seconds}  # fmt: skip

    return job.stage("train", "train", parts, build)


def evaluate(job: Job, trained: Stage, X: Stage) -> Stage:
    """The jointly trained GNN on the features of all nodes, without sampling."""
    graph, config = job.graph, job.config.gnn

    def build(folder: Path) -> Mapping[str, Any]:
        x = X.array("features")
        model = job.build_gnn(x.shape[1]).to(job.device)
        model.load_state_dict(load_file(trained.path / "psi.safetensors"))
        adj = Adjacency.from_edges(graph.edges, graph.num_nodes, config.adjacency)
        full = config.model_copy(update={"batching": "full"})
        with torch.inference_mode():
            nodes = np.arange(graph.num_nodes)
            logits = make_feed(model.eval(), x, adj, full, folder, job.device).predict(model, nodes).cpu().numpy()
        np.save(folder / "logits.npy", logits)
        save_file(model.state_dict(), folder / "gnn.safetensors")
        (folder / "epochs.jsonl").write_text("")
        ids = {"val": graph.split.val, "test": graph.split.test}
        return {name: job.task.score(logits[i], graph.labels[i]) for name, i in ids.items()}

    return job.stage("gnn", "joint gnn", {"joint": trained.key, "features": X.key}, build)
