"""What the steps of all training loops share: learning rates, precision and the log."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from labeldeconv.stages.watch import Watch


def parameter_groups(parameters: Iterable[nn.Parameter], lr: float, decay: float) -> list[dict[str, Any]]:
    """Two groups for AdamW: matrices, which decay, and vectors (biases, norms), which do not."""
    trained = [p for p in parameters if p.requires_grad]
    matrices, vectors = [p for p in trained if p.ndim > 1], [p for p in trained if p.ndim <= 1]
    both = ((matrices, decay), (vectors, 0.0))
    return [{"params": part, "lr": lr, "peak_lr": lr, "weight_decay": d} for part, d in both if part]


def set_learning_rates(optimizer: torch.optim.Optimizer, progress: float, warmup: float) -> float:
    """Scale every group's peak rate for `progress` in [0, 1): linear rise over `warmup`, linear fall to 0."""
    scale = progress / warmup if progress < warmup else (1 - progress) / max(1 - warmup, 1e-9)
    for group in optimizer.param_groups:
        group["lr"] = group["peak_lr"] * scale
    return scale


def resolved_precision(precision: str, device: torch.device) -> str:
    """'float32' or 'bfloat16'; 'auto' takes bfloat16 only where it is fast.

    On a CPU without AVX512-BF16 or AMX, bfloat16 was measured four times slower than float32.
    """
    if precision == "auto":
        return "bfloat16" if _fast_bfloat16(device) else "float32"
    return precision


def autocast(precision: str, device: torch.device) -> AbstractContextManager[None]:
    """A context, to be entered any number of times, that computes in 'auto', 'float32' or 'bfloat16' on the device."""
    low = resolved_precision(precision, device) == "bfloat16"
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=low)


def _fast_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    tests = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return device.type == "cpu" and any(test() for test in tests if test is not None)


def open_log(path: Path, steps: int, watch: Watch) -> Any:
    """Open a log of rows with exactly the lines of the `steps` that the checkpoint knows; `watch` sees them."""
    lines = path.read_text().splitlines(keepends=True)[:steps] if path.exists() else []
    path.write_text("".join(lines))
    watch.replay(lines)
    return path.open("a")
