"""Tokens: every attribute tokenised once into a memory-mapped store, padded per batch without a Python loop."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from labeldeconv.encoders.base import Encoder
from labeldeconv.progress import bar
from labeldeconv.texts import Texts

CHUNK = 4096  # texts handed to the tokenizer at a time; it runs its own threads over them


@dataclass(frozen=True)
class TokenStore:
    """Token ids of all nodes, flat (total,), with offsets (n + 1,)."""

    tokens: np.ndarray
    offsets: np.ndarray
    pad_id: int

    @property
    def lengths(self) -> np.ndarray:
        """Tokens per node (n,)."""
        return np.diff(self.offsets)

    def batch(self, nodes: np.ndarray) -> tuple[Tensor, Tensor]:
        """Input ids and mask (b, t) of the given nodes, padded to the longest of them."""
        starts = self.offsets[nodes]
        lengths = self.offsets[nodes + 1] - starts
        mask = np.arange(lengths.max(initial=1)) < lengths[:, None]  # (b, t)
        before = np.cumsum(lengths) - lengths
        flat = np.arange(lengths.sum()) + np.repeat(starts - before, lengths)
        input_ids = np.full(mask.shape, self.pad_id, dtype=np.int64)
        input_ids[mask] = self.tokens[flat]
        return torch.from_numpy(input_ids), torch.from_numpy(mask.astype(np.int64))

    @classmethod
    def open(cls, folder: Path, pad_id: int) -> TokenStore:
        """Open a store written by `write_tokens`, memory-mapped."""
        return cls(np.load(folder / "tokens.npy", mmap_mode="r"), np.load(folder / "offsets.npy"), pad_id)


def write_tokens(encoder: Encoder, texts: Texts, max_tokens: int, folder: Path) -> None:
    """Tokenise all texts into `folder`: tokens.npy (uint16 where the vocabulary fits) and offsets.npy."""
    dtype = np.uint16 if encoder.vocab_size <= 1 << 16 else np.uint32
    lengths = np.zeros(len(texts), dtype=np.int64)
    raw = folder / "tokens.raw"
    with raw.open("wb") as out, bar("tokenise", total=len(texts)) as advance:
        for start in range(0, len(texts), CHUNK):
            rows = encoder.tokenize(texts[start : start + CHUNK], max_tokens)
            lengths[start : start + len(rows)] = [len(row) for row in rows]
            np.fromiter(chain.from_iterable(rows), dtype=dtype).tofile(out)
            advance(len(rows))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    flat = np.memmap(raw, dtype=dtype, mode="r") if offsets[-1] else np.empty(0, dtype)
    np.save(folder / "tokens.npy", flat)
    np.save(folder / "offsets.npy", offsets)
    raw.unlink()
