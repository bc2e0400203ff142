"""Raw files that a user brings: what each is called, looks like and comes from, and what to say when one is missing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labeldeconv.data.sets.text_files import first_of
from labeldeconv.errors import DataError


@dataclass(frozen=True)
class RawFile:
    """One file of a data set.

    Args:
        key: what it is in the code.
        places: names relative to the data set's folder, without .gz; the first is where a user is told to put it.
        looks: what is in it.
        origin: where it comes from.
        optional: whether the data set can be used without it.
    """

    key: str
    places: tuple[str, ...]
    looks: str
    origin: str
    optional: bool = False

    def find(self, folder: Path) -> Path | None:
        """The file, at one of its places or directly in `folder`."""
        flat = [Path(place).name for place in self.places if "/" in place]
        return first_of(folder, [*self.places, *flat])

    def wanted(self, folder: Path) -> str:
        """What to tell someone who lacks it."""
        return f"missing {folder / self.places[0]}.gz (or without .gz): {self.looks}; {self.origin}"


class MissingFiles(DataError):
    """Some raw files are missing; `found` says what is known from those that are there."""

    def __init__(self, title: str, problems: Sequence[str], found: Mapping[str, Any]) -> None:
        super().__init__(title, problems)
        self.found = dict(found)


def data_root() -> Path:
    """Where raw data sets live: LABELDECONV_DATA, or the folder 'data' of the working directory."""
    return Path(os.environ.get("LABELDECONV_DATA") or "data")


def find_all(files: Sequence[RawFile], folder: Path) -> dict[str, Path]:
    """The files that are there, by key."""
    found = {file.key: file.find(folder) for file in files}
    return {key: path for key, path in found.items() if path is not None}


def missing(files: Sequence[RawFile], folder: Path, found: Mapping[str, Path]) -> list[str]:
    """What to say about the files that are needed and not there."""
    return [file.wanted(folder) for file in files if file.key not in found and not file.optional]
