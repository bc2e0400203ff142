"""FASTA: protein sequences by name, plain or gz, streamed so that the 60 million of all STRING fit where 130,000 do.

Residues come out as ESM2 and UniRep read them: upper case, 'J' (leucine or isoleucine) as 'X', '*' (stop) removed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from labeldeconv.data.sets.text_files import blocks
from labeldeconv.errors import DataError

RESIDUES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ*-.")
_CLEAN = bytes.maketrans(b"J", b"X")


@dataclass
class Sequences:
    """Sequences by name, and how many were changed in the cleaning."""

    by_name: dict[str, str] = field(default_factory=dict)
    unknown: int = 0
    """Sequences in which 'J' became 'X'."""
    stops: int = 0
    """Sequences from which '*' was removed."""

    def changes(self) -> list[str]:
        """What the cleaning did, in words; empty if nothing."""
        told = [(self.unknown, "hold 'J', read as 'X'"), (self.stops, "hold '*', which is left out")]
        return [f"{count:,} sequences {what}" for count, what in told if count]


def read_fasta(path: Path, wanted: Collection[str] | None = None) -> Sequences:
    """The sequences of a FASTA file, or those of the `wanted` names; a name is what stands before the first blank.

    A name given twice, a character that is no residue and text before the first '>' are a `DataError` with the line.
    """
    found = Sequences()
    first_seen: dict[str, int] = {}
    rest, at = b"", 1
    for first, block in blocks(path):
        if not rest:  # the start of the file, perhaps after empty lines
            skipped = len(block) - len(block.lstrip(b"\r\n"))
            at, block = first + block.count(b"\n", 0, skipped), block[skipped:]
            if not block:
                continue
            if not block.startswith(b">"):
                raise DataError(f"{path}, line {at}: '>' and a name expected, got '{_shown(block)}'")
        records = (rest + block).split(b"\n>")
        for record in records[:-1]:
            _add(path, at, record.removeprefix(b">"), wanted, found, first_seen)
            at += record.count(b"\n") + 1
        rest = records[-1] if records[-1].startswith(b">") else b">" + records[-1]
    if rest:
        _add(path, at, rest.removeprefix(b">"), wanted, found, first_seen)
    elif not found.by_name and wanted is None:
        raise DataError(f"{path}: no sequences; the file is empty")
    return found


def _add(
    path: Path, line: int, record: bytes, wanted: Collection[str] | None, found: Sequences, seen: dict[str, int]
) -> None:
    head, _, body = record.partition(b"\n")
    try:
        name = (head.split(maxsplit=1) or [b""])[0].decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{path}, line {line}: the name is not UTF-8") from None
    if wanted is not None and name not in wanted:
        return
    if not name:
        raise DataError(f"{path}, line {line}: a sequence without a name")
    if name in seen:
        raise DataError(f"{path}, line {line}: '{name}' was already on line {seen[name]}; every name may come once")
    seen[name] = line
    residues = body.translate(None, b"\n\r \t").upper()
    if not RESIDUES.issuperset(residues):
        raise DataError(f"{path}, {_wrong_residue(line, body)}")
    found.unknown += b"J" in residues
    found.stops += b"*" in residues
    found.by_name[name] = residues.translate(_CLEAN, b"*").decode("ascii")


def _wrong_residue(line: int, body: bytes) -> str:
    for number, row in enumerate(body.split(b"\n"), line + 1):
        bad = [byte for byte in row.strip().upper() if byte not in RESIDUES and byte not in b" \t"]
        if bad:
            return f"line {number}: {bytes(bad[:1]).decode('ascii', 'backslashreplace')!r} is no residue"
    return f"line {line}: not residues"


def _shown(block: bytes) -> str:
    return block.partition(b"\n")[0][:30].decode("utf-8", "replace").strip()
