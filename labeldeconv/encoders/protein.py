"""Protein language models of transformers (ESM2, ESM-C, ProtBERT, ProtT5): a token per residue, and their mean.

labeldeconv fit string:4932@FOLDER --encoder facebook/esm2_t12_35M_UR50D     # a hub id, or a local folder
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from labeldeconv.encoders.huggingface import TextEncoder, max_positions
from labeldeconv.encoders.sentence import Layout
from labeldeconv.settings.models import EncoderConfig

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
SMALL = 64  # tokens at most of a vocabulary of residues: ESM2 and ESM-C have 33, ProtBERT 30, ProtT5 28
BLANK = "\u2581"  # how sentence pieces, so ProtT5's residues, write the blank before a word
SENTINEL = "<extra_id_"  # begins T5's 100 tokens that stand for masked spans


class ProteinEncoder(TextEncoder):
    """A transformers model over residues. 'J' is read as 'X', '*' left out, as in data/fasta.py.

    Mean pooling leaves out the begin and end tokens (the authors' code keeps them).
    """

    takes = "sequence"

    def __init__(self, model: nn.Module, tokenizer: Any, config: EncoderConfig, layout: Layout | None = None) -> None:
        super().__init__(model, tokenizer, config, layout)
        self.residue_table = residue_ids(tokenizer)  # (256,)
        around = list(tokenizer("A")["input_ids"])
        place = around.index(self.residue_table[ord("A")])
        self.ends = (around[:place], around[place + 1 :])  # ProtT5 has an end token alone

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Tokens (b, t) and mask (b, t) to features (b, d): mean over the residues of the last layer."""
        hidden = self.hidden_states(input_ids, attention_mask)  # (b, t, d)
        if self.readout.modes == ("first",):
            return self.readout(hidden, attention_mask)
        kept = attention_mask.clone()
        for token in (*self.ends[0], *self.ends[1]):
            kept = kept * (input_ids != token)
        return self.readout(hidden, kept)

    def tokenize(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Begin token, one token per residue, end token; the sequence is cut to `max_tokens` in all."""
        begin, end = self.ends
        most = min(max_tokens, max_positions(self.model)) - len(begin) - len(end)
        return [[*begin, *ids[:most], *end] for ids in residues_to_ids(texts, self.residue_table)]


def residues_to_ids(texts: Sequence[str], table: np.ndarray) -> list[list[int]]:
    """Token ids of every residue by a table (256,); '*' and blanks are left out."""
    cleaned = (text.upper().encode("ascii", "replace").translate(None, b"* \t\r\n") for text in texts)
    return [table[np.frombuffer(residues, dtype=np.uint8)].tolist() for residues in cleaned]


def residue_ids(tokenizer: Any) -> np.ndarray:
    """Token of every byte (256,): the residue's own, or that of 'X' where the vocabulary has none."""
    vocabulary = _residue_vocabulary(tokenizer)
    unknown = vocabulary.get("X", tokenizer.unk_token_id)
    letters = [vocabulary.get(chr(byte), unknown) for byte in range(128)]
    return np.array([*letters, *[unknown] * 128], dtype=np.int64)


def reads_residues(tokenizer: Any) -> bool:
    """Whether a tokenizer's vocabulary is one of residues."""
    if sum(not token.startswith(SENTINEL) for token in tokenizer.get_vocab()) > 2 * SMALL:
        return False  # a letter stands in it twice at most; sorting the vocabulary of a text encoder takes 0.2 s
    vocabulary = _residue_vocabulary(tokenizer)
    return len(vocabulary) <= SMALL and set(RESIDUES) <= set(vocabulary)


def _residue_vocabulary(tokenizer: Any) -> dict[str, int]:
    """Tokens by their letters, without T5's sentinels; a letter as a word of its own goes before the bare one."""
    pieces = sorted(tokenizer.get_vocab().items(), key=lambda piece: piece[0].startswith(BLANK))
    return {token.removeprefix(BLANK): number for token, number in pieces if not token.startswith(SENTINEL)}
