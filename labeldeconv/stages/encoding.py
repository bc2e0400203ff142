"""Stages of features: tokens of all attributes, X_PNE, and F of a trained encoder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labeldeconv.encoders.tokens import TokenStore, write_tokens
from labeldeconv.job import Job
from labeldeconv.record import Stage
from labeldeconv.train.features import export_features


def tokens(job: Job) -> Stage:
    """All attributes, tokenised once."""
    encoder = job.config.encoder
    parts = {
        "texts": job.graph.fingerprint("texts"),
        "encoder": job.encoder_identity,
        "max_tokens": encoder.max_tokens,
    }

    def build(folder: Path) -> None:
        write_tokens(job.build_encoder(), job.graph.texts, encoder.max_tokens, folder)

    return job.stage("tokens", "tokens", parts, build)


def encode(job: Job) -> Stage:
    """X_PNE: features of the pre-trained encoder, or of the one adapted to the graph in its place."""
    return _export(job, "encode", None)


def features(job: Job, trained: Stage, label: str = "features") -> Stage:
    """F of the trained encoder over all nodes (Algorithm 1, line 12)."""
    return _export(job, label, trained)


def _export(job: Job, label: str, trained: Stage | None) -> Stage:
    store_stage = tokens(job)
    parts = {
        "tokens": store_stage.key,
        "weights": trained.key if trained else job.first_weights,
        "pooling": job.config.encoder.pooling,
        "precision": job.precision,
    }

    def build(folder: Path) -> Mapping[str, Any]:
        encoder = job.first_encoder()
        if trained:
            encoder.restore(trained.path / "encoder")
        encoder.to(job.device)
        store = TokenStore.open(store_stage.path, encoder.pad_id)
        seconds = export_features(encoder, store, folder, job.config.train.precision, label)
        return {"seconds": seconds, "encoder_nodes": job.graph.num_nodes}

    return job.stage(label, "features", parts, build)
