"""The largest batch whose training step fits a device's memory: `labeldeconv fit DATA --find-batch`.

A step is Algorithm 1, lines 8-10, on nodes that all have as many tokens as the encoder takes: encoder, psi, loss,
gradients and AdamW, in the precision and with the gradient checkpointing of the settings. The size is doubled until a
step does not fit and then bisected; what a try held is freed before the next one.

An accelerator says itself what does not fit (OutOfMemoryError). On a CPU the process would be killed instead: there the
steps have a budget, and one that would exceed it, by the line through the two largest before it, is not tried.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.pretrained import Weights
from labeldeconv.encoders.tokens import Tokens
from labeldeconv.encoders.trunk import TokenStates, split_for
from labeldeconv.encoders.vocabulary import used_vocabulary
from labeldeconv.errors import ConfigError
from labeldeconv.graph.task import Task
from labeldeconv.progress import logger
from labeldeconv.settings.models import TrainConfig
from labeldeconv.stages.memory import (
    free_memory_mib,
    peak_accelerator_mib,
    peak_memory_mib,
    reset_peak_memory,
    resident_memory_mib,
    return_freed_memory,
)
from labeldeconv.training.encoder import Head, Objective, Prepared, _step, make_optimizer
from labeldeconv.training.steps import encoder_autocast

EXACT = 16  # the bisection ends when it knows the size to a sixteenth: steps of a large batch are slow
Step = Callable[[int], None]


def largest_batch(
    encoder: Weights,
    head: Head,
    tokens: Tokens,
    task: Task,
    settings: TrainConfig,
    max_tokens: int,
    device: torch.device,
    memory_mib: float | None = None,
) -> int:
    """Most nodes of `max_tokens` tokens in a training step that fits the device, at most those of `tokens`; 0 if none.

    Args:
        memory_mib: what model, optimiser and step may use together; None is all there is: of a CPU what is free.
    """
    with torch.random.fork_rng(), room_for(device, memory_mib) as room:
        with training_step(encoder, head, tokens, task, settings, max_tokens, device) as step:
            found = largest_size(lambda size: room.fits(step, size), tokens.num_nodes)
        within = "" if room.memory_mib is None else f" within {room.memory_mib:,.0f} MiB"
        logger.info("largest batch: %d nodes of %d tokens fit %s%s", found, max_tokens, device, within)
    return found


def largest_size(fits: Callable[[int], bool], most: int, exact: int = EXACT) -> int:
    """The largest size in 1..`most` that fits, to one part in `exact`, by doubling, then bisecting; 0 if none fits."""
    good, size = 0, 1
    while size <= most and fits(size):
        good, size = size, 2 * size
    if good == 0:
        return 0
    if size > most:  # nothing has failed yet
        if good == most or fits(most):
            return most
        size = most
    bad = size
    while bad - good > max(1, good // exact):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


@dataclass
class Room:
    """The memory that tries may use, and what those so far have used.

    Args:
        device: where they compute.
        memory_mib: the budget; None leaves it to an accelerator to say what does not fit.
        before_mib: what the process used before the model was loaded.
        used: nodes and MiB of the steps that fitted.
    """

    device: torch.device
    memory_mib: float | None
    before_mib: float = 0.0
    used: list[tuple[int, float]] = field(default_factory=list)

    def fits(self, step: Step, size: int) -> bool:
        """Whether a step of `size` nodes fits; it is run unless it is known not to."""
        if self.memory_mib is not None and self.expected_mib(size) > self.memory_mib:
            return False
        reset_peak_memory()
        try:
            step(size)
            peak = self._peak_mib()
        except (torch.OutOfMemoryError, MemoryError) as error:
            logger.debug("a batch of %d nodes does not fit: %s", size, error)
            return False
        except RuntimeError as error:
            if "allocate memory" not in str(error):  # what torch's allocator says on a CPU
                raise
            return False
        finally:
            gc.collect(1)  # what is young: a try's own circles; all of a large program takes a second
            return_freed_memory()
        logger.debug("a batch of %d nodes takes %.0f MiB", size, peak)
        if self.memory_mib is not None and peak > self.memory_mib:
            return False
        self.used.append((size, peak))
        return True

    def expected_mib(self, size: int) -> float:
        """What a step of `size` nodes should use, by the line through the two largest that fitted; 0 if unknown."""
        known = sorted(self.used)[-2:]
        if len(known) < 2:
            return 0.0
        (few, less), (many, more) = known
        return more + max(more - less, 0.0) / (many - few) * (size - many)

    def _peak_mib(self) -> float:
        """Most memory since the last reset, beyond what was used before the model was loaded."""
        peak = peak_memory_mib() if self.device.type == "cpu" else peak_accelerator_mib()
        return (peak or 0.0) - self.before_mib


@contextmanager
def room_for(device: torch.device, memory_mib: float | None) -> Iterator[Room]:
    """The room on a device, measured before the model is loaded and freed afterwards."""
    if memory_mib is not None and memory_mib <= 0:
        raise ConfigError(f"memory: more than 0 MiB expected, got {memory_mib:g}")
    on_cpu = device.type == "cpu"
    if on_cpu and memory_mib is None:
        memory_mib = free_memory_mib()
        if memory_mib is None or resident_memory_mib() is None:
            raise ConfigError("--find-batch: this system does not tell how much memory is free or used; try a GPU")
    try:
        yield Room(device, memory_mib, (resident_memory_mib() or 0.0) if on_cpu else 0.0)
    finally:
        gc.collect()
        return_freed_memory()


@contextmanager
def training_step(
    encoder: Weights,
    head: Head,
    tokens: Tokens,
    task: Task,
    settings: TrainConfig,
    max_tokens: int,
    device: torch.device,
) -> Iterator[Step]:
    """A function that makes one whole training step on any number of nodes of full length."""
    model = split_for(encoder.load(), tokens)
    targets = Uniform(task.num_classes)
    behind = head.build(model.dim, targets, np.arange(1))
    objective = Objective(model, behind, targets, task, settings.dropout).to(device)
    row = full_row(model, tokens, max_tokens)
    with used_vocabulary(model, tokens):
        if settings.gradient_checkpointing:
            model.enable_gradient_checkpointing()
        optimizer = make_optimizer(objective, settings)
        computing = encoder_autocast(model, tokens, settings.precision)
        objective.train()

        def step(size: int) -> None:
            batch = Prepared(np.zeros(size, np.int64), tuple(x.repeat(size, *[1] * (x.ndim - 1)) for x in row))
            try:
                _step(objective, optimizer, [batch], settings.clip, computing, device)
            finally:
                optimizer.zero_grad(set_to_none=True)

        yield step


class Uniform(nn.Module):
    """Node ids to the same soft label (b, c): a loss as any other, without labels."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes

    def forward(self, ids: np.ndarray) -> Tensor:
        """1 / c for each of the classes."""
        return torch.full((len(ids), self.num_classes), 1 / self.num_classes)


def full_row(encoder: Encoder, tokens: Tokens, max_tokens: int) -> tuple[Tensor, ...]:
    """Tokens and mask (1, t) of a node of full length: a made-up text, or of records and files the longest node.

    For an encoder that goes on from token states (1, t, w) these are 0.
    """
    if encoder.takes == "record" or encoder.opens_files:
        return tokens.batch(np.array([int(np.argmax(tokens.lengths))]))
    row = torch.tensor(encoder.tokenize([f"{encoder.probe} " * max_tokens], max_tokens))
    states = (tokens.states,) if isinstance(tokens, TokenStates) else ()
    return row, torch.ones_like(row), *(torch.zeros(*row.shape, x.shape[1], dtype=torch.float16) for x in states)
