"""What the steps of all training loops share: learning rates, precision and the log."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.fallback import compute_in_float32_where_needed
from labeldeconv.encoders.tokens import Tokens
from labeldeconv.progress import say_once
from labeldeconv.stages.files import write_text
from labeldeconv.stages.watch import Watch

TRIED = 2  # nodes on which an encoder is tried in bfloat16


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
    """'float32' or 'bfloat16'; 'auto' takes bfloat16 only where the hardware has it.

    On a CPU without AVX512-BF16 or AMX, bfloat16 was measured four times slower than float32; GPUs before compute
    capability 8.0 (V100, T4) emulate it. A device on which torch has no autocast computes in float32.
    """
    if precision == "auto":
        precision = "bfloat16" if _native_bfloat16(device) else "float32"
    if precision == "bfloat16" and not torch.amp.is_autocast_available(device.type):
        say_once(f"warning: train.precision: torch has no bfloat16 autocast on '{device.type}'; float32 is used")
        return "float32"
    return precision


def autocast(precision: str, device: torch.device) -> AbstractContextManager[None]:
    """A context, to be entered any number of times, that computes in 'auto', 'float32' or 'bfloat16' on the device."""
    low = resolved_precision(precision, device) == "bfloat16"
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=low)


def encoder_autocast(
    encoder: Encoder, tokens: Tokens, precision: str, training: bool = True, device: torch.device | None = None
) -> AbstractContextManager[None]:
    """The same for an encoder, after a try on its two longest nodes: what cannot compute in bfloat16 does not.

    Args:
        training: try a backward pass too.
        device: where it will compute; None: where it is.
    """
    here = next(encoder.parameters()).device
    device = device or here
    if resolved_precision(precision, device) == "bfloat16" and tokens.num_nodes:
        longest = np.argpartition(tokens.lengths, -min(TRIED, tokens.num_nodes))[-TRIED:]
        compute_in_float32_where_needed(encoder, *(x.to(here) for x in tokens.batch(longest)), training=training)
    return autocast(precision, device)


def fused_optimizer(device: torch.device) -> bool:
    """Whether torch has AdamW as one kernel on the device."""
    return device.type in ("cpu", "cuda", "mps", "xpu")


def _native_bfloat16(device: torch.device) -> bool:
    """Whether the hardware multiplies bfloat16 itself."""
    if device.type == "cuda":
        if torch.version.hip:
            return torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "xpu":
        return torch.xpu.is_bf16_supported(including_emulation=False)
    tests = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return device.type == "cpu" and any(test() for test in tests if test is not None)


def open_log(path: Path, steps: int, watch: Watch) -> Any:
    """Open a log of rows with exactly the lines of the `steps` that the checkpoint knows; `watch` sees them."""
    lines = path.read_text().splitlines(keepends=True)[:steps] if path.exists() else []
    write_text(path, "".join(lines))  # at once: the checkpoint counts on these lines
    watch.replay(lines)
    return path.open("a")
