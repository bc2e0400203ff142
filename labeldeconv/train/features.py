"""Feature export: F of all nodes (Algorithm 1, line 12) into a float16 memory map, resumable."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import torch

from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.tokens import TokenStore
from labeldeconv.progress import bar
from labeldeconv.record import write_json
from labeldeconv.train.batches import ahead, length_batches
from labeldeconv.train.optim import autocast_type

CPU_TOKENS, GPU_TOKENS = 2048, 65536  # per batch; on a CPU activations should stay in the cache: 1.2 times 8192
BATCH_NODES = 1024
SAVE_SECONDS = 20.0


def export_features(
    encoder: Encoder, store: TokenStore, folder: Path, precision: str = "auto", label: str = "features"
) -> float:
    """Write features.npy (n, d) float16 into `folder`, longest first; returns the seconds of all attempts."""
    n = len(store.offsets) - 1
    device = next(encoder.parameters()).device
    dtype = autocast_type(precision, device)
    tokens = CPU_TOKENS if device.type == "cpu" else GPU_TOKENS
    batches = length_batches(store.lengths, np.arange(n), BATCH_NODES, tokens)
    path, progress = folder / "features.npy", folder / "progress.json"
    done, before = 0, 0.0
    if path.exists() and progress.exists():
        state = json.loads(progress.read_text())
        done, before = state["batches"], state["seconds"]
    out = np.lib.format.open_memmap(path, mode="r+" if done else "w+", dtype=np.float16, shape=(n, encoder.dim))
    encoder.eval()
    start = saved = time.perf_counter()
    with torch.inference_mode(), bar(label, total=n, done=sum(map(len, batches[:done]))) as advance:
        prepared = ahead(lambda ids: (ids, *store.batch(ids)), batches[done:])
        for k, (ids, input_ids, mask) in enumerate(prepared, start=done + 1):
            with torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
                features = encoder(input_ids.to(device), mask.to(device))  # (b, d)
            out[ids] = features.float().cpu().numpy()
            advance(len(ids), tokens=int(store.lengths[ids].sum()))
            if time.perf_counter() - saved > SAVE_SECONDS:
                out.flush()
                saved = time.perf_counter()
                write_json(progress, {"batches": k, "seconds": before + saved - start})
    out.flush()
    progress.unlink(missing_ok=True)
    return before + time.perf_counter() - start
