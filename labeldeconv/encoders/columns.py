"""Several attribute columns, each with its encoder, fused by concatenation and one linear layer.

    labeldeconv fit FOLDER --encoder 'title=minilm,price=number,brand=category,photo=image:google/vit-base-patch16-224'

with `attributes = "record"` and `text = ["title", "price", "brand", "photo"]` in graph.toml. It is an `Encoder` like
any other: a record's tokens are, column by column, the number of its tokens and the tokens themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from labeldeconv.encoders.base import Encoder, state_key
from labeldeconv.encoders.image import ImageEncoder, load_image_encoder
from labeldeconv.encoders.values import CategoryEncoder, NumberEncoder
from labeldeconv.errors import ConfigError, DataError, nearest
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.stages.files import write_json
from labeldeconv.stages.keys import digest

COLUMNS, FUSION = "columns.json", "fusion.safetensors"
IMAGE = "image:"


class ColumnsEncoder(Encoder):
    """Encoders by column; features = fusion [f_1(x_1), f_2(x_2), ...].

    The linear layer starts as the identity, so that before any training the features are the plain concatenation.
    """

    takes = "record"
    pad_id = 0

    def __init__(self, encoders: Mapping[str, Encoder]) -> None:
        super().__init__()
        self.columns = list(encoders)
        self.encoders = nn.ModuleList(encoders.values())
        self.dim = sum(encoder.dim for encoder in encoders.values())
        self.vocab_size = max(1 << 16, *(encoder.vocab_size for encoder in encoders.values()))
        self.fusion = nn.Linear(self.dim, self.dim)
        nn.init.eye_(self.fusion.weight)
        nn.init.zeros_(self.fusion.bias)

    def by_column(self) -> dict[str, Encoder]:
        """The encoder of each column."""
        return dict(zip(self.columns, self.encoders, strict=True))  # type: ignore[arg-type]

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Packed tokens (b, t) and mask (b, t) to features (b, d)."""
        last = input_ids.shape[1] - 1
        start = torch.zeros(len(input_ids), 1, dtype=torch.long, device=input_ids.device)  # (b, 1)
        parts = []
        for encoder in self.by_column().values():
            length = input_ids.gather(1, start)  # (b, 1)
            place = torch.arange(max(1, int(length.max())), device=input_ids.device)  # (t',)
            inside = place < length  # (b, t')
            tokens = input_ids.gather(1, (start + 1 + place).clamp_max(last))
            parts.append(encoder(tokens.where(inside, encoder.pad_id), inside.long()))
            start = start + 1 + length
        return self.fusion(torch.cat([part.to(parts[0].dtype) for part in parts], dim=-1))

    def tokenize(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Length and tokens of every column, each cut to `max_tokens`."""
        records = [self._record(text) for text in texts]
        rows: list[list[int]] = [[] for _ in texts]
        for column, encoder in self.by_column().items():
            try:
                tokens = encoder.tokenize([record[column] for record in records], max_tokens)
            except DataError as error:
                raise DataError(f"column '{column}': {error}") from None
            for row, found in zip(rows, tokens, strict=True):
                row += [len(found), *found]
        return rows

    def save(self, folder: Path) -> None:
        """Write each encoder into a folder of its own, the linear layer, and columns.json last."""
        folder.mkdir(parents=True, exist_ok=True)
        for k, encoder in enumerate(self.by_column().values()):
            (folder / str(k)).mkdir(exist_ok=True)
            encoder.save(folder / str(k))
        save_file({k: v.contiguous() for k, v in self.fusion.state_dict().items()}, folder / FUSION)
        write_json(folder / COLUMNS, {name: _kind(encoder) for name, encoder in self.by_column().items()})

    def restore(self, folder: Path) -> None:
        """Take the weights that `save` wrote."""
        for k, encoder in enumerate(self.by_column().values()):
            encoder.restore(folder / str(k))
        self.fusion.load_state_dict(load_file(folder / FUSION))

    def enable_gradient_checkpointing(self, layers: int | None = None) -> None:
        """Recompute activations where an encoder can; of the first `layers` of each, or of all."""
        for encoder in self.by_column().values():
            try:
                encoder.enable_gradient_checkpointing(layers)
            except NotImplementedError:
                continue

    def tokenizer_key(self) -> str:
        """Hash of the columns and their tokenizers."""
        return digest([(name, encoder.tokenizer_key()) for name, encoder in self.by_column().items()])

    def weights_key(self) -> str:
        """Hash of the columns, their encoders and the linear layer."""
        parts = [(name, encoder.weights_key()) for name, encoder in self.by_column().items()]
        return digest([parts, state_key(self.fusion)])

    @property
    def opens_files(self) -> bool:
        """Whether one of its encoders does."""
        return any(encoder.opens_files for encoder in self.by_column().values())

    def files_key(self, texts: Iterable[str]) -> str | None:
        """Hash of the files that columns name, of images and of whatever else opens files."""
        opening = {name: e for name, e in self.by_column().items() if e.opens_files}
        if not opening:
            return None
        records = [self._record(text) for text in texts]
        return digest([e.files_key([record[name] for record in records]) for name, e in opening.items()])

    def _record(self, text: str) -> dict[str, str]:
        try:
            record = json.loads(text)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise DataError(
                'an encoder by column reads records, a JSON object per node: set attributes = "record" in graph.toml'
                f" or use record_texts; got '{text[:40]}'"
            )
        for column in self.columns:
            if column not in record:
                raise DataError(f"encoder.name: no column '{column}' in the records; {nearest(column, record)}")
        return {name: "" if record[name] is None else str(record[name]) for name in self.columns}


def load_columns(config: EncoderConfig, load: Callable[[EncoderConfig], Encoder]) -> ColumnsEncoder:
    """'title=minilm,price=number,...' or a folder written by `save`; `load` opens an encoder of texts or sequences."""
    folder = Path(config.name)
    if (folder / COLUMNS).is_file():
        kinds = _kinds(folder / COLUMNS)
        own = [f"{kind}{folder / str(k)}" if kind in ("", IMAGE) else kind for k, kind in enumerate(kinds.values())]
        fused = ColumnsEncoder({name: _column(config, spec, load) for name, spec in zip(kinds, own, strict=True)})
        fused.restore(folder)
        return fused
    pairs = [part.partition("=")[::2] for part in config.name.split(",")]
    specs = {name.strip(): spec.strip() for name, spec in pairs}
    if len(specs) < len(pairs) or not all(name and spec for name, spec in specs.items()):
        form = "COLUMN=ENCODER,... expected, each column once; ENCODER is number, category, image:MODEL or any other"
        raise ConfigError(f"encoder.name '{config.name}': {form}")
    return ColumnsEncoder({name: _column(config, spec, load) for name, spec in specs.items()})


def _kinds(path: Path) -> dict[str, str]:
    """Columns and kinds of a folder that `save` wrote; nothing else is accepted, least of all a module to import."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None
    known = ("", "number", "category", IMAGE)
    if not isinstance(held, dict) or not held or not all(kind in known for kind in held.values()):
        raise DataError(f"{path}: columns with one of the kinds {known} expected, got {held!r:.200}")
    return held


def _column(config: EncoderConfig, name: str, load: Callable[[EncoderConfig], Encoder]) -> Encoder:
    if name == "number":
        return NumberEncoder()
    if name == "category":
        return CategoryEncoder()
    child = config.model_copy(update={"name": name.removeprefix(IMAGE)})
    return load_image_encoder(child) if name.startswith(IMAGE) else load(child)


def _kind(encoder: Encoder) -> str:
    """What columns.json says of an encoder: '' for one that its own folder tells."""
    kinds: dict[type[Encoder], str] = {NumberEncoder: "number", CategoryEncoder: "category", ImageEncoder: IMAGE}
    return kinds.get(type(encoder), "")
