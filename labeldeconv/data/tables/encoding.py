"""Text files as bytes: how many lines they have, and which of them are not UTF-8. Read in blocks, never held whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

BLOCK = 1 << 24  # bytes


def count_lines(path: Path) -> tuple[int, list[int]]:
    """Number of lines of a file, and the numbers (from 1) of those that are not UTF-8."""
    lines, bad = 0, []
    for block in _blocks(path):
        if not _is_utf8(block):
            bad += [lines + i for i, line in enumerate(block.split(b"\n"), 1) if not _is_utf8(line)]
        lines += block.count(b"\n") + (not block.endswith(b"\n"))
    return lines, bad


def line_at(path: Path, position: int) -> int:
    """The line (from 1) that holds byte `position` (from 0) of a file."""
    line = 1
    with path.open("rb") as file:
        while position > 0 and (block := file.read(min(BLOCK, position))):
            line += block.count(b"\n")
            position -= len(block)
    return line


def is_utf16(path: Path) -> bool:
    """Whether a file starts with a UTF-16 byte order mark, as spreadsheets like to write."""
    with path.open("rb") as file:
        return file.read(2) in (b"\xff\xfe", b"\xfe\xff")


def replace_bad_bytes(path: Path, copy: Path) -> Path:
    """Write a UTF-8 copy of a file with the replacement character where bytes make no sense."""
    with copy.open("wb") as out:
        for block in _blocks(path):
            out.write(block.decode("utf-8", errors="replace").encode("utf-8"))
    return copy


def _blocks(path: Path) -> Iterator[bytes]:
    """The file in blocks of whole lines."""
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            yield block if block.endswith(b"\n") else block + file.readline()


def _is_utf8(block: bytes) -> bool:
    try:
        return block.isascii() or bool(block.decode("utf-8"))
    except UnicodeDecodeError:
        return False
