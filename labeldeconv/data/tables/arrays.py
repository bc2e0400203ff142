"""From duckdb tables to the arrays of a graph: node numbers, edges, texts and features.

Joins lose the order of rows, so they carry the row number and numpy puts each result in its place; plain scans keep it.
"""

from __future__ import annotations

from pathlib import Path
from string import Formatter

import numpy as np

from labeldeconv.data.findings import Findings
from labeldeconv.data.tables.rows import Table
from labeldeconv.data.tables.scan import TableFile
from labeldeconv.errors import DataError
from labeldeconv.graph.npy import open_npy
from labeldeconv.graph.texts import Texts
from labeldeconv.graph.validation import infinite_cells
from labeldeconv.sql import literal, quoted

TEXT_ROWS = 1 << 16  # strings alive in Python at a time
EDGE_ROWS = 1 << 24  # joined edges held twice at a time
INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}


def id_sql(file: TableFile, column: str) -> str:
    """SQL for a node id: BIGINT where the column is of integers, else text."""
    return f"{quoted(column)}::BIGINT" if file.columns[column] in INTEGERS else file.cell(column)


def text_sql(file: TableFile, columns: list[str], join: str, record: bool = False) -> str:
    """SQL for the text of a node: filled columns with `join` between them, or in the template `join`.

    A `record` is a JSON object of all columns, null where a cell is empty.
    """
    cells = {column: file.cell(column) for column in columns}
    if record:
        return f"json_object({', '.join(f'{literal(name)}, {cell}' for name, cell in cells.items())})::VARCHAR"
    if not any(name for _, name, _, _ in Formatter().parse(join)):
        return f"concat_ws({literal(join)}, {', '.join(cells.values())})"
    parts = []
    for text, name, _, _ in Formatter().parse(join):
        parts += [literal(text)] + ([f"coalesce({cells[name]}, '')"] if name else [])
    return f"CASE WHEN coalesce({', '.join(cells.values())}) IS NULL THEN '' ELSE {' || '.join(parts)} END"


def number_sql(column: str) -> str:
    """SQL for a feature: NaN where the cell is no number."""
    return f"coalesce(TRY_CAST({quoted(column)} AS FLOAT), 'nan'::FLOAT)"


def index_ids(nodes: Table) -> bool:
    """Make the table `ids` (id, node, last, copies); whether all ids are integers, as numbers or as text."""
    integer = _type(nodes, "id") == "BIGINT"
    if not integer:
        given, whole = nodes.con.execute(f"SELECT count(id), count({_integer('id')}) FROM {nodes.name}").fetchone()
        integer = given == whole
    key = f"({_key(nodes, 'id', integer)})"
    nodes.con.execute(
        f"CREATE TABLE ids AS SELECT {key} AS id, min(rowid)::INTEGER AS node, max(rowid) AS last, count(*) AS copies"
        f" FROM {nodes.name} WHERE id IS NOT NULL GROUP BY {key}"
    )
    return integer


def read_edges(edges: Table, integer: bool) -> np.ndarray:
    """Edges (2, e) as node numbers in the order of the file; -1 where the table `ids` lacks an id."""
    out = np.empty((2, edges.rows), dtype=np.int32)
    source, target = (_key(edges, f"e.{side}", integer) for side in ("source", "target"))
    sql = (
        "SELECT e.rowid AS row, coalesce(s.node, -1) AS source, coalesce(t.node, -1) AS target"
        f" FROM {edges.name} e LEFT JOIN ids s ON {source} = s.id LEFT JOIN ids t ON {target} = t.id"
        " WHERE e.rowid >= ? AND e.rowid < ?"
    )
    for start in range(0, edges.rows, EDGE_ROWS):
        part = edges.fetch(sql, [start, start + EDGE_ROWS])
        out[0, part["row"]] = part["source"]
        out[1, part["row"]] = part["target"]
    return out


def unknown_sql(edges: Table, side: str, integer: bool) -> str:
    """SQL condition: the edge names a node that the table `ids` lacks."""
    key = _key(edges, side, integer)
    return f"{side} IS NOT NULL AND ({key} IS NULL OR {key} NOT IN (SELECT id FROM ids))"


def read_ids(nodes: Table, integer: bool) -> np.ndarray | Texts:
    """The user's ids (n,): int64, or texts."""
    if integer:
        return nodes.fetch(f"SELECT id::BIGINT AS id FROM {nodes.name}")["id"]
    return read_texts(nodes, "id")


def read_texts(table: Table, column: str) -> Texts:
    """A column without NULLs as one UTF-8 buffer, fetched in chunks."""
    buffer, offsets = bytearray(), np.zeros(table.rows + 1, dtype=np.int64)
    sql = f"SELECT {column} AS text, strlen({column}) AS bytes FROM {table.name} WHERE rowid >= ? AND rowid < ?"
    for start in range(0, table.rows, TEXT_ROWS):
        part = table.fetch(sql, [start, start + TEXT_ROWS])
        buffer += "".join(part["text"]).encode("utf-8")
        offsets[start + 1 : start + TEXT_ROWS + 1] = part["bytes"]
    return Texts(np.frombuffer(buffer, dtype=np.uint8), np.cumsum(offsets, out=offsets))


def read_numbers(table: Table, columns: list[str]) -> np.ndarray | None:
    """Table columns as float32 (rows, d); None without columns."""
    if not columns:
        return None
    out = np.empty((table.rows, len(columns)), dtype=np.float32)
    for i, column in enumerate(columns):
        out[:, i] = table.fetch(f"SELECT {column} AS value FROM {table.name}")["value"]
    return out


def read_features_file(path: Path, nodes: Table, findings: Findings) -> np.ndarray | None:
    """Features (n, d) float32 from a .npy file, memory-mapped; None, and told, if they do not fit the nodes."""
    try:
        array = open_npy(path)
    except DataError as error:
        findings.error(str(error).replace(str(path), path.name, 1))
        return None
    if array.ndim != 2 or len(array) != nodes.rows or array.dtype.kind not in "fiub":
        got = f"{array.dtype} {array.shape}"
        findings.error(f"{path.name}: numbers of shape ({nodes.rows}, d) expected, one row per node, got {got}")
        return None
    count, cells = infinite_cells(array)
    if count:
        first = ", ".join(f"row {row + 1}, column {column + 1}" for row, column in cells)
        dots = ", ..." if count > len(cells) else ""
        findings.error(
            f"{path.name}: {count} rows hold values that are not finite numbers within float32: {first}{dots}"
        )
        return None
    return array if array.dtype == np.float32 else array.astype(np.float32)


def _type(table: Table, column: str) -> str:
    return table.con.execute(f"SELECT column_type FROM (DESCRIBE SELECT {column} FROM {table.name} e)").fetchone()[0]


def _integer(column: str) -> str:
    """SQL for a text as BIGINT if it is written as one ('7', not '007', '7.0' or ' 7'), else NULL."""
    cast = f"TRY_CAST({column} AS BIGINT)"
    return f"CASE WHEN {cast}::VARCHAR = {column} THEN {cast} END"


def _key(table: Table, column: str, integer: bool) -> str:
    """SQL that makes an id comparable with the others: a BIGINT if all nodes have one, else text."""
    if _type(table, column) == "BIGINT":
        return column if integer else f"{column}::VARCHAR"
    return _integer(column) if integer else column
