"""Texts: millions of strings as one UTF-8 buffer with offsets, memory-mapped, never a list of Python strings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labeldeconv.errors import DataError
from labeldeconv.graph.npy import open_npy
from labeldeconv.stages.keys import array_key


class Texts(Sequence[str]):
    """n strings as one UTF-8 buffer (bytes,) uint8 with offsets (n + 1,) int64; slices decode on demand."""

    def __init__(self, buffer: np.ndarray, offsets: np.ndarray) -> None:
        self.buffer = buffer
        self.offsets = offsets
        self._key: str | None = None

    @classmethod
    def from_strings(cls, strings: Iterable[str]) -> Texts:
        """Pack strings; the only place that walks them one by one."""
        encoded = [s.encode("utf-8") for s in strings]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(b) for b in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets)

    def __len__(self) -> int:
        return max(len(self.offsets) - 1, 0) if self.offsets.ndim else 0  # offsets of a broken file may be empty

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return self.take(np.arange(len(self))[i])
        i = int(i)
        if i < 0:
            i += len(self)
        if not 0 <= i < len(self):
            raise IndexError(f"text {i} of {len(self)}")
        return bytes(self.buffer[self.offsets[i] : self.offsets[i + 1]]).decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def take(self, ids: np.ndarray) -> list[str]:
        """The texts of the given nodes, decoded."""
        return [self[int(i)] for i in ids]

    def select(self, ids: np.ndarray) -> Texts:
        """Some texts packed anew, without decoding them."""
        ids = np.arange(len(self))[ids]
        offsets = np.concatenate([[0], np.cumsum(self.lengths()[ids])])
        chosen, buffer = np.empty(offsets[-1], np.uint8), np.asarray(self.buffer)
        begins = np.flatnonzero(np.diff(ids, prepend=-2) != 1)  # texts that follow each other are copied as one
        for a, b in zip(begins, np.append(begins, len(ids))[1:], strict=True):
            chosen[offsets[a] : offsets[b]] = buffer[self.offsets[ids[a]] : self.offsets[ids[b - 1] + 1]]
        return Texts(chosen, offsets)

    @property
    def content_key(self) -> str:
        """Hash of all texts, computed once."""
        if self._key is None:
            self._key = array_key(self.buffer, self.offsets)
        return self._key

    def lengths(self) -> np.ndarray:
        """Bytes per text (n,)."""
        return np.diff(self.offsets)

    def save(self, folder: Path, what: str) -> None:
        """Write `what`s.bin and `what`_offsets.npy into a folder."""
        self.buffer.tofile(folder / f"{what}s.bin")
        np.save(folder / f"{what}_offsets.npy", self.offsets)

    @classmethod
    def load(cls, folder: Path, what: str) -> Texts:
        """Open what `save` wrote, memory-mapped."""
        path = folder / f"{what}s.bin"
        try:
            empty = path.stat().st_size == 0  # an empty file cannot be mapped
            buffer = np.empty(0, np.uint8) if empty else np.memmap(path, dtype=np.uint8, mode="r")
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
        return cls(buffer, open_npy(folder / f"{what}_offsets.npy"))
