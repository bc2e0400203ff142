"""TF-IDF of texts or sequences as GIANT has it, as sketches of fixed width: no (n, vocabulary) matrix is ever held.

A text's words are its single words, its pairs of neighbouring words and the triples of characters inside words, hashed
to 1,000,000, 3,000,000 and 200,000 columns, the published sizes of the three vocabularies; a protein's are its runs of
residues. scikit-learn takes them apart. A word weighs tf (ln((1 + n) / (1 + df)) + 1); words of more than 98% of the
texts weigh nothing; each of the three parts of a row has length 1, and so has the whole.

A row (columns,) becomes (dim,) by a sparse random projection: every column adds to SPREAD places, with signs that a
hash gives, so that inner products stay what they are on average (Kane and Nelson, sparse Johnson-Lindenstrauss). Texts
are read in blocks, twice. Memory: at most 24 bytes a column (100 MB in all), and a block of ROWS texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

ROWS = 1024  # texts in a block
SPREAD = 4  # places of the sketch that a column adds to
MAX_DF = 0.98  # words of a larger share of the texts tell nothing


@dataclass(frozen=True)
class Words:
    """One kind of words: how scikit-learn's analyzer takes texts apart, and to how many columns words are hashed."""

    analyzer: str
    run: int
    columns: int
    lowercase: bool = True

    def count(self, texts: Sequence[str]) -> csr_matrix:
        """How often every word occurs in every text: (b, columns) float32."""
        from sklearn.feature_extraction.text import HashingVectorizer  # takes a second to import

        split: Any = HashingVectorizer(
            analyzer=self.analyzer,
            ngram_range=(self.run, self.run),
            n_features=self.columns,
            lowercase=self.lowercase,
            alternate_sign=False,
            norm=None,
            dtype=np.float32,
        )
        return split.transform(texts)


PUBLISHED = (Words("word", 1, 1_000_000), Words("word", 2, 3_000_000), Words("char_wb", 3, 200_000))


def residue_runs(length: int) -> tuple[Words, ...]:
    """The words of proteins: runs of `length` residues."""
    return (Words("char", length, 1_000_000, lowercase=False),)


@dataclass(frozen=True, eq=False)
class WordWeights:
    """Weights of the words of n texts: `idf` (columns,) float32 for every kind, 0 where a word is common."""

    kinds: tuple[Words, ...]
    idf: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, texts: Sequence[str], kinds: tuple[Words, ...]) -> WordWeights:
        """Count in how many texts every word occurs: the first reading."""
        frequency = [np.zeros(kind.columns, np.int32) for kind in kinds]
        for block in _blocks(texts):
            for kind, df in zip(kinds, frequency, strict=True):
                columns, times = np.unique(kind.count(block).indices, return_counts=True)
                df[columns] += times.astype(np.int32)
        n = len(texts)
        weights = (np.where(df > MAX_DF * n, 0, np.log((1 + n) / (1 + df)) + 1).astype(np.float32) for df in frequency)
        return cls(kinds, tuple(weights))

    def rows(self, texts: Sequence[str]) -> list[csr_matrix]:
        """TF-IDF (b, columns) of some texts, a matrix for every kind of words; joined, rows have length 1, or 0."""
        parts = []
        for kind, idf in zip(self.kinds, self.idf, strict=True):
            part = kind.count(texts)
            part.data *= idf[part.indices]
            parts.append(part)
        lengths = [np.sqrt(part.multiply(part).sum(axis=1)).A1 for part in parts]
        some = np.sqrt(np.sum([length > 0 for length in lengths], axis=0)).clip(1)  # parts that are there count alike
        for part, length in zip(parts, lengths, strict=True):
            part.data /= np.repeat(length.clip(1e-12) * some, np.diff(part.indptr)).astype(np.float32)
        return parts


def write_sketches(texts: Sequence[str], kinds: tuple[Words, ...], out: np.ndarray, seed: int = 0) -> None:
    """Fill out (n, dim), perhaps memory-mapped, with projected TF-IDF of n texts; dim is a multiple of SPREAD."""
    weights = WordWeights.of(texts, kinds)
    lo = 0
    for block in _blocks(texts):
        out[lo : lo + len(block)] = project(weights.rows(block), out.shape[1], seed)
        lo += len(block)


def project(parts: Sequence[csr_matrix], dim: int, seed: int = 0) -> np.ndarray:
    """The sketch (b, dim) float32 of rows given as matrices (b, columns) side by side."""
    b = parts[0].shape[0]
    out, offset, step = np.zeros(b * dim), 0, dim // SPREAD
    for part in parts:
        row = np.repeat(np.arange(b), np.diff(part.indptr)) * dim
        column = part.indices.astype(np.uint64) + np.uint64(offset)
        for place in range(SPREAD):  # each in a part of its own of the sketch, so that no two fall together
            bits = _scrambled(column * np.uint64(SPREAD) + np.uint64(place), seed)
            where = row + place * step + ((bits >> np.uint64(1)) % np.uint64(step)).astype(np.int64)
            sign = 1 - 2 * (bits & np.uint64(1)).astype(np.float64)
            out += np.bincount(where, weights=sign * part.data, minlength=b * dim)
        offset += part.shape[1]
    return (out / np.sqrt(SPREAD)).reshape(b, dim).astype(np.float32)


def _scrambled(numbers: np.ndarray, seed: int) -> np.ndarray:
    """64 bits (m,) that look random, a function of each number and the seed: splitmix64 (Steele et al., 2014)."""
    z = numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64((seed * 0xD1342543DE82EF95 + 1) % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _blocks(texts: Sequence[str]) -> Iterator[list[str]]:
    return (list(texts[lo : lo + ROWS]) for lo in range(0, len(texts), ROWS))
