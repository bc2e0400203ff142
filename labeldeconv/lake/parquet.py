"""Tables of this machine as arrays and back, by DuckDB: what the engine 'local' reads and writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from labeldeconv.errors import DataError
from labeldeconv.lake.tables import (
    SUCCESS,
    HopTables,
    class_count,
    list_length,
    need_columns,
    parquet_files,
    refuse_ids,
    refuse_range,
    refuse_type,
    refuse_unknown,
)
from labeldeconv.sql import literal, quoted

WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
REAL = ("FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN", *WHOLE)
ROWS = 1 << 16  # of a file that is written


class LocalTables:
    """Open tables of this machine; `with` closes them."""

    def __init__(self) -> None:
        self.con = duckdb.connect()

    def __enter__(self) -> LocalTables:
        return self

    def __exit__(self, *_: object) -> None:
        self.con.close()

    def open(self, name: str, url: str, columns: Mapping[str, str]) -> dict[str, str]:
        """Give a table a name in SQL with columns renamed {new: old}; returns the new columns' types."""
        files = ", ".join(literal(str(path)) for path in parquet_files(url))
        try:
            there = self.con.execute(f"DESCRIBE SELECT * FROM read_parquet([{files}])").fetchall()
            need_columns(url, list(columns.values()), [row[0] for row in there])
            chosen = ", ".join(f"{quoted(old)} AS {new}" for new, old in columns.items())
            self.con.execute(f"CREATE VIEW {name} AS SELECT {chosen} FROM read_parquet([{files}])")
        except duckdb.Error as error:
            raise DataError(f"{url}: no Parquet that can be read: {str(error).splitlines()[0]}") from None
        types = {row[0]: row[1] for row in there}
        return {new: types[old] for new, old in columns.items()}

    def number(self, url: str, column: str, kind: str) -> int:
        """Make a table `numbered` (id, row) of the table `nodes`: rows in the order of the ids. Returns n."""
        if kind not in (*WHOLE, "VARCHAR"):
            raise refuse_type(url, column, kind, "whole numbers or strings")
        n, nulls, distinct = self.one("SELECT count(*), count(*) - count(id), count(DISTINCT id) FROM nodes")
        refuse_ids(url, column, n, nulls, distinct)
        self.con.execute("CREATE TABLE numbered AS SELECT id, row_number() OVER (ORDER BY id) - 1 AS row FROM nodes")
        return n

    def one(self, query: str) -> tuple[Any, ...]:
        """The one row of a query."""
        found = self.con.execute(query).fetchone()
        assert found is not None
        return found

    def column(self, query: str) -> np.ndarray:
        """The one column of a query."""
        (values,) = self.con.execute(query).fetchnumpy().values()
        return values


