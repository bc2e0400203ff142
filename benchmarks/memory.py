"""Runs under a hard limit of memory: hop labels of 5 GiB in 2 GiB, and ogbn-products' shape end to end in 4 GiB.

    python -m benchmarks.memory                        # both, a quarter of an hour or more
    python -m benchmarks.memory --only hops            # or fit; --scale 0.1 for a tenth of the nodes and edges

The child has RLIMIT_DATA set: the system gives it no more private memory than that, and an allocation beyond it fails.
That counts memory that is reserved, used or not, so it is harder than what `max_memory` promises, which is memory that
is used. Pages of mapped files are not in it, as they are nobody's. The peaks of both are read twenty times a second.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NODES, EDGES, CLASSES = 2_449_029, 61_859_140, 47  # ogbn-products
TRAIN, VAL = 0.08, 0.016  # its shares
GIB = 1 << 30

HOPS = """
import sys, numpy as np
from pathlib import Path
from labeldeconv import AttributedGraph, session, Cache
from labeldeconv.labels.hops import hops
from labeldeconv.labels.pseudo import Labels
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.stages.memory_limit import limited
from labeldeconv.stages.stage import Artefact, Folder, stage

folder, limit, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
graph = AttributedGraph.load(folder / "graph", trusted=True)


@stage(version=1)
def soft(out: Folder, n: int, c: int) -> Labels:
    Y = np.lib.format.open_memmap(out.path / "values.npy", "w+", np.float32, (n, c))
    rng = np.random.default_rng(0)
    for lo in range(0, n, 1 << 16):
        part = rng.random((min(1 << 16, n - lo), c), dtype=np.float32)
        Y[lo : lo + len(part)] = part / part.sum(1, keepdims=True)
    return Labels(Y)


with limited(limit), session(Cache(folder / "cache")):
    K = hops(soft(graph.num_nodes, graph.num_classes), graph, AdjacencyConfig(), number)
print(K.values.nbytes)
"""
GRAPH = f"""
import sys, numpy as np
from labeldeconv import AttributedGraph, Split, Texts
n, e, c = map(int, sys.argv[2:5])
rng = np.random.default_rng(0)
edges = rng.integers(0, n, (2, e), dtype=np.int64)
edges[0] = (n * rng.random(e) ** 1.5).astype(np.int64)  # some nodes have many neighbours
labels = rng.integers(0, c, n)
roles = np.searchsorted([{TRAIN}, {TRAIN} + {VAL}], rng.random(n)).astype(np.int8)
texts = Texts.from_strings(f"item {{i % 4099}} {{i % 8191}}" for i in range(n))
AttributedGraph(texts, edges, labels, Split(roles), [str(k) for k in range(c)], name="products-shape").save(sys.argv[1])
"""


def watched(command: list[str], limit: int) -> dict[str, Any]:
    """Run a command with at most `limit` bytes of private memory; its exit code, words, seconds and peaks in MiB."""
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(
            command, stdout=out, stderr=err, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        )
        peaks = {"RssAnon": 0, "VmData": 0, "VmHWM": 0}
        while child.poll() is None:
            try:
                status = Path(f"/proc/{child.pid}/status").read_text()
            except OSError:
                continue
            for name in peaks:
                found = re.search(rf"{name}:\s+(\d+)", status)
                peaks[name] = max(peaks[name], int(found[1]) // 1024 if found else 0)
            time.sleep(0.05)
        out.seek(0), err.seek(0)
        told = {"out": out.read(), "err": err.read()[-1500:]}
    return {"code": child.returncode, "seconds": round(time.monotonic() - begun, 1), "mib": peaks, **told}


def main() -> None:
    """Make the graph, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["hops", "fit"])
    parser.add_argument("--scale", type=float, default=1.0, help="of nodes and edges")
    parser.add_argument("--hops-limit", type=float, default=2.0, help="GiB")
    parser.add_argument("--fit-limit", type=float, default=4.0, help="GiB")
    parser.add_argument("--hops", type=int, default=22)
    parser.add_argument("--gnn", default="sagn")
    parser.add_argument("--folder", type=Path, help="where to work; default a temporary folder")
    args = parser.parse_args()
    n, e = int(NODES * args.scale), int(EDGES * args.scale)
    failed = False
    with tempfile.TemporaryDirectory(prefix="labeldeconv-memory-", dir=args.folder) as name:
        folder = Path(name)
        sizes = [str(folder / "graph"), str(n), str(e), str(CLASSES)]
        subprocess.run([sys.executable, "-c", GRAPH, *sizes], check=True)
        if args.only != "fit":
            words = [str(folder), f"{args.hops_limit}GiB", str(args.hops)]
            done = watched([sys.executable, "-c", HOPS, *words], int(args.hops_limit * GIB))
            size = int(done["out"] or 0) / GIB
            print(json.dumps({"hops": args.hops, "nodes": n, "edges": e, "K GiB": round(size, 2), **done}), flush=True)
            failed |= done["code"] != 0
        if args.only != "hops":
            fit = ["fit", str(folder / "graph"), "--method", "ld", "--encoder", "tiny", "--gnn", args.gnn, "--json"]
            for setting in (
                "encoder.max_tokens=16", "train.epochs=1", "train.batch_nodes=512", "labels.nodes=train",
                "gnn.epochs=2", "gnn.hidden=64", "gnn.batch_rows=20000", "gnn.eval_every=2",
            ):  # fmt: skip
                fit += ["--set", setting]
            cache = ["env", f"LABELDECONV_CACHE={folder / 'fit-cache'}", sys.executable, "-m", "labeldeconv"]
            limit = ["--max-memory", f"{args.fit_limit}GiB", "--out", str(folder / "run")]
            done = watched([*cache, *fit, *limit], int(args.fit_limit * GIB))
            result = json.loads(done.pop("out") or "{}")
            told = {key: result.get(key) for key in ("seconds", "peak_mib", "test")}
            print(json.dumps({"fit": args.gnn, "nodes": n, "edges": e, "result": told, **done}), flush=True)
            failed |= done["code"] != 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
