"""Batches of hop features from disk (GAMLP, SAGN) against a plain sequential read of the same bytes.

    python benchmarks/rows.py                       # 1,000,000 nodes, 4 hops of 128 float16 features: 1 GB
    python benchmarks/rows.py --nodes 2449029 --width 384 --json

An epoch over 8% of the nodes (train nodes of ogbn-products) and one over all of them, in batches of 50,000 random rows,
through the feed that training uses, against reading as many bytes of the file from its start. `cold` drops the file
from the page cache first (posix_fadvise), `warm` does not. A share of 1 is the speed of the sequential read.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.training.feed import RowFeed

HOPS, BATCH = 3, 50_000


def drop(path: Path) -> None:
    """Take a file out of the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_whole(path: Path, size: int) -> None:
    """The first `size` bytes in large pieces."""
    buffer = bytearray(1 << 24)
    with path.open("rb", buffering=0) as file:
        while size > 0:
            size -= file.readinto(buffer) or size


def seconds(work: Callable[[], Any]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Write the file, read it both ways, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", type=Path, help="where the file goes; default the system's temporary folder")
    parser.add_argument("--json", action="store_true", help="one JSON line")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(dir=args.scratch) as name:
        path = Path(name) / "rows.npy"
        shape = (args.nodes, HOPS + 1, args.width)
        rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=shape)
        for lo in range(0, args.nodes, 1 << 16):
            rows[lo : lo + (1 << 16)] = rng.random(rows[lo : lo + (1 << 16)].shape, np.float32)
        rows.flush()
        none = Adjacency.from_edges(np.zeros((2, 0), np.int64), 1)
        feed = RowFeed(np.zeros((1, 1), np.float16), none, 0, BATCH, Path(name), torch.device("cpu"))
        feed.rows = np.load(path, mmap_mode="r")
        result: dict[str, Any] = {"file_mib": path.stat().st_size / 2**20, "raw": {}}
        for part, share in (("train nodes", 0.08), ("all nodes", 1.0)):
            nodes = np.sort(rng.choice(args.nodes, int(share * args.nodes), replace=False))
            size = len(nodes) * rows[0].nbytes

            def epoch(nodes: np.ndarray = nodes) -> None:
                for _ in feed.batches(nodes, np.random.default_rng(0)):
                    pass

            for state in ("cold", "warm"):
                times: dict[str, list[float]] = {"feed": [], "sequential": []}
                for _ in range(args.rounds):
                    for kind, work in (("feed", epoch), ("sequential", lambda size=size: read_whole(path, size))):
                        if state == "cold":
                            feed.rows = np.load(path, mmap_mode="r")  # pages that are mapped stay
                            drop(path)
                        times[kind].append(seconds(work))
                best = {kind: min(t) for kind, t in times.items()}
                key = f"{part}, {state}"
                result[key] = {"share": best["sequential"] / best["feed"], "gb_per_second": size / best["feed"] / 1e9}
                result["raw"][key] = times
    if args.json:
        print(json.dumps(result))
        return
    for key, value in result.items():
        if isinstance(value, dict) and key != "raw":
            print(f"{key:18} {value['gb_per_second']:.2f} GB/s, {value['share']:.2f} of a sequential read")


if __name__ == "__main__":
    main()
