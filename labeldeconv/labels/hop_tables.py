"""Hop labels of a graph in Parquet tables, by our own propagation or by Spark: K_0..K_N as Parquet and as K.npy.

    labeldeconv hops --nodes nodes.parquet --edges edges.parquet --hops 4 --out K

The engine 'local' holds A-hat and one hop in memory; 'spark' holds a block of nodes in each worker.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from labeldeconv.errors import ConfigError, DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.labels.hops import HopLabels, write_hop_labels
from labeldeconv.labels.pseudo import Labels
from labeldeconv.lake.parquet import ROWS, complete, read_graph, weighted_sums, write_rows
from labeldeconv.lake.tables import ASKED, DONE, SUCCESS, WORK, Cluster, HopTables, path_of, refuse_other
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.fixed_point import dequantize, quantize
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.stages.files import map_array, write_json
from labeldeconv.stages.keys import Idle, Reads
from labeldeconv.stages.stage import Folder, stage

TABLES = "tables"  # the folder of Y and edges as Parquet, for Spark
ENGINES = ("local", "spark")
STORE = "K.npy"
LOST = 2e-5  # share of a weighted sum that rounding may take
EDGES = 1 << 22  # of a file of edges


@stage(version=1)
def hops_by_spark(
    out: Folder,
    Y: Labels,
    graph: Annotated[AttributedGraph, Reads("edges", "num_nodes")],
    adjacency: AdjacencyConfig,
    number: int,
    store: str = "uint16",
    backward: bool = False,
    cluster: Annotated[Cluster | None, Idle] = None,
) -> HopLabels:
    """The stage `hops` (Algorithm 1, line 4) by Spark: a stage of its own, since results are equal to 1e-6 only.

    A killed attempt leaves its tables and complete hops in the stage's folder, and the next one goes on from them.
    """
    tables, made = out.path / TABLES, out.path / "K"
    if not (tables / SUCCESS).exists():
        shutil.rmtree(tables, ignore_errors=True)
        for part, lo in enumerate(range(0, graph.num_nodes, ROWS)):
            some = Y.values[lo : lo + ROWS]
            write_rows(tables / "nodes", part, {"id": np.arange(lo, lo + len(some))}, np.asarray(some, np.float32))
        for part, lo in enumerate(range(0, max(1, graph.edges.shape[1]), EDGES)):
            source, target = (np.ascontiguousarray(ends[lo : lo + EDGES], np.int64) for ends in graph.edges)
            write_rows(tables / "edges", part, {"source": source, "target": target})
        complete(tables)
    nodes, edges = str(tables / "nodes"), str(tables / "edges")
    asked = HopTables(nodes, edges, number, adjacency, store, backward, label="values")
    hops_of_tables(asked, str(made), "spark", cluster)
    (made / STORE).replace(out.path / "values.npy")
    shutil.rmtree(made)
    shutil.rmtree(tables)
    return HopLabels(np.load(out.path / "values.npy", mmap_mode="r", allow_pickle=False))


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
        check_sums(tables, folder)
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


def check_sums(tables: HopTables, folder: Path) -> None:
    """Refuse hops of which something was lost or counted twice on its way through a cluster.

    Without directions A is symmetric, so the sum of K_i over the nodes, each weighted by its degree (for a symmetric
    A-hat by the root of it), is the same for every hop.
    """
    if not tables.adjacency.undirected:
        return
    first = None
    for hop in range(tables.hops + 1):
        sums, total = weighted_sums(folder / f"K_{hop}.parquet", tables.adjacency.normalization == "symmetric")
        first = sums if first is None else first
        off = float(np.abs(sums - first).max(initial=0.0)) / max(total, 1.0)
        if off > LOST:
            raise DataError(
                f"{folder / f'K_{hop}.parquet'}: its weighted sum differs from that of K_0 by {off:.1e} of the whole, "
                f"at most {LOST:.0e} expected: rows were lost or counted twice; take --engine local or less --block-mib"
            )


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
