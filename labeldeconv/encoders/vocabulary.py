"""Train only the word vectors that the data uses.

A batch of 32 texts touches a few hundred of BERT's 30,522 word vectors, yet every step clears, clips and updates the
gradient of all of them: more memory traffic than the rest of MiniLM. Vectors of tokens that occur nowhere in the data
never get a gradient, so leaving them out changes nothing but that they do not decay: they stay as pre-trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.tokens import Tokens

WORTH = 0.8  # share of the vocabulary in use above which nothing is done
CHUNK = 1 << 24  # tokens looked at at a time
CHECKED = 64  # tokens whose vectors are compared between both tables


class UsedEmbedding(nn.Module):
    """An embedding table of some rows of another; token ids stay as they were."""

    def __init__(self, whole: nn.Embedding, used: np.ndarray) -> None:
        super().__init__()
        number = torch.zeros(whole.num_embeddings, dtype=torch.long)
        number[used] = torch.arange(len(used))
        self.number: Tensor
        self.register_buffer("number", number.to(whole.weight.device), persistent=False)
        self.weight = nn.Parameter(whole.weight.detach()[used].clone())
        self.scale: Tensor | float  # Gemma multiplies its vectors by sqrt(d)
        scale = getattr(whole, "embed_scale", 1.0)
        if isinstance(scale, Tensor):
            self.register_buffer("scale", scale.clone(), persistent=False)
        else:
            self.scale = scale
        self.padding = None if whole.padding_idx is None else int(number[whole.padding_idx])

    def forward(self, ids: Tensor) -> Tensor:
        """Token ids (...) to word vectors (..., d)."""
        vectors = F.embedding(self.number[ids], self.weight, self.padding)
        if isinstance(self.scale, Tensor):
            return vectors * self.scale.to(vectors.dtype)
        return vectors if self.scale == 1.0 else vectors * self.scale


def _same_vectors(part: UsedEmbedding, whole: nn.Embedding, used: np.ndarray) -> bool:
    """Whether both tables give the same vectors for the tokens `used` (m,)."""
    ids = torch.from_numpy(used).to(whole.weight.device)
    with torch.no_grad():
        return torch.equal(part(ids), whole(ids))


@contextmanager
def used_vocabulary(encoder: Encoder, tokens: Tokens) -> Iterator[None]:
    """Inside, `encoder` holds only the word vectors of tokens in `tokens`; afterwards all, the used ones trained."""
    model: Any = getattr(encoder, "model", None)
    whole = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    if not isinstance(whole, nn.Embedding) or not whole.weight.requires_grad:
        yield
        return
    used = used_tokens(tokens, whole.num_embeddings, {tokens.pad_id, whole.padding_idx or 0})
    if len(used) > WORTH * whole.num_embeddings:
        yield
        return
    part = UsedEmbedding(whole, used).to(whole.weight.device)
    if not _same_vectors(part, whole, used[:CHECKED]):  # a kind of table that does more than look up
        yield
        return
    model.set_input_embeddings(part)
    try:
        yield
        with torch.no_grad():
            trained: Any = part.weight
            every = trained.full_tensor() if hasattr(trained, "full_tensor") else trained  # ranks may have shards
            whole.weight[used] = every.to(whole.weight.device)
    finally:
        model.set_input_embeddings(whole)


def used_tokens(tokens: Tokens, vocabulary: int, always: set[int]) -> np.ndarray:
    """Token ids that occur, ascending, and `always`."""
    seen = np.zeros(vocabulary, bool)
    seen[list(always)] = True
    for start in range(0, len(tokens.ids), CHUNK):
        seen[tokens.ids[start : start + CHUNK]] = True
    return np.flatnonzero(seen)
