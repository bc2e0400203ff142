"""The list of a transformer's layers: found, and cut to the first ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from labeldeconv.errors import ConfigError


def text_settings(model: Any) -> Any:
    """The settings of a model's text part: its own, unless it reads images too."""
    return model.config.get_text_config()


def keep_first_layers(model: Any, layers: int) -> None:
    """Cut a transformer to its first `layers` layers, in place."""
    settings = text_settings(model)
    total = settings.num_hidden_layers
    if layers > total:
        raise ConfigError(f"encoder.layers: at most {total} for this encoder, got {layers}")
    found = layer_list(model, total)
    if found is None:
        raise ConfigError(f"encoder.layers: {type(model).__name__} has no list of {total} layers to cut")
    name, module = found
    parent = model.get_submodule(name.rpartition(".")[0])
    setattr(parent, name.rpartition(".")[2], module[:layers])
    settings.num_hidden_layers = layers
    if getattr(settings, "layer_types", None):  # ModernBERT, Gemma: which attention each layer has
        settings.layer_types = settings.layer_types[:layers]
    _fit_to_layers(model, module[:layers], layers / total)


def layer_list(model: nn.Module, total: int) -> tuple[str, nn.ModuleList] | None:
    """The list of a model's `total` layers and its name; None where there is none."""
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == total:
            return name, module
    return None


@torch.no_grad()
def _fit_to_layers(model: Any, kept: Any, share: float) -> None:
    """Change what a model derives from its number of layers, so that the saved model opens and computes the same."""
    if model.config.model_type == "esm":  # predicts contacts, which we do not, from the attention of every layer
        head = model.contact_head
        head.in_features = round(share * head.in_features)
        head.regression.in_features = head.in_features
        head.regression.weight = nn.Parameter(head.regression.weight[:, : head.in_features].clone())
    if model.config.model_type == "esmc":  # divides what a layer adds by sqrt(layers / 36)
        for layer in kept:
            layer.scaling_factor *= share**0.5
            for linear in (layer.self_attn.o_proj, layer.mlp.down_proj):
                linear.weight.mul_(share**0.5)
                if linear.bias is not None:
                    linear.bias.mul_(share**0.5)
