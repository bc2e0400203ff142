"""What a graph is made from: a source, which says how to make it, and the files that a source reads.

A source is a frozen dataclass. Its fields are all that its graph depends on, so they make the key under which the graph
is kept; files stand in it by their names and contents, wherever their folder lies:

    @dataclass(frozen=True)
    class Wordnet:
        files: Files
        seed: int
        version: int = 1        # raised whenever `load` gives another graph

        def load(self) -> Loaded: ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Protocol

from labeldeconv.data.findings import Loaded
from labeldeconv.stages.files import checksum
from labeldeconv.stages.keys import digest


class Source(Protocol):
    """How one graph is made: a frozen dataclass whose fields, with `version`, are all that the graph depends on."""

    def load(self) -> Loaded:
        """Make the graph, with what is odd about its files."""
        ...


class Files(Mapping[str, Path]):
    """The files that a source reads, by the part that each plays ('edges', 'labels', or simply its name).

    Args:
        folder: what the names of the files start from; it is in no key.
        paths: the files by their parts.
    """

    def __init__(self, folder: Path, paths: Mapping[str, Path]) -> None:
        self.folder, self.paths = folder, dict(paths)

    @classmethod
    def named(cls, folder: Path, names: Iterable[str]) -> Files:
        """Those of the `names` in a folder that are files, each under its own name."""
        return cls(folder, {name: folder / name for name in sorted(set(names)) if (folder / name).is_file()})

    @cached_property
    def content_key(self) -> str:
        """Hash of the parts, of the names relative to the folder and of the contents."""
        return digest({part: [self._relative(path), checksum(path)] for part, path in self.paths.items()})

    def _relative(self, path: Path) -> str:
        return str(path.relative_to(self.folder)) if path.is_relative_to(self.folder) else str(path)

    def __getitem__(self, part: str) -> Path:
        return self.paths[part]

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)
