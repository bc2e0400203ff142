"""bfloat16 where an encoder can, float32 where it cannot.

Under autocast some modules fail in bfloat16: DeBERTa's attention fills its scores, which are bfloat16, with the least
number of float32, which bfloat16 cannot hold. `compute_in_float32_where_needed` tries a few rows before any training
and lets the smallest modules that fail, and all others of their class, compute in float32; the rest stays in bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from labeldeconv.progress import say_once


class InFloat32(nn.Module):
    """Stands before a module's own class: forward computes in float32, whatever surrounds it."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module's own class gives for the same inputs in float32."""
        device = next(_tensors([*args, *kwargs.values()])).device.type
        with torch.autocast(device, enabled=False):
            return super().forward(*map(_raised, args), **{name: _raised(value) for name, value in kwargs.items()})


def compute_in_float32_where_needed(encoder: nn.Module, *inputs: Tensor, training: bool) -> list[str]:
    """Try an encoder in bfloat16 on its inputs, tokens and mask (b, t) as a rule, and mend in place what fails.

    Tried are the forward and, if `training`, the backward pass.

    Returns the names of the classes that compute in float32 from now on, and says so once. Weights, gradients and the
    random state stay as they are. An encoder that fails in float32 too is left alone: precision is not its error.
    """
    modes = {module: module.training for module in encoder.modules()}
    encoder.eval()  # nothing that forward keeps, such as moving averages, may change
    try:
        changed, reason = _mended(encoder, inputs, training)
    finally:
        for module, mode in modes.items():
            module.training = mode
    if changed:
        whole = type(encoder).__name__ in changed
        kept = "" if whole else ", the rest in bfloat16"
        model = type(getattr(encoder, "model", encoder)).__name__
        parts = ", ".join(changed)
        say_once(f"warning: {model}: {parts} cannot compute in bfloat16 ({reason}) and computes in float32{kept}")
    return changed


def _mended(encoder: nn.Module, inputs: tuple[Tensor, ...], training: bool) -> tuple[list[str], str]:
    changed: list[str] = []
    reason = ""
    while (error := _failure(encoder, inputs, training, low=True)) is not None:
        if not changed:
            reason = str(error).strip().partition("\n")[0]
            if _failure(encoder, inputs, training, low=False) is not None:
                return [], ""
        kind = type(_failed_part(encoder, error))
        if issubclass(kind, InFloat32):  # the whole encoder is in float32 and fails under autocast alone
            return changed, reason
        changed.append(kind.__name__)
        for module in encoder.modules():
            if type(module) is kind:
                module.__class__ = in_float32(kind)  # type: ignore[arg-type]
    return changed, reason


def _failure(encoder: nn.Module, inputs: tuple[Tensor, ...], training: bool, low: bool) -> Exception | None:
    """The error of a forward, and if `training` a backward, pass in bfloat16 or (not `low`) in float32."""
    device = inputs[0].device
    devices = [] if device.type == "cpu" else [device]
    trained = [p for p in encoder.parameters() if p.requires_grad]
    try:
        with torch.random.fork_rng(devices, device_type=device.type if devices else "cuda"):
            with torch.set_grad_enabled(training), torch.autocast(device.type, torch.bfloat16, enabled=low):
                out = encoder.forward(*inputs)
            if training and trained:
                torch.autograd.grad(out.float().sum(), trained, allow_unused=True)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError) as error:
        return error
    return None if bool(out.isfinite().all()) else FloatingPointError("its features are not finite")


def _failed_part(encoder: nn.Module, error: Exception) -> nn.Module:
    """The innermost module of the encoder on the way to an error that is not in float32 yet; else the encoder."""
    inside, found = set(encoder.modules()), encoder
    step = error.__traceback__
    while step is not None:
        module = step.tb_frame.f_locals.get("self")
        if isinstance(module, nn.Module) and module in inside and not isinstance(module, InFloat32):
            found = module
        step = step.tb_next
    return found


@cache
def in_float32(kind: type[nn.Module]) -> type[nn.Module]:
    """The class `kind` under its own name, whose forward computes in float32."""
    return type(kind.__name__, (InFloat32, kind), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})


def _raised(value: Any) -> Any:
    """Tensors of a lower precision in float32, also inside tuples and lists."""
    if isinstance(value, Tensor) and value.dtype in (torch.bfloat16, torch.float16):
        return value.float()
    return type(value)(map(_raised, value)) if type(value) in (tuple, list) else value


def _tensors(values: list[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(list(value))
    yield torch.empty(0)  # a module without inputs: where it computes is not known
