"""Tokens of texts that the same tokenizer has seen before, found by content in earlier results of the cache.

Data that change a little have another key, and yet most of their texts have tokens already. To tokenise all of them
again costs more than to encode the few that changed. A result of the stage `tokens` keeps a hash of every text, 128
bits as of all content here, by which texts are found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from labeldeconv.graph.texts import Texts
from labeldeconv.stages.stage import Stage

if TYPE_CHECKING:
    from labeldeconv.encoders.tokens import Tokens

MOST = 8  # earlier results that are read, the ones used last first
CHUNK = 1 << 14  # texts hashed at a time


class Known(NamedTuple):
    """Nodes (m,), ascending, whose texts are those of the nodes `places` (m,) of earlier tokens."""

    nodes: np.ndarray
    tokens: Tokens
    places: np.ndarray


def text_hashes(texts: Texts) -> np.ndarray:
    """A hash of every text (n, 2) uint64."""
    out = np.empty((len(texts), 2), np.uint64)
    buffer = np.asarray(texts.buffer).data
    for lo in range(0, len(texts), CHUNK):
        ends = texts.offsets[lo : lo + CHUNK + 1].tolist()
        hashed = b"".join(hashlib.blake2b(buffer[a:b], digest_size=16).digest() for a, b in pairwise(ends))
        out[lo : lo + CHUNK] = np.frombuffer(hashed, np.uint64).reshape(-1, 2)
    return out


def tokenised_before(stage: Stage[Any, Tokens], hashes: np.ndarray, **arguments: Any) -> Iterator[Known]:
    """What earlier results of the stage `tokens`, made with these arguments, hold of the texts with these hashes."""
    missing = np.arange(len(hashes))
    looked = 0
    for key, _ in stage.kept(**arguments):
        if not len(missing) or looked == MOST:
            return
        theirs = stage.opened(key)
        if theirs is None or theirs.text_hashes is None or not theirs.num_nodes:
            continue  # pruned, broken, or older than the hashes
        order = np.argsort(theirs.text_hashes[:, 0])
        at = np.searchsorted(theirs.text_hashes[:, 0], hashes[missing, 0], sorter=order)
        places = order[np.minimum(at, len(order) - 1)]
        found = (theirs.text_hashes[places] == hashes[missing]).all(1)
        if found.any():
            yield Known(missing[found], theirs, places[found])
            missing = missing[~found]
        looked += 1
