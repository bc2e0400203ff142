"""Load tables of the size of ogbn-products: 2.4 million nodes with texts, 62 million edges. Time and peak memory.

    python benchmarks/load.py                       # about 4 GB of temporary files, deleted at the end
    python benchmarks/load.py --nodes 240000 --edges 6200000 --format csv --peer --json

`--peer` also loads the same files the way one would with pandas (needs pandas and pyarrow): read both tables, look up
the ends of the edges in an index of the ids, factorise labels, keep the texts as a column. It checks nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb

from labeldeconv.stages.memory import peak_memory_mib

LIMIT_GIB = 6.0
WORDS = "graph node label text encoder deconvolution neighbour spectral filter hop inverse batch"


def write_tables(folder: Path, nodes: int, edges: int, suffix: str) -> float:
    """Random tables with shuffled 64-bit ids and texts of about 430 bytes; returns their size in MiB."""
    options = "FORMAT parquet" if suffix == "parquet" else "FORMAT csv, HEADER"
    scramble = "(hash({}) >> 1)::BIGINT"
    word = f"(string_split('{WORDS}', ' '))[1 + (hash(i * 64 + {{}}) % 12)::INTEGER]"
    line = " || ' ' || ".join(word.format(k) for k in range(12))
    text = f"repeat({line} || '. ', 3 + (hash(i) % 5)::INTEGER)"
    split = "CASE WHEN i % 10 < 6 THEN 'train' WHEN i % 10 < 8 THEN 'val' ELSE 'test' END"
    ends = [scramble.format(f"(hash(i * 2 + {k}) % {nodes})::BIGINT") for k in (0, 1)]
    with duckdb.connect(config={"memory_limit": "2GB", "temp_directory": str(folder / "spill")}) as con:
        con.execute(
            f"COPY (SELECT {scramble.format('i')} AS id, {text} AS text, i % 47 AS label, {split} AS split"
            f" FROM range({nodes}) t(i)) TO '{folder}/nodes.{suffix}' ({options})"
        )
        con.execute(
            f"COPY (SELECT {ends[0]} AS source, {ends[1]} AS target FROM range({edges}) t(i))"
            f" TO '{folder}/edges.{suffix}' ({options})"
        )
    return sum(path.stat().st_size for path in folder.glob(f"*.{suffix}")) / 2**20


def load_ours(folder: Path) -> dict[str, Any]:
    """`load_tables`: with all its checks."""
    from labeldeconv.data.tables.folder import load_tables

    graph = load_tables(folder).graph
    return {"nodes": graph.num_nodes, "edges": graph.num_edges, "text_mib": round(len(graph.texts.buffer) / 2**20, 1)}


def load_pandas(folder: Path) -> dict[str, Any]:
    """The plain way."""
    import numpy as np
    import pandas as pd

    read = pd.read_parquet if (folder / "nodes.parquet").exists() else pd.read_csv
    nodes, edges = (read(next(folder.glob(f"{kind}.*"))) for kind in ("nodes", "edges"))
    index = pd.Index(nodes["id"])
    ends = np.stack([index.get_indexer(edges[side]) for side in ("source", "target")])
    labels, _ = pd.factorize(nodes["label"], sort=True)
    texts = nodes["text"].tolist()
    return {"nodes": len(texts), "edges": ends.shape[1], "labels": int(labels.max()) + 1}


def measure(route: str, folder: Path) -> dict[str, Any]:
    """Run one route in a process of its own: seconds, peak memory, what it found."""
    command = [sys.executable, __file__, "--route", route, "--folder", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Generate, load, print, delete."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2_449_029)
    parser.add_argument("--edges", type=int, default=61_859_140)
    parser.add_argument("--format", choices=["parquet", "csv"], default="parquet")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--route", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.route:
        start = time.perf_counter()
        found = {"ours": load_ours, "pandas": load_pandas}[args.route](args.folder)
        seconds = round(time.perf_counter() - start, 2)
        print(json.dumps({**found, "seconds": seconds, "peak_gib": round((peak_memory_mib() or 0) / 1024, 2)}))
        return
    with tempfile.TemporaryDirectory(prefix="labeldeconv-load-") as folder:
        size = write_tables(Path(folder), args.nodes, args.edges, args.format)
        result: dict[str, Any] = {"format": args.format, "files_mib": round(size, 1)}
        result["ours"] = measure("ours", Path(folder))
        if args.peer:
            result["pandas"] = measure("pandas", Path(folder))
            result["memory_ratio"] = round(result["pandas"]["peak_gib"] / result["ours"]["peak_gib"], 2)
            result["time_ratio"] = round(result["pandas"]["seconds"] / result["ours"]["seconds"], 2)
    if args.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name}: {value}")
    if result["ours"]["peak_gib"] > LIMIT_GIB:
        sys.exit(f"peak memory above {LIMIT_GIB} GiB")


if __name__ == "__main__":
    main()
