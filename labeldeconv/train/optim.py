"""AdamW over beta, theta and gamma' with their own learning rates, a real warm-up, and the precision to run in."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from labeldeconv.config import TrainConfig
from labeldeconv.train.objective import Objective


def make_optimizer(objective: Objective, config: TrainConfig) -> torch.optim.AdamW:
    """One group per rate; only matrices of encoder and psi decay, never biases, norms or gamma'."""
    groups = [
        *parameter_groups(objective.encoder.parameters(), config.lr, config.weight_decay),
        *parameter_groups(objective.psi.parameters(), config.psi_lr, config.weight_decay),
        *parameter_groups(objective.targets.parameters(), config.gamma_lr, 0.0),
    ]
    return torch.optim.AdamW(groups, fused=True)


def parameter_groups(parameters: Iterable[nn.Parameter], lr: float, decay: float) -> list[dict]:
    """Two groups for AdamW: matrices, which decay, and vectors, which do not."""
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


def autocast_type(precision: str, device: torch.device) -> torch.dtype | None:
    """The type to compute in, None for float32. 'auto' takes bfloat16 only where it is fast.

    On a CPU without AVX512-BF16 or AMX, bfloat16 was measured four times slower than float32.
    """
    if precision == "auto":
        precision = "bfloat16" if _fast_bfloat16(device) else "float32"
    return torch.bfloat16 if precision == "bfloat16" else None


def _fast_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    tests = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return device.type == "cpu" and any(test() for test in tests if test is not None)
