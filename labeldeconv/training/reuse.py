"""Features of texts that were encoded before by the same weights, found by content in earlier results of the cache.

Data that change a little, such as a graph of yesterday with some new texts, have another key, and yet most of their
texts have features already. A kept result of the stage `features` names the tokens that it was made of, so these are
the index from a text's content to its row: no other file is needed. Rows are found by a hash of their tokens and then
compared token by token; both results are compared with their checksums before they are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from labeldeconv.encoders.tokens import Tokens, equal_rows
from labeldeconv.encoders.tokens import tokens as tokens_stage
from labeldeconv.stages.stage import Stage

MOST = 8  # earlier results that are read, the ones used last first


class Earlier(NamedTuple):
    """Nodes (m,) whose attributes stand in the rows `places` (m,) of earlier features `values` (n, d)."""

    nodes: np.ndarray
    values: np.ndarray
    places: np.ndarray


def encoded_before(stage: Stage[Any, Any], tokens: Tokens, **arguments: Any) -> Iterator[Earlier]:
    """What earlier results of a stage, made with these arguments, hold of the distinct attributes of `tokens`."""
    missing = np.flatnonzero(tokens.first == np.arange(tokens.num_nodes))
    looked = 0
    for key, made_of in stage.kept(**arguments):
        theirs = tokens_stage.opened(made_of["tokens"]["content"])
        if theirs is None or (features := stage.opened(key)) is None:
            continue  # pruned, broken, or of the states of a frozen trunk
        places = equal_rows(tokens, missing, theirs)
        found = places >= 0
        if found.any():
            yield Earlier(missing[found], features.values, places[found])
            missing = missing[~found]
        looked += 1
        if looked == MOST or not len(missing):
            return
