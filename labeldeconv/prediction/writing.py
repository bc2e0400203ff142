"""Predictions as a table: Parquet, CSV, TSV or JSON lines, complete or not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from labeldeconv.errors import DataError
from labeldeconv.sql import literal, quoted

ROWS = 1 << 14  # nodes held as wide columns at a time
OPTIONS = {
    ".parquet": "FORMAT parquet, COMPRESSION zstd",
    ".csv": "FORMAT csv, HEADER",
    ".tsv": "FORMAT csv, HEADER, DELIMITER '\t'",
    ".jsonl": "FORMAT json",
}


def check_output(out: Path) -> None:
    """Refuse a name that no format has, before anything is computed."""
    if out.suffix not in OPTIONS:
        raise DataError(f"{out}: a name that ends in {', '.join(OPTIONS)} expected")


def write_table(out: Path, columns: dict[str, Sequence[Any] | np.ndarray]) -> Path:
    """Write columns of one length: texts, numbers, lists of texts, or arrays (m, d), which become lists of floats."""
    check_output(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    rows = len(next(iter(columns.values())))
    temporary = out.with_name(f".{out.stem}.tmp{out.suffix}")
    try:
        with duckdb.connect() as con:
            for start in range(0, max(rows, 1), ROWS):
                _insert(con, {name: values[start : start + ROWS] for name, values in columns.items()}, start == 0)
            con.execute(f"COPY result TO {literal(str(temporary))} ({OPTIONS[out.suffix]})")
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
    return out


def _insert(con: Any, columns: dict[str, Any], first: bool) -> None:
    """Add some rows to the table `result`."""
    block: dict[str, np.ndarray] = {}
    select = []
    for name, values in columns.items():
        if isinstance(values, np.ndarray) and values.ndim == 2:
            width = values.shape[1]
            parts = {f"{name}_{k}": np.ascontiguousarray(column) for k, column in enumerate(values.T)}
            block |= parts
            select.append(f"[{', '.join(parts)}]::FLOAT[{width}] AS {quoted(name)}")
        elif len(values) and isinstance(values[0], list):
            block[name] = np.array([json.dumps(held, ensure_ascii=False) for held in values], dtype=object)
            select.append(f"CAST(block.{quoted(name)}::JSON AS VARCHAR[]) AS {quoted(name)}")
        else:
            block[name] = np.asarray(values, dtype=object if len(values) and isinstance(values[0], str) else None)
            select.append(f"block.{quoted(name)}")
    con.register("block", block)
    con.execute(f"{'CREATE TABLE result AS' if first else 'INSERT INTO result'} SELECT {', '.join(select)} FROM block")
    con.unregister("block")
