"""What is not finite is never trained on, kept or scored: losses, features, logits and weights are looked at.

A loop checks the loss that it reads for its log anyway, so that no step waits longer for a device. `NotFinite` names
the stage and the nodes; the checkpoint on the disk is older than the bad step, and stays.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from labeldeconv.errors import NotFinite
from labeldeconv.training.sharding import own_part

SHOWN = 8  # nodes that a message names
ROWS = 1 << 16  # rows looked at a time


def check_loss(loss: float, ids: np.ndarray, stage: str, when: str, advice: str) -> None:
    """Refuse a loss of the nodes `ids` (b,) that is not finite; `advice` says what to set."""
    if not math.isfinite(loss):
        raise NotFinite(f"{stage}: the loss is {loss} at {when}, {_batch(ids)}; {advice}")


def check_rows(values: np.ndarray, stage: str, what: str, advice: str, ids: np.ndarray | None = None) -> None:
    """Refuse rows (b, d) of the nodes `ids` (b,), or of all nodes (n, d), where one has a number that is not finite."""
    for lo in range(0, len(values), ROWS):
        part = values[lo : lo + ROWS]
        if np.isfinite(part).all():
            continue
        bad = lo + np.flatnonzero(~np.isfinite(part).all(axis=tuple(range(1, part.ndim))))
        nodes = bad if ids is None else np.asarray(ids)[bad]
        raise NotFinite(f"{stage}: {what} are not finite (NaN or infinite), {_batch(nodes)}; {advice}")


def check_weights(model: nn.Module, stage: str, advice: str) -> None:
    """Refuse a model with a weight, or a shard of one, that is not finite; the message names the first."""
    for name, weight in model.named_parameters():
        if weight.is_floating_point() and not bool(torch.isfinite(own_part(weight)).all()):
            raise NotFinite(f"{stage}: the weight {name} is not finite (NaN or infinite); {advice}")


def _batch(ids: np.ndarray) -> str:
    """'nodes 3, 5, 9', with the number of all where they are many; nodes count from 0 in the order of the data."""
    named = ", ".join(map(str, ids[:SHOWN].tolist()))
    rest = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return f"node{'s' if len(ids) != 1 else ''} {named}{rest} (from 0, in the order of the data)"
