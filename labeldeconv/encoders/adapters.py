"""Low-rank adapters (LoRA, by peft): added to a frozen model, and merged into its weights when it is saved."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from labeldeconv.errors import ConfigError, MissingExtra
from labeldeconv.settings.models import EncoderConfig


def add_lora(model: nn.Module, config: EncoderConfig) -> nn.Module:
    """Freeze `model` and add low-rank adapters to its linear layers, all of them or those of the settings."""
    try:
        import peft
    except ImportError:
        raise MissingExtra("encoder.lora_rank", "lora") from None
    adapters = peft.LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha or 2 * config.lora_rank,
        lora_dropout=config.lora_dropout,
        target_modules=config.lora_targets or "all-linear",
    )
    try:
        return peft.get_peft_model(model, adapters)
    except ValueError as error:
        raise ConfigError(f"encoder.lora_targets {config.lora_targets}: {str(error).splitlines()[0]}") from error


@torch.no_grad()
def merged(model: Any) -> Any:
    """The model in float32, with what adapters add in the weights, and without them; a copy, where that changes it."""
    if not hasattr(model, "merge_and_unload") and all(p.dtype == torch.float32 for p in model.parameters()):
        return model
    model = copy.deepcopy(model)
    if not hasattr(model, "merge_and_unload"):
        return _raised(model)
    if not getattr(model.get_base_model(), "is_quantized", False):
        return model.float().merge_and_unload()
    layers = {name: part for name, part in model.get_base_model().named_modules() if hasattr(part, "get_delta_weight")}
    added = {name: layer.get_delta_weight("default").float() for name, layer in layers.items()}
    plain = _raised(model.unload())
    for name, delta in added.items():
        plain.get_submodule(name).weight.add_(delta)
    return plain


def _raised(model: Any) -> Any:
    """The model in float32, out of 4 bits too."""
    return (model.dequantize() if getattr(model, "is_quantized", False) else model).float()
