"""Token states of a frozen trunk: computed once into a float16 memory map, shared by all methods, seeds and sweeps.

With `encoder.train_layers` the first layers of the encoder never change, so that what they give for a node never does:
it is kept, and only the last layers run in every step and in every export (encoders/trunk.py). States of an attribute
that several nodes share are kept once, and none of padding: 2 w bytes for each token.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from labeldeconv.encoders.pretrained import Weights
from labeldeconv.encoders.tokens import Tokens, flat_rows
from labeldeconv.encoders.trunk import SplitEncoder, TokenStates
from labeldeconv.errors import ConfigError
from labeldeconv.progress import logger
from labeldeconv.stages.keys import Idle
from labeldeconv.stages.stage import Folder, stage
from labeldeconv.training.features import check_pass_room, pass_over
from labeldeconv.training.steps import encoder_autocast

LARGEST = float(np.finfo(np.float16).max)


@stage(version=1, parallel=True)
def token_states(
    out: Folder,
    tokens: Tokens,
    encoder: Weights,
    train_layers: int,
    precision: str,
    device: Annotated[torch.device, Idle] = torch.device("cpu"),
) -> TokenStates:
    """States of all tokens behind all but the last `train_layers` layers, in evaluation mode."""
    whole = encoder.load().to(device)
    computing = encoder_autocast(whole, tokens, precision, training=False)
    split = SplitEncoder(whole, train_layers)
    check_pass_room(out.label, tokens, split.width)
    starts = state_rows(tokens)
    shape = (int(tokens.lengths[tokens.first == np.arange(tokens.num_nodes)].sum()), split.width)
    size = 2 * shape[0] * shape[1] / 1e6
    logger.info("%s: %s tokens x %d x 2 bytes = %s MB on disk", out.label, f"{shape[0]:,}", shape[1], f"{size:,.1f}")

    def compute(input_ids: Tensor, mask: Tensor) -> Tensor:
        with computing:
            return split.states(input_ids, mask)[mask.bool()]  # (tokens, w)

    def write(values: np.ndarray, ids: np.ndarray, states: Tensor) -> None:
        largest = float(states.abs().max())
        if not largest <= LARGEST:
            raise ConfigError(
                f"encoder.train_layers: states of the frozen layers are kept in float16, which holds numbers up to "
                f"{LARGEST:,.0f}; this encoder has {largest:,.0f}. Leave it unset, or train more layers"
            )
        values[rows(ids)] = states.half().cpu().numpy()

    def rows(ids: np.ndarray) -> np.ndarray:
        return flat_rows(starts[ids], tokens.lengths[ids])

    values, seconds = pass_over(tokens, out, "states", shape, device, compute, write, rows)
    return TokenStates(
        ids=tokens.ids,
        offsets=tokens.offsets,
        pad_id=tokens.pad_id,
        states=values,
        starts=starts,
        train_layers=train_layers,
        seconds=seconds,
    )


def state_rows(tokens: Tokens) -> np.ndarray:
    """Where the states of every node's attribute begin (n,): those of distinct attributes follow one another."""
    own = tokens.first == np.arange(tokens.num_nodes)
    kept = np.where(own, tokens.lengths, 0)
    return (np.cumsum(kept) - kept)[tokens.first]
