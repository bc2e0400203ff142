"""Hop labels of a graph in Parquet tables, by our own propagation or by Spark: K_0..K_N as Parquet and as K.npy.

    labeldeconv hops --nodes nodes.parquet --edges edges.parquet --hops 4 --out K

The engine 'local' holds A-hat and one hop in memory; 'spark' holds a block of nodes in each worker.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from labeldeconv.errors import ConfigError, DataError
from labeldeconv.labels.hops import write_hop_labels
from labeldeconv.lake.parquet import ROWS, complete, read_graph, write_rows
from labeldeconv.lake.tables import ASKED, DONE, WORK, Cluster, HopTables, path_of, refuse_other
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.fixed_point import dequantize, quantize
from labeldeconv.stages.files import map_array, write_json

ENGINES = ("local", "spark")
STORE = "K.npy"


def hops_of_tables(
    tables: HopTables, out: str, engine: str = "local", cluster: Cluster | None = None
) -> dict[str, Any]:
    """Write K_0.parquet ... K_N.parquet and K.npy (n, N + 1, c) into the folder `out`; returns what hops.json says.

    K.npy is in the order of sorted ids, float32 or uint16 fixed point (`tables.store`); Spark writes it only where
    `out` is a folder of this machine. A folder that is complete already is left as it is; one of Spark's goes on.
    """
    if engine not in ENGINES:
        raise ConfigError(f"--engine {engine}: one of {', '.join(ENGINES)} expected")
    if not 0 <= tables.hops <= 1000:
        raise ConfigError(f"--hops {tables.hops}: 0 to 1000 expected")
    folder = path_of(out)
    if folder is not None and (folder / DONE).is_file():
        refuse_other(out, (folder / ASKED).read_text(encoding="utf-8"), tables.question())
        return json.loads((folder / DONE).read_text(encoding="utf-8"))
    if engine == "local":
        if folder is None:
            raise DataError(f"{out}: a folder of this machine expected; `--engine spark` writes elsewhere")
        return _local(tables, folder)
    from labeldeconv.lake.spark import spark_hops

    told, parts = spark_hops(tables, out, cluster or Cluster())
    if folder is not None:
        _store(tables, folder, told, parts)
        write_json(folder / DONE, told)
        shutil.rmtree(folder / WORK, ignore_errors=True)
    return told


def _local(tables: HopTables, folder: Path) -> dict[str, Any]:
    """The engine 'local': A-hat and one hop in memory, K on disk."""
    start = time.perf_counter()
    question = tables.question()
    if (folder / ASKED).is_file():
        refuse_other(str(folder), (folder / ASKED).read_text(encoding="utf-8"), question)
    ids, Y, edges = read_graph(tables)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / ASKED, question)
    read = time.perf_counter()
    adj = Adjacency.from_edges(edges[::-1] if tables.backward else edges, len(ids), tables.adjacency)
    K = write_hop_labels(adj, Y, tables.hops, folder / STORE, tables.store)
    made = time.perf_counter()
    degree = np.diff(adj.indptr)
    for hop in range(tables.hops + 1):
        part = folder / f"K_{hop}.parquet"
        shutil.rmtree(part, ignore_errors=True)
        for number, lo in enumerate(range(0, len(ids), ROWS)):
            rows = np.arange(lo, min(lo + ROWS, len(ids)))
            columns = {"id": ids[rows], "row": rows, "degree": degree[rows]}
            write_rows(part, number, columns, dequantize(K[rows, hop]))
        complete(part)
    told = {
        "engine": "local",
        "nodes": len(ids),
        "entries": len(adj.indices),
        "classes": Y.shape[1],
        "hops": tables.hops,
        "store": str(K.dtype),
        "seconds": {"read": read - start, "hops": made - read, "write": time.perf_counter() - made},
    }
    write_json(folder / DONE, told)
    return told


def _store(tables: HopTables, folder: Path, told: dict[str, Any], parts: Any) -> None:
    """K.npy from the rows that Spark has written: (hop, rows (m,), values (m, c)), in any order."""
    dtype = np.uint16 if tables.fixed else np.float32
    temporary = folder / f"{STORE}.tmp.npy"
    K = map_array(temporary, (told["nodes"], tables.hops + 1, told["classes"]), dtype)
    for hop, rows, values in parts:
        K[rows, hop] = quantize(values) if tables.fixed else values
    K.flush()
    temporary.replace(folder / STORE)
    told["store"] = str(K.dtype)
