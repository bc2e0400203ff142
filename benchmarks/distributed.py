"""Hop labels by Spark against our own propagation: seconds, CPU seconds and bytes that move, as graphs grow.

    python benchmarks/distributed.py
    python benchmarks/distributed.py --sizes 100000,1000000,10000000 --json
    python benchmarks/distributed.py --ranks                # 1 and 2 ranks of torchrun instead: benchmarks/ranks.py

Random graphs with a tenth as many nodes as edges, targets by a power law (so there are hubs), 40 classes, two hops,
both engines from the same Parquet files to the same Parquet files and K.npy. Spark is a cluster of two worker processes
on this machine, so this says what Spark costs and how much it moves, never what a network and many machines bring. CPU
seconds count all processes: on a busy machine they are the fairer figure. The least bytes are those of one vector per
target and block of sources, which the random order of nodes makes unavoidable.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from labeldeconv.labels.hop_tables import hops_of_tables
from labeldeconv.lake.node_blocks import hub_degree
from labeldeconv.lake.spark import spark_session
from labeldeconv.lake.tables import Cluster, HopTables

CLASSES, HOPS = 40, 2
TICKS = os.sysconf("SC_CLK_TCK")


def write_graph(edges: int, folder: Path) -> tuple[HopTables, np.ndarray]:
    """Tables of a random graph with `edges` edges, and the edges (2, e)."""
    n, rng = edges // 10, np.random.default_rng(0)
    ends = np.stack([rng.integers(0, n, edges), (n * rng.random(edges) ** 3).astype(np.int64)])
    label = rng.integers(0, CLASSES, n)
    with duckdb.connect() as con:
        con.register("nodes", {"id": np.arange(n), "label": label})
        con.register("edges", {"source": ends[0].copy(), "target": ends[1].copy()})
        for name in ("nodes", "edges"):
            con.execute(f"COPY (SELECT * FROM {name}) TO '{folder}/{name}.parquet' (FORMAT parquet)")
    return HopTables(str(folder / "nodes.parquet"), str(folder / "edges.parquet"), HOPS), ends


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of all below it, the ended ones included."""
    found, total = {}, 0.0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parts = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(entry.parent.name)] = int(parts[1]), sum(map(int, parts[11:15])) / TICKS
    family = [pid]
    for each in family:
        total += found[each][1] if each in found else 0.0
        family += [child for child, (parent, _) in found.items() if parent == each]
    return total


def measure(tables: HopTables, out: Path, engine: str, cluster: Cluster) -> dict[str, Any]:
    """One engine: wall and CPU seconds of all, and what it tells of itself."""
    before, start = cpu_seconds(os.getpid()), time.perf_counter()
    told = hops_of_tables(tables, str(out), engine, cluster)
    return {"wall": time.perf_counter() - start, "cpu": cpu_seconds(os.getpid()) - before, **told}


def least_bytes(edges: np.ndarray, nodes: int, blocks: int) -> int:
    """Bytes of one vector per target and block of sources; entries of hubs stand with their targets."""
    both = np.concatenate([edges, edges[::-1]], axis=1)
    both = np.unique((both[0] * nodes + both[1])[both[0] != both[1]])
    source, target = both // nodes, both % nodes
    degree = np.bincount(source, minlength=nodes)
    home = np.where(degree[source] > hub_degree(len(source), blocks), target, source) % blocks
    return len(np.unique(target * blocks + home)) * 4 * CLASSES


def one_size(edges: int, folder: Path, cluster: Cluster) -> dict[str, Any]:
    """Both engines on one graph, their largest difference, and the bytes."""
    folder.mkdir()
    tables, ends = write_graph(edges, folder)
    found = {engine: measure(tables, folder / engine, engine, cluster) for engine in ("local", "spark")}
    K, other = (np.load(folder / engine / "K.npy", mmap_mode="r") for engine in ("local", "spark"))
    moved = found["spark"]["shuffled"]
    least = least_bytes(ends, edges // 10, found["spark"]["blocks"])
    return {
        "edges": edges,
        **found,
        "difference": float(np.abs(K - other).max()),
        "moved_per_hop": max(bytes_ for name, bytes_ in moved.items() if name.startswith("hop")),
        "least_per_hop": least,
        "wall_ratio": found["spark"]["wall"] / found["local"]["wall"],
        "cpu_ratio": found["spark"]["cpu"] / found["local"]["cpu"],
    }


def main() -> None:
    """Measure all sizes and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="100000,1000000", help="numbers of edges")
    parser.add_argument("--master", default="local-cluster[2,1,2048]")
    parser.add_argument("--memory", default="2g")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--ranks", action="store_true", help="what ranks share, by benchmarks/ranks.py and its options")
    if "--ranks" in sys.argv:
        rest = [word for word in sys.argv[1:] if word != "--ranks"]
        sys.exit(subprocess.call([sys.executable, str(Path(__file__).with_name("ranks.py")), *rest]))
    asked = parser.parse_args()
    cluster, rows = Cluster(asked.master, asked.memory), []
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with spark_session(cluster):
            started = time.perf_counter() - start
            one_size(10_000, Path(folder) / "warm", cluster)  # Java and our kernels compile
            for size in map(int, asked.sizes.split(",")):
                rows.append(one_size(size, Path(folder) / str(size), cluster))
                row = rows[-1]
                hop = row["spark"]["seconds"][f"hop {HOPS}"]
                sys.stderr.write(
                    f"{size:>11,} edges: local {row['local']['wall']:.1f} s ({row['local']['cpu']:.1f} CPU), "
                    f"spark {row['spark']['wall']:.1f} s ({row['spark']['cpu']:.1f} CPU; a hop {hop:.1f} s), "
                    f"ratio {row['cpu_ratio']:.1f} by CPU; moved per hop {row['moved_per_hop'] / 1e6:.1f} MB "
                    f"compressed, least {row['least_per_hop'] / 1e6:.1f} MB; difference {row['difference']:.1e}\n"
                )
    if asked.json:
        print(json.dumps({"session_seconds": started, "cores": os.cpu_count(), "load": os.getloadavg(), "sizes": rows}))


if __name__ == "__main__":
    main()
