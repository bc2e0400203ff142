"""How many layers a training step computes again in its backward pass, so that it fits `max_memory`.

A layer keeps for its gradients some thirty numbers per number of its input, and more for long texts. The first k layers
can keep their inputs alone and be computed again when their gradients are: a forward pass of each more, to the same
numbers. Those are the layers whose gradients come last, when what the others kept is free again.

What a batch keeps is measured on one node and on two, without a backward pass: autograd shows what it saves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.tokens import Tokens
from labeldeconv.settings.models import TrainConfig


@dataclass(frozen=True)
class KeptBytes:
    """Bytes that a forward pass keeps for the gradients, by rows of the longest text.

    Args:
        fixed: whatever the number of rows, such as weights in bfloat16.
        row: of a row.
        layer: of it inside one layer.
        state: of it between two layers.
        layers: how many layers train.
    """

    fixed: float
    row: float
    layer: float
    state: float
    layers: int

    def kept(self, rows: float, recomputed: int) -> float:
        """Bytes kept of so many rows where the first `recomputed` layers keep their inputs alone."""
        return self.fixed + rows * (self.row - recomputed * (self.layer - self.state))

    def peak(self, rows: float, recomputed: int) -> float:
        """The same, and what one layer takes that is computed again, or whose gradients are."""
        return self.kept(rows, recomputed) + rows * self.layer

    def needed(self, rows: float, room: float) -> int:
        """The fewest layers to compute again so that `peak` is at most `room`; all of them where none are enough."""
        fitting = (k for k in range(self.layers) if self.peak(rows, k) <= room)
        return next(fitting, self.layers)


def activations(encoder: Encoder, tokens: Tokens, computing: AbstractContextManager[None]) -> KeptBytes:
    """What an encoder in training mode keeps of the longest text, measured; nothing random is used up."""
    longest = int(np.argmax(tokens.lengths))
    device = next(encoder.parameters()).device
    layers = encoder.trained_layers()
    one, two = (
        _kept(encoder, [x.to(device) for x in tokens.batch(np.full(rows, longest))], layers, computing)
        for rows in (1, 2)
    )
    row, inside = two[0] - one[0], two[1] - one[1]
    return KeptBytes(one[0] - row, row, inside / max(1, len(layers)), one[2], len(layers))


def widest_rows(tokens: Tokens, settings: TrainConfig) -> float:
    """The longest texts that fit the largest batch, or what they would be."""
    longest = int(tokens.lengths.max(initial=1))
    return min(settings.batch_tokens / longest, settings.batch_nodes)


def _kept(
    encoder: Encoder, inputs: list[Tensor], layers: nn.ModuleList, computing: AbstractContextManager[None]
) -> tuple[float, float, float]:
    """Bytes that a forward pass keeps, those inside its layers, and those of the states (b, t, w) between them."""
    seen: dict[int, int] = {p.untyped_storage().data_ptr(): 0 for p in encoder.parameters()}
    inside: set[int] = set()
    depth, state = [0], [0]

    def pack(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in seen:
            seen[storage.data_ptr()] = storage.nbytes()
            if depth[0]:
                inside.add(storage.data_ptr())
        return saved

    def enter(*_: Any) -> None:
        depth[0] += 1

    def leave(_layer: nn.Module, _inputs: Any, out: Any) -> None:
        depth[0] -= 1
        state[0] = (out[0] if isinstance(out, tuple) else out).nbytes

    device = inputs[0].device
    hooks = [layer.register_forward_pre_hook(enter) for layer in layers]
    hooks += [layer.register_forward_hook(leave) for layer in layers]
    devices = [] if device.type == "cpu" else [device]
    with _training(encoder), torch.random.fork_rng(devices, device_type=device.type if devices else "cuda"):
        try:
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved), computing:
                features = encoder(*inputs)
        finally:
            for hook in hooks:
                hook.remove()
    total = sum(seen.values())
    del features  # what was saved lives until here
    return total, sum(seen[place] for place in inside), state[0]


@contextmanager
def _training(encoder: nn.Module) -> Iterator[None]:
    """Inside, the encoder is in training mode; afterwards in what it was."""
    before = encoder.training
    encoder.train()
    try:
        yield
    finally:
        encoder.train(before)
