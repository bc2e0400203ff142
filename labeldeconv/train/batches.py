"""Batches by token budget: a pure function of lengths, seed and epoch, so that a resumed run sees the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")
Ready = TypeVar("Ready")
WINDOW = 50  # batches that are sorted by length together: little padding, still random


def epoch_batches(
    lengths: np.ndarray, nodes: np.ndarray, max_nodes: int, max_tokens: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """All `nodes` (m,) once, in random batches of similar length (Algorithm 1, line 7).

    A batch has at most `max_nodes` nodes and, padded, at most `max_tokens` tokens (one node may exceed it).
    """
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(nodes)
    window = WINDOW * max_nodes
    batches: list[np.ndarray] = []
    for start in range(0, len(order), window):
        batches += length_batches(lengths, order[start : start + window], max_nodes, max_tokens)
    return [batches[i] for i in rng.permutation(len(batches))]


def length_batches(lengths: np.ndarray, nodes: np.ndarray, max_nodes: int, max_tokens: int) -> list[np.ndarray]:
    """`nodes` sorted from long to short and cut into batches within both limits."""
    ordered = nodes[np.argsort(-lengths[nodes], kind="stable")]
    batches, start = [], 0
    while start < len(ordered):
        size = min(max_nodes, max(1, max_tokens // max(1, int(lengths[ordered[start]]))))
        batches.append(ordered[start : start + size])
        start += size
    return batches


def ahead(prepare: Callable[[Item], Ready], items: Iterable[Item]) -> Iterator[Ready]:
    """prepare(item) of every item in order, the next one in another thread while this one is used."""
    with ThreadPoolExecutor(1) as pool:
        waiting: Future[Ready] | None = None
        for item in items:
            coming = pool.submit(prepare, item)
            if waiting is not None:
                yield waiting.result()
            waiting = coming
        if waiting is not None:
            yield waiting.result()
