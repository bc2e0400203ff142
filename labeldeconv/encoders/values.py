"""Encoders of plain values: numbers and categories. A missing value has no tokens and gives zeros."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from labeldeconv.encoders.base import Encoder
from labeldeconv.errors import DataError

CATEGORIES = "categories.safetensors"


class NumberEncoder(Encoder):
    """A number as (sign(x) log(1 + |x|), 1), or (0, 0) if missing; its tokens are the four bytes of a float32."""

    dim, pad_id, vocab_size = 2, 0, 256
    probe = "42"

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Bytes (b, 4) and mask to features (b, 2)."""
        given = attention_mask[:, :1].float()  # (b, 1)
        if input_ids.shape[1] < 4:  # all are missing
            return torch.cat([0 * given, 0 * given], dim=1)
        x = input_ids[:, :4].to(torch.uint8).contiguous().view(torch.float32)  # (b, 1)
        return torch.cat([x.sign() * x.abs().log1p() * given, given], dim=1)

    def tokenize(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Four bytes per number; `max_tokens` does not matter."""
        return [list(np.float32(number(text)).tobytes()) if text.strip() else [] for text in texts]

    def save(self, folder: Path) -> None:
        """Nothing: it has no weights."""

    def restore(self, folder: Path) -> None:
        """Nothing: it has no weights."""


class CategoryEncoder(Encoder):
    """A learned vector per category; categories are hashed into `buckets`, so unseen ones need no list."""

    pad_id = 0

    def __init__(self, dim: int = 16, buckets: int = 4096) -> None:
        super().__init__()
        self.dim, self.vocab_size = dim, buckets
        values = torch.randn(buckets, dim, generator=torch.Generator().manual_seed(0)) / math.sqrt(dim)
        self.embedding = nn.Embedding.from_pretrained(values, freeze=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """One token (b, 1) and mask to features (b, d)."""
        return self.embedding(input_ids[:, 0]) * attention_mask[:, :1]

    def tokenize(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """The bucket of each category."""
        return [[self._bucket(text)] if text.strip() else [] for text in texts]

    def save(self, folder: Path) -> None:
        """Write the vectors."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file({"embedding.weight": self.embedding.weight.detach().contiguous()}, folder / CATEGORIES)

    def restore(self, folder: Path) -> None:
        """Take the vectors that `save` wrote."""
        self.load_state_dict(load_file(folder / CATEGORIES))

    def _bucket(self, text: str) -> int:
        digest = hashlib.blake2b(text.strip().encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") % self.vocab_size


def number(text: str) -> float:
    """A finite number out of text."""
    try:
        value = float(text)
    except ValueError:
        raise DataError(f"a number expected, got '{text[:40]}'") from None
    if not abs(value) <= float(np.finfo(np.float32).max):
        raise DataError(f"a finite number expected, got '{text[:40]}'")
    return value
