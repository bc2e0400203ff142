"""An encoder by its name: texts, protein sequences or several columns, told apart by the name and the vocabulary."""

from __future__ import annotations

from pathlib import Path

from labeldeconv.config import EncoderConfig
from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.columns import COLUMNS, load_columns
from labeldeconv.encoders.protein import ProteinEncoder, reads_residues
from labeldeconv.encoders.text import TextEncoder, open_pretrained
from labeldeconv.encoders.unirep import WEIGHTS, load_unirep


def load_encoder(config: EncoderConfig) -> Encoder:
    """The encoder named by `config.name`.

    'minilm', 'tiny', 'unirep-64', a hub id, a folder, or 'title=minilm,price=number' for several columns.
    """
    folder = Path(config.name)
    if "=" in config.name or (folder / COLUMNS).is_file():
        return load_columns(config, load_encoder)
    if config.name.startswith("unirep-") or (folder / WEIGHTS).is_file():
        return load_unirep(config)
    model, tokenizer = open_pretrained(config)
    kind = ProteinEncoder if reads_residues(tokenizer) else TextEncoder
    return kind(model, tokenizer, config)