def read_graph(tables: HopTables) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ids (n,) sorted, Y (n, c) float32 and edges (2, e) as places in ids; given edges, none added or dropped."""
    with LocalTables() as opened:
        types = opened.open("nodes", tables.nodes, {"id": tables.id, "label": tables.label})
        ends = opened.open("edges", tables.edges, {"source": tables.source, "target": tables.target})
        n = opened.number(tables.nodes, tables.id, types["id"])
        for name, column in (("source", tables.source), ("target", tables.target)):
            if (ends[name] == "VARCHAR") != (types["id"] == "VARCHAR"):
                raise refuse_type(tables.edges, column, ends[name], f"of the type of ids, {types['id']}")
        ids = opened.column("SELECT id FROM numbered ORDER BY row")
        Y = _labels(opened, tables, types["label"], n)
        joined = " ".join(f"LEFT JOIN numbered {name} ON {name}.id = edges.{name}" for name in ("source", "target"))
        pairs = f"SELECT source.row AS s, target.row AS t, edges.source, edges.target FROM edges {joined}"
        lost = (
            f"SELECT unnest([CASE WHEN s IS NULL THEN source END, CASE WHEN t IS NULL THEN target END]) FROM ({pairs})"
        )
        count = opened.one(f"SELECT count(*) FILTER (s IS NULL) + count(*) FILTER (t IS NULL) FROM ({pairs})")[0]
        if count:
            missing = opened.con.execute(f"SELECT x FROM ({lost}) lost(x) WHERE x IS NOT NULL LIMIT 3").fetchall()
            refuse_unknown(tables, count, [row[0] for row in missing] or ["none"])
        edges = opened.con.execute(f"SELECT s, t FROM ({pairs})").fetchnumpy()
    return ids, Y, np.stack([np.asarray(edges["s"], np.int64), np.asarray(edges["t"], np.int64)])


def _labels(opened: LocalTables, tables: HopTables, kind: str, n: int) -> np.ndarray:
    """Y (n, c) of the label column."""
    ordered = "FROM nodes JOIN numbered USING (id) ORDER BY row"
    if kind.endswith("]") and re.split(r"[\[(]", kind)[0] in REAL:
        lists = "SELECT label::FLOAT[] AS l FROM nodes"
        holes = "count(*) FILTER (list_contains(list_transform(l, lambda v: v IS NULL OR isnan(v)), true))"
        least, most, empty = opened.one(f"SELECT min(len(l)), max(len(l)), {holes} FROM ({lists})")
        c = list_length(tables.nodes, tables.label, least, most, empty)
        none = f"list_transform(range({c}), lambda k: 0::FLOAT)"
        rows = f"SELECT coalesce(label::FLOAT[], {none}) AS l {ordered}"
        Y = np.asarray(opened.column(f"SELECT unnest(l) FROM ({rows})"), np.float32).reshape(n, c)
        refuse_range(tables, Y.min(), Y.max())
        return Y
    if kind == "VARCHAR":
        names = (
            "SELECT label AS name, row_number() OVER (ORDER BY label) - 1 AS k FROM (SELECT DISTINCT label FROM nodes"
        )
        opened.con.execute(f"CREATE TABLE classes AS {names} WHERE label IS NOT NULL)")
        (most,) = opened.one("SELECT max(k) FROM classes")
        query = "SELECT k FROM nodes JOIN numbered USING (id) LEFT JOIN classes ON label = name ORDER BY row"
        least = None if most is None else 0
    elif kind in WHOLE:
        least, most = opened.one("SELECT min(label), max(label) FROM nodes")
        query = f"SELECT label {ordered}"
    else:
        raise refuse_type(tables.nodes, tables.label, kind, "whole numbers, strings or lists of numbers")
    c = class_count(tables.nodes, tables.label, least, most, tables.classes)
    classes = np.ma.filled(np.ma.asarray(opened.column(query)).astype(np.int64), c)
    return np.eye(c + 1, c, dtype=np.float32)[classes]


def read_texts(url: str, id: str, text: str) -> tuple[int, Iterator[tuple[np.ndarray, list[str], np.ndarray]]]:
    """n, and (ids, texts, rows) of a table in the order of the ids, ROWS at a time; a text that is null is empty."""
    opened = LocalTables()
    types = opened.open("nodes", url, {"id": id, "text": text})
    if types["text"] != "VARCHAR":
        raise refuse_type(url, text, types["text"], "strings")
    n = opened.number(url, id, types["id"])

    def lots() -> Iterator[tuple[np.ndarray, list[str], np.ndarray]]:
        with opened:
            for lo in range(0, n, ROWS):
                query = f"FROM nodes JOIN numbered USING (id) WHERE row >= {lo} AND row < {lo + ROWS} ORDER BY row"
                found = opened.con.execute(f"SELECT id, coalesce(text, '') AS text, row {query}").fetchnumpy()
                yield found["id"], [str(t) for t in found["text"]], np.asarray(found["row"], np.int64)

    return n, lots()


def write_rows(folder: Path, number: int, columns: Mapping[str, np.ndarray], values: np.ndarray | None = None) -> None:
    """One Parquet file of a folder, whole or not there: columns (m,) and `values` (m, c) as lists of float32."""
    folder.mkdir(parents=True, exist_ok=True)
    path = _part(folder, number)
    temporary = path.with_name(f".{path.name}.tmp")
    block, chosen = dict(columns), [quoted(name) for name in columns]
    if values is not None:
        block |= {f"v{k}": np.ascontiguousarray(column) for k, column in enumerate(values.T)}
        c = values.shape[1]
        chosen.append(f"[{', '.join(f'v{k}' for k in range(c))}]::FLOAT[{c}] AS values")
    with duckdb.connect() as con:
        con.register("block", block)
        select = f"SELECT {', '.join(chosen)} FROM block"
        con.execute(f"COPY ({select}) TO {literal(str(temporary))} (FORMAT parquet, COMPRESSION zstd)")
    temporary.replace(path)


def read_values(folder: Path, number: int) -> np.ndarray | None:
    """`values` (m, c) of a file that `write_rows` wrote; None where there is none."""
    path = _part(folder, number)
    if not path.is_file():
        return None
    with LocalTables() as opened:
        table = f"read_parquet({literal(str(path))})"
        (m,) = opened.one(f"SELECT count(*) FROM {table}")
        return np.asarray(opened.column(f"SELECT unnest(values) FROM {table}")).reshape(m, -1)


def weighted_sums(folder: Path, root: bool = False) -> tuple[np.ndarray, float]:
    """Sums (c,) of `values` over all rows of a folder, weighted by `degree` or its root; and the sum of the weights."""
    files = ", ".join(literal(str(path)) for path in parquet_files(str(folder)))
    weight = "sqrt(degree)" if root else "degree"
    table = f"(SELECT {weight}::DOUBLE AS w, values::FLOAT[] AS v FROM read_parquet([{files}]))"
    with LocalTables() as opened:
        (total,) = opened.one(f"SELECT coalesce(sum(w), 0) FROM {table}")
        every = f"SELECT generate_subscripts(v, 1) AS k, w * unnest(v) AS x FROM {table}"
        sums = opened.column(f"SELECT sum(x) AS s FROM ({every}) GROUP BY k ORDER BY k")
    return np.asarray(sums, np.float64), float(total)


def _part(folder: Path, number: int) -> Path:
    return folder / f"part-{number:05d}.parquet"


def complete(folder: Path) -> None:
    """Mark a folder of Parquet files as complete, as Spark does."""
    (folder / SUCCESS).touch()
