"""Tokens: every attribute tokenised once, memory-mapped; batches by token budget, padded without a Python loop.

Attributes that are equal, such as words of a word graph, are known by their tokens, so that each is encoded once in a
batch and once in an export. Batches are a pure function of lengths, seed and epoch, so that a resumed run sees the same
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from labeldeconv.encoders.base import Tokenizer
from labeldeconv.encoders.known_tokens import Known, text_hashes, tokenised_before
from labeldeconv.graph.texts import Texts
from labeldeconv.progress import bar, logger
from labeldeconv.stages.memory_limit import check_room
from labeldeconv.stages.stage import Artefact, Folder, stage

CHUNK = 4096  # texts handed to the tokenizer at a time; it runs its own threads over them
WINDOW = 50  # batches that are sorted by length together: little padding, still random
ROWS = 1 << 12  # nodes whose tokens are compared at a time
Item = TypeVar("Item")
Ready = TypeVar("Ready")


@dataclass(frozen=True, eq=False)
class Tokens(Artefact):
    """Token ids of all nodes, flat `ids` (total,), with `offsets` (n + 1,).

    `text_hashes` (n, 2) are of the texts that they come from, where these are known (encoders/known_tokens.py).
    """

    ids: np.ndarray
    offsets: np.ndarray
    pad_id: int
    text_hashes: np.ndarray | None = field(default=None, kw_only=True)

    @property
    def num_nodes(self) -> int:
        """n."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Tokens per node (n,)."""
        return np.diff(self.offsets)

    def lengths_of(self, nodes: np.ndarray) -> np.ndarray:
        """Tokens of each of the given nodes (b,)."""
        return np.asarray(self.offsets[nodes + 1]) - np.asarray(self.offsets[nodes])

    @cached_property
    def first(self) -> np.ndarray:
        """Of every node the first node with the same tokens (n,): itself, unless its attribute was there before."""
        return first_of_equal_rows(self.ids, self.offsets)

    def distinct(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """One of the given nodes (b,) per attribute (u,), and for each of them the place of its attribute (b,).

        Where all attributes differ, these are the nodes as they are, and None.
        """
        _, places, same = np.unique(self.first[nodes], return_index=True, return_inverse=True)
        return (nodes, None) if len(places) == len(nodes) else (nodes[places], same)

    def batch(self, nodes: np.ndarray) -> tuple[Tensor, ...]:
        """Input ids and mask (b, t) of the given nodes, padded to the longest of them."""
        starts, lengths = np.asarray(self.offsets[nodes]), self.lengths_of(nodes)
        mask = np.arange(lengths.max(initial=1)) < lengths[:, None]  # (b, t)
        input_ids = np.full(mask.shape, self.pad_id, dtype=np.int64)
        input_ids[mask] = self.ids[flat_rows(starts, lengths)]
        return torch.from_numpy(input_ids), torch.from_numpy(mask.astype(np.int64))


@stage(version=2)
def tokens(out: Folder, texts: Texts, tokenizer: Tokenizer, max_tokens: int, files: str | None = None) -> Tokens:
    """All attributes, tokenised once and cut to `max_tokens`; those that were before, for another graph, are copied.

    `files` is the hash of the files that the attributes name, for encoders that open files (`Pretrained.files_key`).
    """
    needed = 64 * len(texts) + 400 * CHUNK * min(max_tokens, 256)  # lengths, row ends, hashes; lists of a chunk
    check_room(out.label, needed, "lower encoder.max_tokens")
    if files is not None:
        return write_tokens(tokenizer, texts, max_tokens, out.path)
    hashes = text_hashes(texts)
    known = list(tokenised_before(tokens, hashes, tokenizer=tokenizer, max_tokens=max_tokens, files=None))
    if known:
        count = f"{sum(len(each.nodes) for each in known):,} of {len(texts):,}"
        logger.info("%s: %s texts were tokenised before", out.label, count)
    return replace(write_tokens(tokenizer, texts, max_tokens, out.path, known), text_hashes=hashes)


def write_tokens(
    tokenizer: Tokenizer, texts: Texts, max_tokens: int, folder: Path, known: Sequence[Known] = ()
) -> Tokens:
    """Write ids.npy (uint16 where the vocabulary fits) and offsets.npy into `folder`; `known` texts are copied."""
    dtype = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32
    lengths = np.zeros(len(texts), dtype=np.int64)
    unknown = np.ones(len(texts), bool)
    for each in known:
        unknown[each.nodes] = False
        lengths[each.nodes] = each.tokens.lengths_of(each.places)
    raw = folder / "ids.raw"
    with raw.open("wb") as out, bar("tokenise", total=len(texts)) as advance:
        for start in range(0, len(texts), CHUNK):
            stop = min(start + CHUNK, len(texts))
            nodes = start + np.flatnonzero(unknown[start:stop])
            rows = tokenizer.tokenize(texts.take(nodes), max_tokens) if len(nodes) else []
            lengths[nodes] = [len(row) for row in rows]
            ends = np.cumsum(lengths[start:stop])
            flat = np.empty(ends[-1], dtype)
            parts = [(nodes, np.fromiter(chain.from_iterable(rows), dtype=dtype))]
            for each in known:
                here = slice(*np.searchsorted(each.nodes, (start, stop)))
                begins = np.asarray(each.tokens.offsets[each.places[here]])
                parts.append((each.nodes[here], each.tokens.ids[flat_rows(begins, lengths[each.nodes[here]])]))
            for some, ids in parts:
                flat[flat_rows(ends[some - start] - lengths[some], lengths[some])] = ids
            flat.tofile(out)
            advance(stop - start)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    flat = np.memmap(raw, dtype=dtype, mode="r") if offsets[-1] else np.empty(0, dtype)
    np.save(folder / "ids.npy", flat)
    np.save(folder / "offsets.npy", offsets)
    raw.unlink()
    return Tokens(
        np.load(folder / "ids.npy", mmap_mode="r" if offsets[-1] else None, allow_pickle=False),
        offsets,
        tokenizer.pad_id,
    )


def flat_rows(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Places (total,) of all elements of rows that begin at `starts` (m,) of a flat array, row after row."""
    before = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + np.repeat(starts - before, lengths)


def first_of_equal_rows(flat: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Of every row (n,) of `flat` (total,) the first row with the same elements.

    Rows are found by a 64-bit hash and then compared, so that two rows of one hash are never taken for one.
    """
    n = len(offsets) - 1
    hashes = np.empty(n, np.uint64)
    for lo in range(0, n, ROWS):
        hi = min(lo + ROWS, n)
        hashes[lo:hi] = _row_hashes(np.asarray(flat[offsets[lo] : offsets[hi]]), offsets[lo : hi + 1] - offsets[lo])
    _, places, group = np.unique(hashes, return_index=True, return_inverse=True)
    first = places[group]
    again = np.flatnonzero(first != np.arange(n))
    for lo in range(0, len(again), ROWS):
        rows = again[lo : lo + ROWS]
        starts, lengths = offsets[rows], offsets[rows + 1] - offsets[rows]
        others = offsets[first[rows]]
        equal = offsets[first[rows] + 1] - others == lengths
        short = np.where(equal, lengths, 0)  # of others nothing is compared: they differ
        differs = flat[flat_rows(starts, short)] != flat[flat_rows(others, short)]
        ends = np.cumsum(short)
        wrong = np.concatenate([[0], np.cumsum(differs)])
        equal &= wrong[ends] == wrong[ends - short]
        first[rows[~equal]] = rows[~equal]
    return first


def equal_rows(tokens: Tokens, nodes: np.ndarray, others: Tokens) -> np.ndarray:
    """Of each of the given nodes (m,) a node of `others` with the same tokens (m,); -1 where there is none."""
    lengths = tokens.lengths_of(nodes)
    own = tokens.ids[flat_rows(np.asarray(tokens.offsets[nodes]), lengths)]
    offsets = np.concatenate([others.offsets, others.offsets[-1] + np.cumsum(lengths)])
    first = first_of_equal_rows(np.concatenate([others.ids, own]), offsets)[others.num_nodes :]
    return np.where(first < others.num_nodes, first, -1)


def _row_hashes(flat: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """A 64-bit hash of every row (m,): the sum over its elements of a mix (splitmix64) of element and place."""
    lengths = np.diff(offsets)
    place = np.arange(len(flat)) - np.repeat(offsets[:-1], lengths)
    mixed = flat.astype(np.uint64) + (place.astype(np.uint64) << np.uint64(32)) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])  # wraps around, as it may
    return sums[offsets[1:]] - sums[offsets[:-1]] + lengths.astype(np.uint64)


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


def like_lengths(lengths: np.ndarray, batch: np.ndarray, least: int) -> list[np.ndarray]:
    """A batch (b,), sorted from long to short, in parts that are padded to their own longest.

    It is cut where most padding goes, and again, as long as that is more than `least` tokens: what a part costs itself.
    """
    own = lengths[batch]
    saved = (own[:1] - own) * np.arange(len(batch), 0, -1)  # by a cut before each of them
    if not len(batch) or saved.max() <= least:
        return [batch]
    cut = int(saved.argmax())
    return [*like_lengths(lengths, batch[:cut], least), *like_lengths(lengths, batch[cut:], least)]


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
