"""Raw attributes joined to node numbers: titles and abstracts, product descriptions, protein sequences.

The published files come in another order, with more rows than there are nodes and sometimes fewer: the join is by id,
in duckdb where there are millions of rows, and what does not join is counted and named.
"""

from __future__ import annotations

import glob
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from labeldeconv.data.findings import Findings, shown
from labeldeconv.data.sets.fasta import read_fasta
from labeldeconv.data.sets.node_rows import csv_rows
from labeldeconv.data.sets.text_files import check_file, lines, open_bytes, raise_rejects, scan_sql
from labeldeconv.data.tables.arrays import read_texts
from labeldeconv.data.tables.rows import Table
from labeldeconv.data.tables.scan import first_line
from labeldeconv.errors import DataError
from labeldeconv.graph.texts import Texts
from labeldeconv.sql import literal
from labeldeconv.stages.memory_limit import spill_limit

OCTAL = re.compile(rb"[0-7]{1,11}")
TAR = 512  # bytes of a tar header, with 'ustar' at 257


def title_abstracts(path: Path, ids: Texts, findings: Findings) -> Texts:
    """Texts 'Title: ... Abstract: ...' of the papers `ids` (n) from OGB's titleabs.tsv."""
    with tempfile.TemporaryDirectory(prefix="labeldeconv-") as scratch, _connect(scratch) as con:
        check_file(path)
        plain = _without_tar(path, Path(scratch))
        columns = {"id": "VARCHAR", "title": "VARCHAR", "abstract": "VARCHAR"}
        parts = _labelled("Title", "title") + ", " + _labelled("Abstract", "abstract")
        scan = scan_sql(plain, columns, delimiter="\t")
        try:
            con.execute(f"CREATE TABLE raw AS SELECT id, concat_ws(' ', {parts}) AS text FROM {scan}")
        except duckdb.Error as error:  # line ends of two kinds, for one
            raise DataError(f"{path}: {first_line(error)}") from None
        raise_rejects(con, path)
        return _join(con, path.name, ids, "paper id", findings)


def product_texts(paths: Sequence[Path], ids: Texts, findings: Findings) -> Texts:
    """Texts 'Title: ... Content: ...' of the products `ids` (n) from the trn and tst files of Amazon-3M."""
    with tempfile.TemporaryDirectory(prefix="labeldeconv-") as scratch, _connect(scratch) as con:
        con.execute("CREATE TABLE raw (id VARCHAR, text VARCHAR)")
        parts = _labelled("Title", "title") + ", " + _labelled("Content", "content")
        for path in paths:
            check_file(path)
            columns = "{uid: 'VARCHAR', title: 'VARCHAR', content: 'VARCHAR'}"
            scan = f"read_json({literal(glob.escape(str(path)))}, format='newline_delimited', columns={columns})"
            try:
                con.execute(f"INSERT INTO raw SELECT uid, concat_ws(' ', {parts}) FROM {scan}")
            except duckdb.Error as error:
                raise DataError(_bad_json(path) or f"{path}: {first_line(error)}") from None
        return _join(con, " and ".join(path.name for path in paths), ids, "asin", findings)


def node_texts(path: Path, n: int) -> Texts:
    """The texts of all n nodes from the column `text` of a CSV file whose rows are the nodes in their order."""
    found = list[str]()
    for line, row in csv_rows(path):
        if "text" not in row:
            raise DataError(f"{path}, line 1: a column 'text' expected, got {', '.join(row)}")
        found.append(row["text"])
        if len(found) > n:
            raise DataError(f"{path}, line {line}: {n:,} rows expected, one for each node, got more")
    if len(found) < n:
        raise DataError(f"{path}: {n:,} rows expected, one for each node, got {len(found):,}")
    return Texts.from_strings(found)


