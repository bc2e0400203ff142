"""What a fit will cost: disk, memory and time, from one measured step of the encoder on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.pretrained import Pretrained
from labeldeconv.encoders.tokens import Tokens
from labeldeconv.encoders.trunk import SplitEncoder
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.methods.base import Work, method_named
from labeldeconv.methods.giant import neighbourhood_nodes
from labeldeconv.runs.asked import candidates, is_auto, resolve
from labeldeconv.settings.models import Config
from labeldeconv.training.moments import moment_bytes
from labeldeconv.training.recomputation import activations, widest_rows

SAMPLE = 1000  # texts tokenised to estimate the lengths
PROBE_TOKENS = 1024  # tokens of the measured step
MIB = 1 << 20


def estimate(graph: AttributedGraph, config: Config) -> dict[str, Any]:
    """Tokens per node, and disk (MiB), memory (MiB) and seconds of `fit` with these settings and an empty cache.

    With `encoder.train_layers` features are counted as if the whole encoder made them, which is the most they can take.
    Where the GNN is 'auto', the first candidate stands for it, beside the time that the race may take.
    """
    config = resolve(config)
    race_seconds = 60 * config.gnn.race_minutes if is_auto(config) else 0.0
    config = candidates(config)[0]
    encoder = Pretrained(config.encoder).load()
    store, longest = _sample_tokens(encoder, graph, config.encoder.max_tokens)
    n, mean = graph.num_nodes, float(store.lengths.mean())
    gnn = Architecture.of(config.gnn).sample
    hops = (gnn.hops if config.labels.hops is None else config.labels.hops) + 1
    asked = work(graph, config, gnn.hops)
    weights, states = sum(p.numel() for p in encoder.parameters()), 0.0  # and tokens whose states are kept
    train_speed, export_speed = _speeds(encoder, store)
    if config.encoder.train_layers is not None and asked.trained:
        states = n * mean
        encoder = SplitEncoder(encoder, config.encoder.train_layers)
        train_speed, _ = _speeds(encoder, store)
    updated = sum(p.numel() for p in encoder.parameters() if p.requires_grad)
    moments = moment_bytes(encoder.parameters(), config.train.optimizer_states)
    kept = activations(encoder, store, nullcontext())
    rows = n * encoder.dim * (gnn.hops + 1) if gnn.feed == "rows" else 2 * n * encoder.dim
    disk = {
        "graph": graph.texts.lengths().sum() + 8 * graph.num_edges + 16 * n,
        "tokens": n * (2 * mean + 8),
        "token states": 2 * encoder.dim * states,
        "features": asked.exports * 2 * n * encoder.dim,
        "hop labels": 4 * n * hops * graph.num_classes if config.method in ("ld", "ld-heads", "wo-ld", "auto") else 0,
        "encoder and checkpoint": 4 * weights + 4 * updated + moments if asked.trained else 0,
    }
    seconds = {
        "token states": states / export_speed,
        "encoder training": asked.trained * mean / train_speed,
        "features": asked.exports * n * mean / export_speed,
        "gnn (at most)": asked.gnns * config.gnn.epochs * n * config.gnn.hidden * encoder.dim * 12 / _matmul_speed(),
    }
    seconds |= {"gnn race (at most)": race_seconds} if race_seconds else {}
    again = kept.layers if config.train.gradient_checkpointing else 0
    memory = {
        "encoder, gradients, AdamW": 4 * weights + (4 * updated + moments if asked.trained else 0),
        "activations of a batch": kept.peak(widest_rows(store, config.train), again) if asked.trained else 0,
        "features and GNN": 4 * rows + 16 * n * config.gnn.hidden,
        "adjacency": 24 * 2 * graph.num_edges,
    }
    return {
        "tokens": {
            "mean": round(mean, 1),
            "max": longest,
            "cut": int((store.lengths >= config.encoder.max_tokens).sum()),
        },
        "tokens_per_second": {"training": round(train_speed), "features": round(export_speed)},
        "disk_mib": _total({k: float(v) / MIB for k, v in disk.items()}),
        # The encoder phase and the GNN phase follow each other: the larger one counts, plus the library itself.
        "memory_mib": round(400 + max(sum(list(memory.values())[:2]), sum(list(memory.values())[2:])) / MIB, 1),
        "seconds": _total(seconds),
    }


def work(graph: AttributedGraph, config: Config, hops: int) -> Work:
    """What the method of resolved settings costs at most with a GNN of `hops` convolutions.

    Nodes on which the encoder is adapted to the graph first count among those that it is trained on.
    """
    method = method_named(config.method)
    asked = method.work(graph, config, hops)
    if config.encoder.adapt == "none" or not method.adapts:
        return asked
    return replace(asked, trained=asked.trained + neighbourhood_nodes(graph, config))


def _sample_tokens(encoder: Encoder, graph: AttributedGraph, max_tokens: int) -> tuple[Tokens, int]:
    rng = np.random.default_rng(0)
    ids = np.sort(rng.choice(graph.num_nodes, min(SAMPLE, graph.num_nodes), replace=False))
    rows = encoder.tokenize(graph.texts.take(ids), max_tokens)
    lengths = np.array([len(row) for row in rows])
    flat = np.fromiter((t for row in rows for t in row), dtype=np.int64)
    return Tokens(flat, np.concatenate([[0], np.cumsum(lengths)]), encoder.pad_id), int(lengths.max())


def _speeds(encoder: Encoder, store: Tokens) -> tuple[float, float]:
    """Tokens per second of a training step and of inference, on a batch of ordinary texts."""
    order = np.argsort(np.abs(store.lengths - np.median(store.lengths)), kind="stable")
    batch = store.batch(order[: max(1, min(len(order), int(PROBE_TOKENS / max(1.0, float(np.median(store.lengths))))))])
    if isinstance(encoder, SplitEncoder):
        batch = (*batch, encoder.states(*batch))

    def train() -> None:
        encoder(*batch).float().pow(2).sum().backward()
        encoder.zero_grad()

    def export() -> None:
        with torch.inference_mode():
            encoder(*batch)

    count = int(batch[1].sum())
    return count / (1.15 * _time(train)), count / _time(export)  # 15% for the optimiser and psi


def _matmul_speed() -> float:
    a = torch.randn(512, 512)
    return 2 * 512**3 / _time(lambda: a @ a)


def _time(step: Callable[[], Any]) -> float:
    """Best of three after a warm-up."""
    step()
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - start)
    return best


def _total(parts: dict[str, float]) -> dict[str, float]:
    rounded = {k: round(v, 1) for k, v in parts.items()}
    return {**rounded, "total": round(sum(parts.values()), 1)}
