"""One table file (Parquet, CSV or JSON lines) read into duckdb in one pass.

CSV and JSON cells are read as text, so that one bad cell never changes the type of a column in silence. Rows that
cannot be read are told and left out, so that the rest of the file is checked too.
"""

from __future__ import annotations

import csv
import glob
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from labeldeconv.data.findings import EXAMPLES, Findings, shown
from labeldeconv.data.tables.encoding import count_lines, is_utf16, line_at, replace_bad_bytes
from labeldeconv.data.tables.rows import RowPlaces, Table
from labeldeconv.sql import literal, quoted

FORMATS = ("parquet", "csv", "jsonl")
CSV = (".csv", ".tsv")  # read alike, but for the delimiter
JSON_SAMPLE = 1 << 20  # lines searched for keys
FLOATS = {"FLOAT", "DOUBLE"}


@dataclass(frozen=True)
class TableFile:
    """A table file whose columns are known but whose rows are not read yet."""

    con: Any
    path: Path
    """What the user gave."""
    readable: Path
    """The same, or a UTF-8 copy with bad bytes replaced."""
    columns: Mapping[str, str]
    """SQL type by name."""
    lines: int | None
    """Lines of text; None for Parquet."""
    delimiter: str = ","
    """Between the cells of a CSV file."""
    places: RowPlaces | None = None
    """Where its rows come from, if it was made of another file."""

    @property
    def file(self) -> str:
        """The name for messages."""
        return self.path.name if self.places is None else self.places.file

    def cell(self, column: str) -> str:
        """SQL for a cell as text: NULL when empty or NaN, '3' for 3.0 (pandas makes integers with gaps floats)."""
        name = quoted(column)
        if self.columns[column] not in FLOATS:
            return f"nullif({name}::VARCHAR, '')"
        whole = f"CASE WHEN {name} = trunc({name}) THEN TRY_CAST({name} AS BIGINT)::VARCHAR END"
        return f"CASE WHEN NOT isnan({name}) THEN coalesce({whole}, {name}::VARCHAR) END"

    def load(self, name: str, columns: Mapping[str, str], findings: Findings) -> Table | None:
        """Read the SQL expressions `columns` into the duckdb table `name`; None when the file cannot be read."""
        select = ", ".join(f"{expression} AS {alias}" for alias, expression in columns.items())
        unreadable: list[int] = []
        try:
            self.con.execute(f"CREATE TABLE {name} AS SELECT {select} FROM {self._scan(name)}")
        except duckdb.Error as error:
            unreadable = self._malformed_json(findings) if self.path.suffix == ".jsonl" else []
            if not unreadable:
                findings.error(f"{self.file}{self._broken_columns(columns)}: {first_line(error)}")
                return None
            rows = f"(SELECT *, row_number() OVER () AS _row FROM {self._scan(name, tolerant=True)})"
            left_out = ", ".join(map(str, unreadable))
            self.con.execute(f"CREATE TABLE {name} AS SELECT {select} FROM {rows} WHERE _row NOT IN ({left_out})")
        if self.path.suffix in CSV:
            unreadable = self._rejected_csv(name, findings)
        count = int(self.con.execute(f"SELECT count(*) FROM {name}").fetchone()[0])
        header = int(self.path.suffix in CSV)
        one_line_each = self.lines == header + count + len(unreadable)
        first = header + 1 if one_line_each else None
        return Table(self.con, name, self.file, count, first, tuple(unreadable), self.places)

    def _scan(self, name: str, tolerant: bool = False) -> str:
        path = literal(glob.escape(str(self.readable)))
        types = ", ".join(f"{literal(column)}: {literal(kind)}" for column, kind in self.columns.items())
        if self.path.suffix == ".parquet":
            return f"read_parquet({path})"
        if self.path.suffix == ".jsonl":
            errors = ", ignore_errors=true" if tolerant else ""
            return f"read_json({path}, format='newline_delimited', columns={{{types}}}{errors})"
        rejects = f"store_rejects=true, rejects_table='{name}_rejects', rejects_scan='{name}_scans'"
        dialect = f"""header=true, delim={literal(self.delimiter)}, quote='"', escape='"'"""
        return f"read_csv({path}, auto_detect=false, columns={{{types}}}, {dialect}, {rejects})"

    def _rejected_csv(self, name: str, findings: Findings) -> list[int]:
        """Lines that do not fit the header, told with the reason."""
        sql = f"SELECT line, line_byte_position, any_value(error_message) FROM {name}_rejects"
        rows = self.con.execute(f"{sql} GROUP BY ALL ORDER BY line_byte_position").fetchall()
        # duckdb takes a row with line breaks in quotes for one line, and counts bytes from 1: count again.
        told = [
            f"line {line_at(self.readable, at - 1)}: {why.splitlines()[0].lower()}" for _, at, why in rows[:EXAMPLES]
        ]
        if rows:
            dots = "; ..." if len(rows) > EXAMPLES else ""
            findings.error(f"{self.file}: {len(rows)} rows cannot be read; {'; '.join(told)}{dots}")
        return [int(line) for line, _, _ in rows]

    def _malformed_json(self, findings: Findings) -> list[int]:
        """Lines that are not a JSON object, told."""
        sql = f"SELECT row FROM (SELECT row_number() OVER () AS row, json FROM {_json_lines(self.readable)})"
        found = self.con.execute(f"{sql} WHERE json IS NULL OR json_type(json) <> 'OBJECT' ORDER BY row").fetchall()
        lines = [int(row) for (row,) in found]
        if lines:
            findings.error(f"{self.file}: {len(lines)} lines are not a JSON object: {_lines(lines)}")
        return lines

    def _broken_columns(self, columns: Mapping[str, str]) -> str:
        """Which columns make reading fail, when it is not the whole file."""
        broken = []
        for name, expression in columns.items():
            try:
                self.con.execute(f"SELECT max({expression}) FROM {self._scan('probe')}")
            except duckdb.Error:
                broken.append(name)
        return f", column {shown(broken)}" if 0 < len(broken) < len(columns) else ""