def protein_sequences(path: Path, ids: Texts, findings: Findings) -> Texts:
    """Sequences of the proteins `ids` (n) from a FASTA file, cleaned as `read_fasta` says."""
    names = list(ids)
    sequences = read_fasta(path, frozenset(names))
    for change in sequences.changes():
        findings.warn(f"{path.name}: {change}")
    absent = [name for name in names if name not in sequences.by_name]
    _tell_missing(path.name, "protein id", len(names), absent, len(absent), findings)
    return Texts.from_strings(sequences.by_name.get(name, "") for name in names)


def _join(con: Any, file: str, ids: Texts, column: str, findings: Findings) -> Texts:
    """Texts in the order of `ids` from the table raw (id, text); the first of several rows with an id counts."""
    given = {"node": np.arange(len(ids)), "id": np.array(list(ids), dtype=object)}
    con.register("given", given)
    con.execute("CREATE TABLE nodes AS SELECT node, id::VARCHAR AS id FROM given")
    rows, distinct = con.execute("SELECT count(*), count(DISTINCT id) FROM raw").fetchone()
    if distinct < rows:
        findings.warn(f"{file}: {rows - distinct:,} rows repeat an id; the first one counts")
    con.execute(
        "CREATE TABLE joined AS SELECT coalesce(r.text, '') AS text, r.id IS NULL AS absent, n.id AS id FROM nodes n"
        " LEFT JOIN (SELECT id, arg_min(text, rowid) AS text FROM raw GROUP BY id) r ON n.id = r.id ORDER BY n.node"
    )
    count = con.execute("SELECT count(*) FROM joined WHERE absent").fetchone()[0]
    some = con.execute("SELECT id FROM joined WHERE absent LIMIT 6").fetchall()
    _tell_missing(file, column, len(ids), [name for (name,) in some], count, findings)
    extra = rows - (len(ids) - count)
    if extra > 0:
        findings.warn(f"{file}: {extra:,} of {rows:,} rows belong to no node and are left out")
    return read_texts(Table(con, "joined", file, len(ids)), "text")


def _tell_missing(file: str, column: str, nodes: int, some: list[str], count: int, findings: Findings) -> None:
    if count == nodes:
        findings.error(
            f"{file}: none of the {nodes:,} nodes has its {column} there, such as {shown(some)}; wrong file?"
        )
    elif count:
        findings.warn(f"{file}: {count:,} of {nodes:,} nodes have no attribute; {column} {shown(some)}")


def _labelled(name: str, column: str) -> str:
    return f"'{name}: ' || nullif(trim({column}), '')"


def _without_tar(path: Path, scratch: Path) -> Path:
    """A copy without header and padding if the table is in a tar, else the file itself.

    Others' code drops the first and last row of the published titleabs.tsv.gz as unreadable, which is what a tar looks
    like when read as a table; not seen here.
    """
    with open_bytes(path) as file:
        head = file.read(TAR)
        if head[257:262] != b"ustar":
            return path
        digits, plain = head[124:135].strip(b"\0 ") or b"0", scratch / "texts.tsv"
        if not OCTAL.fullmatch(digits):
            raise DataError(f"{path}: a broken tar: an octal size expected in its header, got {digits!r}")
        size = int(digits, 8)
        with plain.open("wb") as out:
            while size > 0 and (block := file.read(min(size, 1 << 24))):
                out.write(block)
                size -= len(block)
    return plain


def _bad_json(path: Path) -> str | None:
    """Where a file of JSON lines is broken; duckdb's own count is off by one at times."""
    for number, line in lines(path):
        try:
            if not isinstance(json.loads(line), dict):
                return f"{path}, line {number}: a JSON object expected, got '{line[:40]}'"
        except ValueError as error:
            return f"{path}, line {number}: not JSON: {error}"
    return None


def _connect(scratch: str) -> Any:
    spills = {"memory_limit": spill_limit(), "temp_directory": scratch}
    return duckdb.connect(config={**spills, "preserve_insertion_order": True})
