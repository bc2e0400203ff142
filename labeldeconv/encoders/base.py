"""The contract of a node encoder f(x; beta): attributes in, features out (eqn:ne)."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from labeldeconv.graph.attributed import AttributeKind
from labeldeconv.stages.keys import code_key, digest


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """What turns attributes into tokens: an encoder's, without its weights.

    Args:
        tokenize: attributes and the most tokens of each to rows of token ids, special tokens included.
        pad_id: the token that fills rows up.
        vocab_size: token ids are below it.
        content_key: hash of all that decides about the tokens.
    """

    tokenize: Callable[[Sequence[str], int], list[list[int]]]
    pad_id: int
    vocab_size: int
    content_key: str


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
        """Write weights and tokenizer into a folder, made if need be, as the encoder's own library opens them."""

    @abstractmethod
    def restore(self, folder: Path) -> None:
        """Take the weights that `save` wrote into `folder`."""

    def trained_layers(self) -> nn.ModuleList:
        """Its layers that train, first to last, if they follow one another in a list; else none."""
        return nn.ModuleList()

    def enable_gradient_checkpointing(self, layers: int | None = None) -> None:
        """Recompute activations in the backward pass, of the first `layers` layers that train or of all.

        Encoders that cannot say so.
        """
        raise NotImplementedError(f"{type(self).__name__} has no gradient checkpointing")

    def tokenizer_key(self) -> str:
        """Hash of all that decides about the tokens; here of the class and of how a probe is tokenised."""
        return digest([code_key(type(self)), self.vocab_size, self.pad_id, self.tokenize([self.probe], 64)])

    def weights_key(self) -> str:
        """Hash of the weights and of all else that decides about forward: equal encoders share cached stages."""
        return digest([code_key(type(self)), state_key(self)])

    def files_key(self, texts: Iterable[str]) -> str | None:
        """Hash of the files that the attributes name; None for encoders that open no files."""
        return None

    @property
    def opens_files(self) -> bool:
        """Whether attributes name files that it opens: whether it has a `files_key` of its own."""
        return type(self).files_key is not Encoder.files_key

    @property
    def tokenizer_part(self) -> Tokenizer:
        """Its tokenizer alone."""
        return Tokenizer(self.tokenize, self.pad_id, self.vocab_size, self.tokenizer_key())


def state_key(module: nn.Module, without: str = "") -> str:
    """Hash of all weights and buffers by name; names that hold `without` are left out."""
    whole = hashlib.blake2b(digest_size=12)
    for name, tensor in module.state_dict().items():
        if without and without in name:
            continue
        whole.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        whole.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return whole.hexdigest()
