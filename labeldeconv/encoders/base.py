"""The contract of a node encoder f(x; beta): attributes in, features out (eqn:ne)."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from labeldeconv.graph import AttributeKind


class Encoder(nn.Module, ABC):
    """A pre-trained model that turns tokens into one feature vector per node. It never sees the graph.

    Subclasses set `dim` (d, the feature size), `pad_id`, `vocab_size` and, unless they read texts, `takes`.
    """

    dim: int
    pad_id: int
    vocab_size: int
    takes: AttributeKind = "text"
    """The kind of attributes it was trained on."""
    probe: str = "Label 42 deconvolution? MKVL"
    """An attribute whose tokens tell tokenizers apart."""

    @abstractmethod
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Tokens (b, t) and their mask (b, t) to features (b, d)."""

    @abstractmethod
    def tokenize(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Token ids of every attribute, special tokens included, cut to `max_tokens`."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write weights and tokenizer so that the encoder's own library opens them."""

    @abstractmethod
    def restore(self, folder: Path) -> None:
        """Take the weights that `save` wrote into `folder`."""

    def enable_gradient_checkpointing(self) -> None:
        """Recompute activations in the backward pass; encoders that cannot say so."""
        raise NotImplementedError(f"{type(self).__name__} has no gradient checkpointing")

    def identity(self) -> str:
        """Hash of the weights and of how a probe text is tokenised: equal encoders share cached stages."""
        h = hashlib.blake2b(digest_size=12)
        h.update(repr((type(self).__name__, self.tokenize([self.probe], 64))).encode())
        for name, tensor in self.state_dict().items():
            h.update(name.encode())
            h.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return h.hexdigest()
