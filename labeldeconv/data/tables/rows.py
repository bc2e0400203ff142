"""Table: the rows of a file in duckdb, each with its place in the file, for checks that say where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeldeconv.data.findings import EXAMPLES

MAX_CELL = 40  # characters of a cell shown in a message


@dataclass(frozen=True)
class RowPlaces:
    """Where the rows of a table that was made of another file come from: its name, and each row's place in it."""

    file: str
    place: Callable[[int], str]


@dataclass(frozen=True)
class Table:
    """A duckdb table whose rowid is the row's place in the file, counted from 0 over the readable rows."""

    con: Any
    name: str
    file: str
    rows: int
    first_line: int | None = None
    """Line of row 0 where every row is one line of text; None counts rows."""
    unreadable: tuple[int, ...] = ()
    """Lines left out, ascending."""
    places: RowPlaces | None = None
    """Where its rows come from, if not from a file of its own."""

    def fetch(self, sql: str, parameters: Sequence[Any] = ()) -> dict[str, Any]:
        """The columns of a query as arrays."""
        return self.con.execute(sql, list(parameters)).fetchnumpy()

    def place(self, row: int) -> str:
        """'line 7' of a text file, or 'row 6'; both count from 1, a CSV header is line 1."""
        if self.places is not None:
            return self.places.place(row)
        if self.first_line is None:
            return f"{'readable ' if self.unreadable else ''}row {row + 1}"
        line = row + self.first_line
        for left_out in self.unreadable:
            if left_out > line:
                break
            line += 1
        return f"line {line}"

    def examples(self, rows: Sequence[int] | np.ndarray, column: str | None = None) -> str:
        """The places of the first few `rows`, with what the SQL `column` holds there."""
        first = [int(row) for row in rows[:EXAMPLES]]
        cells: dict[int, str] = {}
        if column and first:
            wanted = ", ".join(map(str, first))
            sql = f"SELECT rowid, left({column}::VARCHAR, {MAX_CELL}) FROM {self.name} WHERE rowid IN ({wanted})"
            cells = dict(self.con.execute(sql).fetchall())
        told = [f"{self.place(row)} ('{cells[row]}')" if cells.get(row) else self.place(row) for row in first]
        return ", ".join(told) + (", ..." if len(rows) > EXAMPLES else "")

    def find(self, condition: str, column: str | None = None) -> tuple[int, str]:
        """How many rows meet an SQL condition, and the first few of them."""
        count = int(self.con.execute(f"SELECT count(*) FROM {self.name} WHERE {condition}").fetchone()[0])
        if not count:
            return 0, ""
        sql = f"SELECT rowid FROM {self.name} WHERE {condition} ORDER BY rowid LIMIT {EXAMPLES + 1}"
        return count, self.examples([row for (row,) in self.con.execute(sql).fetchall()], column)
