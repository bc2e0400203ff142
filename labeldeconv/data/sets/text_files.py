"""Text files as others ship them, plain or gz: lines with numbers, columns through duckdb, and errors that say where.

A truncated gz, bytes that are not UTF-8 and rows with the wrong number of columns are a `DataError` with file and line.
"""

from __future__ import annotations

import glob
import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import duckdb
import numpy as np

from labeldeconv.data.findings import EXAMPLES
from labeldeconv.data.tables.scan import first_line
from labeldeconv.errors import DataError
from labeldeconv.sql import literal
from labeldeconv.stages.memory_limit import spill_limit

BLOCK = 1 << 22  # bytes


def open_bytes(path: Path) -> IO[bytes]:
    """A file for reading, unpacked on the way where its first two bytes are those of gz."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if path.suffix == ".gz" and not packed:
        raise DataError(f"{path}: called .gz, but its first bytes are not those of a gz file; download it again")
    opened: Any = gzip.open(path, "rb") if packed else path.open("rb")  # noqa: SIM115 (the caller closes it)
    return opened


def blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines, each with the number (from 1) of its first line."""
    line, rest = 1, b""
    with open_bytes(path) as file:
        while True:
            try:
                block = file.read(BLOCK)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                where = f"after line {line - 1}"
                raise DataError(f"{path}: the gz file is truncated or broken {where}; download it again") from None
            cut = block.rfind(b"\n") + 1
            if block and not cut:
                rest += block
                continue
            whole, rest = rest + block[:cut], block[cut:]
            if whole:
                yield line, whole
                line += whole.count(b"\n") + (not whole.endswith(b"\n"))
            if not block:
                if rest:  # a last line without an end
                    yield line, rest
                return


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers (from 1) and lines without their end."""
    for first, block in blocks(path):
        rows = _decode(path, first, block).split("\n")
        for number, row in enumerate(rows[:-1] if not rows[-1] else rows, first):
            yield number, row.removesuffix("\r")


def check_file(path: Path) -> int:
    """Number of lines of a whole, UTF-8 file; an error otherwise."""
    last = 0
    for first, block in blocks(path):
        if not block.isascii():
            _decode(path, first, block)
        last = first - 1 + block.count(b"\n") + (not block.endswith(b"\n"))
    return last


def read_columns(
    path: Path, columns: Mapping[str, str], header: bool = False, delimiter: str = ",", rows: int | None = None
) -> dict[str, np.ndarray]:
    """Columns of a text table as arrays, by name; `columns` gives the SQL type of every column of the file in order.

    Every cell must be filled and of its type, every row must have all columns, and there must be `rows` of them.
    """
    check_file(path)
    with duckdb.connect(config={"memory_limit": spill_limit()}) as con:
        try:
            sql = f"SELECT * FROM {scan_sql(path, columns, header, delimiter)}"
            found: dict[str, Any] = con.execute(sql).fetchnumpy()
        except duckdb.Error as error:
            raise DataError(f"{path}: {first_line(error)}") from None
        raise_rejects(con, path)
    for name, column in found.items():
        if isinstance(column, np.ma.MaskedArray):
            if column.mask.any():
                line = int(np.flatnonzero(column.mask)[0]) + 1 + header
                raise DataError(f"{path}, line {line}: the cell of column '{name}' is empty")
            found[name] = column.data
    got = len(next(iter(found.values())))
    if rows is not None and got != rows:
        raise DataError(f"{path}: {rows:,} rows expected, got {got:,}")
    return found


def scan_sql(path: Path, columns: Mapping[str, str], header: bool = False, delimiter: str = ",") -> str:
    """SQL that reads a text table; rows that do not fit go to the table `rejects`."""
    types = ", ".join(f"{literal(name)}: {literal(kind)}" for name, kind in columns.items())
    quote = "'\"'" if delimiter == "," else "''"  # quotes mean something only between commas
    options = {
        "auto_detect": "false",
        "columns": f"{{{types}}}",
        "delim": literal(delimiter),
        "header": str(header).lower(),
        "quote": quote,
        "escape": quote,
        "compression": "'gzip'" if _packed(path) else "'none'",
        "max_line_size": "16777216",
        "store_rejects": "true",
        "rejects_table": "'rejects'",
        "rejects_scan": "'rejected_scans'",
    }
    given = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"read_csv({literal(glob.escape(str(path)))}, {given})"


def raise_rejects(con: Any, path: Path) -> None:
    """An error for the rows that the last scan could not read."""
    sql = "SELECT line, any_value(error_message) FROM rejects GROUP BY line ORDER BY line"
    found = con.execute(sql).fetchall()
    if found:
        told = [f"line {line}: {why.splitlines()[0].lower()}" for line, why in found[:EXAMPLES]]
        raise DataError(f"{path}: {len(found):,} rows cannot be read", told)


def matrix(columns: dict[str, np.ndarray], dtype: Any) -> np.ndarray:
    """Columns side by side (rows, columns); `columns` is emptied on the way, since two copies may not fit."""
    out = np.empty((len(next(iter(columns.values()))), len(columns)), dtype=dtype)
    for i, name in enumerate(list(columns)):
        out[:, i] = columns.pop(name)
    return out


def first_of(folder: Path, names: Sequence[str]) -> Path | None:
    """The first of `names` that is a file in `folder`, plain or with .gz."""
    candidates = [folder / f"{name}{packing}" for name in names for packing in ("", ".gz")]
    return next((path for path in candidates if path.is_file()), None)


def _decode(path: Path, first: int, block: bytes) -> str:
    try:
        return block.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first + block.count(b"\n", 0, error.start)
        raise DataError(f"{path}, line {line}: not UTF-8 ({error.reason})") from None


def _packed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"
