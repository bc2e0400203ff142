"""From the token states of a model to one feature vector: pooling, then dense layers, cut and length where asked.

`PooledEncoder` is the forward pass of all transformers. Modes have our names; sentence-transformers, whose folders
`encoders/sentence.py` reads, has others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labeldeconv.encoders.base import Encoder

MODES = {
    "first": "cls",
    "last": "lasttoken",
    "mean": "mean",
    "max": "max",
    "root-mean": "mean_sqrt_len_tokens",
    "weighted": "weightedmean",
}
"""What sentence-transformers calls each way of pooling."""


class Dense(nn.Module):
    """activation(W x + b), plus x (or a linear map of it) where `residual`."""

    def __init__(
        self, in_dim: int, out_dim: int, bias: bool = True, activation: nn.Module | None = None, residual: bool = False
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(in_dim, out_dim, bias=bias)
        self.activation = nn.Identity() if activation is None else activation
        self.adds = residual
        if residual and in_dim != out_dim:
            self.residual = nn.Linear(in_dim, out_dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Features (b, in) to (b, out)."""
        out = self.activation(self.linear(x))
        if not self.adds:
            return out
        return out + (self.residual(x) if hasattr(self, "residual") else x)


class Readout(nn.Module):
    """Token states (b, t, w) and their mask (b, t) to features (b, d).

    Args:
        width: w.
        modes: ways of pooling, whose vectors are put side by side.
        steps: layers behind the pooling, of type Dense or nn.LayerNorm.
        dim: keep only the first numbers, as encoders trained for it allow (matryoshka); None keeps all.
        normalize: whether features have length 1.
        skip: tokens of a prompt, at the beginning of every row, that are not pooled.
    """

    def __init__(
        self,
        width: int,
        modes: Sequence[str] = ("mean",),
        steps: Sequence[nn.Module] = (),
        dim: int | None = None,
        normalize: bool = False,
        skip: int = 0,
    ) -> None:
        super().__init__()
        self.width, self.modes, self.normalize, self.skip = width, tuple(modes), normalize, skip
        self.steps = nn.ModuleList(steps)
        whole = width * len(self.modes)
        for step in steps:
            whole = step.linear.out_features if isinstance(step, Dense) else whole
        self.dim = whole if dim is None else min(dim, whole)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Pool, map, cut, scale."""
        place = mask.cumsum(1)  # (b, t), of a token in its row, from 1 on, whatever the side of the padding
        kept = mask * (place > self.skip)
        x = torch.cat([_pooled(mode, hidden, kept, place) for mode in self.modes], dim=-1)
        for step in self.steps:
            x = step(x)
        x = x[:, : self.dim]
        return F.normalize(x, dim=-1) if self.normalize else x

    def described(self) -> str:
        """All that decides about it but the weights of its layers."""
        return f"{self.modes} {self.steps} {self.dim} {self.normalize} {self.skip}"


def _pooled(mode: str, hidden: Tensor, mask: Tensor, place: Tensor) -> Tensor:
    """One vector (b, w) of every row's states (b, t, w), by the mask (b, t) and the tokens' places (b, t)."""
    if mode == "first":
        return _rows_at(hidden, mask.argmax(1))
    if mode == "last":
        return _rows_at(hidden, mask.shape[1] - 1 - mask.flip(1).argmax(1))
    weight = mask.unsqueeze(-1).to(hidden.dtype)  # (b, t, 1)
    if mode == "max":
        return hidden.masked_fill(weight == 0, float("-inf")).amax(1)
    if mode == "weighted":
        weight = weight * place.unsqueeze(-1).to(hidden.dtype)
    total = weight.sum(1).clamp_min(1)
    return (hidden * weight).sum(1) / (total.sqrt() if mode == "root-mean" else total)


def _rows_at(hidden: Tensor, places: Tensor) -> Tensor:
    """States (b, w) at one place (b,) of every row."""
    return hidden[torch.arange(len(hidden), device=hidden.device), places]


class PooledEncoder(Encoder):
    """A model of transformers and a readout over its last layer: what runs in a training step.

    Subclasses set `model`, `readout` and `options`, which are given to the model besides tokens and mask.
    """

    model: nn.Module
    readout: Readout
    options: dict[str, Any]

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Tokens (b, t) and mask (b, t) to features (b, d)."""
        return self.readout(self.hidden_states(input_ids, attention_mask), attention_mask)

    def hidden_states(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Tokens (b, t) and mask (b, t) to the last layer (b, t, w)."""
        hidden = self.model(input_ids=input_ids, attention_mask=attention_mask, **self.options).last_hidden_state
        low = hidden.dtype != torch.float32 and not torch.is_autocast_enabled(hidden.device.type)
        return hidden.float() if low else hidden  # of weights in bfloat16