def find_file(folder: Path, kind: str, findings: Findings) -> Path | None:
    """The one file `kind`.parquet, .csv or .jsonl of a folder."""
    present = [path for suffix in FORMATS if (path := folder / f"{kind}.{suffix}").is_file()]
    if len(present) == 1 and present[0].stat().st_size:
        return present[0]
    strange = [path.name for suffix in FORMATS if (path := folder / f"{kind}.{suffix}").exists() and not path.is_file()]
    if not present and strange:
        findings.error(f"{folder}: {strange[0]} is no regular file, which a table must be")
    elif not present:
        findings.error(f"{folder}: no {kind} table; one of {', '.join(f'{kind}.{s}' for s in FORMATS)} expected")
    elif len(present) > 1:
        findings.error(f"{folder}: {' and '.join(p.name for p in present)} are both there; keep one")
    else:
        findings.error(f"{present[0].name}: the file is empty")
    return None


def open_file(
    con: Any, path: Path, delimiter: str, scratch: Path, findings: Findings, places: RowPlaces | None = None
) -> TableFile | None:
    """Check the encoding of a file and learn its columns; `scratch` takes a copy when bad bytes must be replaced."""
    lines, readable = None, path
    if path.suffix != ".parquet":
        lines, bad = count_lines(path)
        if bad:
            findings.error(f"{path.name}: {len(bad)} lines are not UTF-8: {_lines(bad)}; save the file as UTF-8")
            if is_utf16(path):
                return None  # with bytes replaced, nothing sensible would be left to check
            readable = replace_bad_bytes(path, scratch / path.name)
    try:
        columns = _header(readable, delimiter) if path.suffix in CSV else _described(con, readable)
    except (duckdb.Error, csv.Error) as error:
        findings.error(f"{path.name}: {first_line(error)}")
        return None
    if not columns:
        findings.error(f"{path.name}: no columns; a header or JSON objects expected")
        return None
    names = [name.lower() for name, _ in columns]  # duckdb does not tell case apart
    if twice := sorted({name for name in names if names.count(name) > 1}):
        findings.error(f"{places.file if places else path.name}: more than one column is called {shown(twice)}")
        return None
    return TableFile(con, path, readable, dict(columns), lines, delimiter, places)


def first_line(error: Exception) -> str:
    """The first line of a duckdb message, without the name of the exception."""
    line = str(error).strip().splitlines()[0]
    return line.removeprefix("Invalid Input Error: ").removeprefix("IO Error: ")


def _header(path: Path, delimiter: str) -> list[tuple[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        names = next(csv.reader(file, delimiter=delimiter), [])
    return [(name or f"column{i}", "VARCHAR") for i, name in enumerate(names)]


def _described(con: Any, path: Path) -> list[tuple[str, str]]:
    """Names and types of the columns; a JSON value is text, or a list of texts."""
    where = literal(glob.escape(str(path)))
    if path.suffix == ".parquet":
        return [(row[0], row[1]) for row in con.execute(f"DESCRIBE FROM read_parquet({where})").fetchall()]
    objects = f"SELECT json FROM {_json_lines(path)} WHERE json_type(json) = 'OBJECT' LIMIT {JSON_SAMPLE}"
    structure = con.execute(f"SELECT json_group_structure(json) FROM ({objects})").fetchone()[0]
    kinds = json.loads(structure) if structure else {}
    return [(name, "VARCHAR[]" if isinstance(kind, list) else "VARCHAR") for name, kind in kinds.items()]


def _json_lines(path: Path) -> str:
    """SQL for the lines of a JSON file, NULL where one is malformed."""
    return f"read_json_objects({literal(glob.escape(str(path)))}, format='newline_delimited', ignore_errors=true)"


def _lines(numbers: list[int]) -> str:
    return ", ".join(f"line {n}" for n in numbers[:EXAMPLES]) + (", ..." if len(numbers) > EXAMPLES else "")
