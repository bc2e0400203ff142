"""Hop labels K_{i+1} = D^-1 A K_i against torch CSR, PyG's spmm and scipy, and against the load-only bound.

    python benchmarks/hops.py --shape arxiv            # or products, proteins
    python benchmarks/hops.py --shape products --json
    python benchmarks/hops.py --shape products --disk  # five hops to disk in blocks: peak memory
    python benchmarks/hops.py --shape products --features 384  # three hops of float16 features to disk (GAMLP, SAGN)
    python benchmarks/hops.py --shape products --order         # what the best order of rows could bring
    python benchmarks/hops.py --columns 64,384,768             # wide rows in every type, against their bounds

Graphs are synthetic with the node, edge and class counts of the OGB ones: power-law degrees, 75% of edges inside
communities, shuffled ids. Rounds are interleaved in one process on the same data; ratios are of the minimum CPU time
(user + system of all threads) and of the minimum wall time. `bound` runs the same loop over the same indices and only
loads the rows: no kernel with this access pattern can be faster. `counted` is hop 1 straight from integer labels.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch

from labeldeconv.labels.hops import write_hop_labels
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.fixed_point import dequantize, quantize
from labeldeconv.propagation.kernel.csr import build_csr
from labeldeconv.propagation.kernel.gather import count_classes, gather, padded, row_reducer
from labeldeconv.propagation.outofcore import write_hops
from labeldeconv.stages.memory import peak_memory_mib

SHAPES = {
    "arxiv": (169_343, 1_157_799, 40),
    "products": (2_449_029, 61_859_140, 47),
    "proteins": (132_534, 39_561_252, 112),
}
_load_row = row_reducer("or")


@numba.njit(nogil=True)
def _load_rows(indptr, edges, x, out, indices, stride, out_stride, scale, form, lo, hi):
    for i in range(lo, hi):
        row = out + np.uint64(i) * out_stride
        _load_row(x, indices, indptr[i], indptr[i + 1], edges - 1, stride, scale[i], row, form)


def make_edges(n: int, e: int, seed: int = 0) -> np.ndarray:
    """(2, e) int32: sources by a power law, 75% of targets near them in a hidden order, the others anywhere."""
    return edges_and_order(n, e, seed)[0]


def edges_and_order(n: int, e: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The same and the hidden order (n,), of which neighbours stand near each other."""
    rng = np.random.default_rng(seed)
    ends = np.cumsum(rng.pareto(2.0, n) + 1)
    order = rng.permutation(n).astype(np.int32)
    out = np.empty((2, e), np.int32)
    for lo in range(0, e, 1 << 22):
        size = min(1 << 22, e - lo)
        place = np.searchsorted(ends, rng.random(size) * ends[-1]).clip(0, n - 1)
        near = np.clip(place + rng.integers(-500, 500, size), 0, n - 1)
        out[0, lo : lo + size] = order[place]
        out[1, lo : lo + size] = order[np.where(rng.random(size) < 0.75, near, rng.integers(0, n, size))]
    return out, order


def measure(work: Callable[[], Any]) -> dict[str, float]:
    """CPU, user and wall seconds of one call."""
    gc.collect()
    user, cpu, wall = resource.getrusage(resource.RUSAGE_SELF).ru_utime, time.process_time(), time.perf_counter()
    work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu": cpu, "user": resource.getrusage(resource.RUSAGE_SELF).ru_utime - user, "wall": wall}


def interleaved(works: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[dict[str, float]]]:
    """Every work once to warm up, then `rounds` times in turn."""
    for work in works.values():
        work()
    out: dict[str, list[dict[str, float]]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            out[name].append(measure(work))
    return out


def summary(runs: dict[str, list[dict[str, float]]], clock: str) -> dict[str, dict[str, float]]:
    """Minimum and median of a clock."""
    times = {name: [r[clock] for r in rows] for name, rows in runs.items()}
    return {name: {"min": min(t), "median": float(np.median(t))} for name, t in times.items()}


def run(shape: str, rounds: int) -> dict[str, Any]:
    """All ratios of one shape."""
    import scipy  # here, since the process that measures memory needs no peers
    import torch_geometric
    from torch_geometric.utils import spmm

    n, e, c = SHAPES[shape]
    edges = make_edges(n, e)

    def scipy_csr() -> Any:
        rows, cols = np.concatenate([edges[1], edges[0]]), np.concatenate([edges[0], edges[1]])
        ones = np.ones(len(rows), np.float32)
        return scipy.sparse.coo_matrix((ones, (rows, cols)), shape=(n, n)).tocsr()

    builds = {"own": lambda: build_csr(edges[1], edges[0], n, both_ways=True), "scipy": scipy_csr}
    csr = interleaved(builds, min(rounds, 3))

    adj = Adjacency.from_edges(edges, n)
    indptr, indices, left = adj.indptr, adj.indices, adj.left
    assert left is not None
    rng = np.random.default_rng(0)
    classes = rng.integers(0, c, n)
    Y = rng.random((n, c), dtype=np.float32)
    x, u, hot = padded(n, c, np.float32), padded(n, c, np.uint16), padded(n, c, np.float32)
    x[:], u[:] = Y, quantize(Y)
    hot[:] = np.eye(c, dtype=np.float32)[classes]
    values = np.repeat(left, np.diff(indptr))
    warnings.filterwarnings("ignore", message="Sparse")
    T = torch.sparse_csr_tensor(
        torch.from_numpy(indptr), torch.from_numpy(indices.astype(np.int64)), torch.from_numpy(values), size=(n, n)
    )
    S = scipy.sparse.csr_matrix((values, indices, indptr.astype(np.int32)), shape=(n, n))
    dense = torch.from_numpy(Y)
    works: dict[str, Callable[[], Any]] = {
        "own_float32": lambda: gather(indptr, indices, left, x),
        "torch_csr": lambda: T @ dense,
        "own_uint16": lambda: gather(indptr, indices, left, u),
        "pyg_spmm": lambda: spmm(T, dense),
        "counted": lambda: count_classes(indptr, indices, left, classes, hot),
        "scipy": lambda: S @ Y,
        "bound": lambda: gather(indptr, indices, left, x, _load_rows),
        "bound_uint16": lambda: gather(indptr, indices, left, u, _load_rows),
    }
    reference = (S.astype(np.float64)[:1000] @ Y.astype(np.float64)) if n > 1000 else S @ Y
    errors = {
        "float32": float(np.abs(works["own_float32"]()[:1000] - reference).max()),
        "uint16": float(np.abs(dequantize(works["own_uint16"]()[:1000]) - reference).max()),
    }
    runs = interleaved(works, rounds)
    report: dict[str, Any] = {"shape": shape, "nodes": n, "entries": len(indices), "columns": c, "errors": errors}
    for clock in ("cpu", "wall"):
        t = summary(runs, clock)
        b = summary(csr, clock)
        own, small = t["own_float32"]["min"], t["own_uint16"]["min"]
        report[clock] = {
            "ratio_torch_csr": t["torch_csr"]["min"] / own,
            "ratio_pyg_spmm": t["pyg_spmm"]["min"] / own,
            "ratio_scipy": t["scipy"]["min"] / own,
            "ratio_torch_csr_uint16": t["torch_csr"]["min"] / small,
            "ratio_pyg_spmm_uint16": t["pyg_spmm"]["min"] / small,
            "ratio_torch_csr_counted": t["torch_csr"]["min"] / t["counted"]["min"],
            "bound_share": t["bound"]["min"] / own,
            "bound_share_uint16": t["bound_uint16"]["min"] / small,
            "bound_over_torch_csr": t["torch_csr"]["min"] / t["bound"]["min"],
            "ratio_csr_scipy": b["scipy"]["min"] / b["own"]["min"],
        }
    names = ("ratio_torch_csr", "ratio_pyg_spmm", "ratio_scipy", "bound_share")
    versions = {m.__name__: m.__version__ for m in (torch, torch_geometric, scipy, numba)}
    return {
        **{k: report["cpu"][k] for k in names},
        **report,
        "threads": torch.get_num_threads(),
        "versions": versions,
        "raw": {**runs, **{f"csr_{k}": v for k, v in csr.items()}},
    }


def ordered(shape: str, rounds: int) -> dict[str, Any]:
    """CPU seconds of a hop in the ids given and in the hidden order, and of building A-hat once more in that order.

    No order that has to be found can be better than the one by which the edges were drawn.
    """
    n, e, c = SHAPES[shape]
    edges, order = edges_and_order(n, e)
    place = np.empty(n, np.int32)
    place[order] = np.arange(n, dtype=np.int32)
    Y = np.random.default_rng(0).random((n, c), dtype=np.float32)
    hidden: list[Adjacency] = []
    again = measure(lambda: hidden.append(Adjacency.from_edges(place[edges], n)))
    works = {}
    for name, adj in {"given": Adjacency.from_edges(edges, n), "hidden": hidden[0]}.items():
        for dtype in (np.float32, np.uint16):
            x = padded(n, c, dtype)
            x[:] = Y if dtype == np.float32 else quantize(Y)
            works[f"{name}_{np.dtype(dtype)}"] = lambda adj=adj, x=x: adj @ x
    times = {name: t["min"] for name, t in summary(interleaved(works, rounds), "cpu").items()}
    found: dict[str, Any] = {"shape": shape, "columns": c, "adjacency_again_cpu": again["cpu"]}
    for kind in ("float32", "uint16"):
        given, best = times[f"given_{kind}"], times[f"hidden_{kind}"]
        found[f"gain_{kind}"] = given / best
        found[f"hops_until_it_pays_{kind}"] = again["cpu"] / (given - best) if given > best else None
    return {**found, "cpu": times}


def wide(shape: str, columns: list[int], rounds: int) -> dict[str, Any]:
    """A hop of rows of so many columns in every type: share of the load-only bound, and times as fast as torch's CSR.

    Of user time: whoever allocates after another has freed gets its pages sooner, or later, from the system.
    """
    n, e, _ = SHAPES[shape]
    adj = Adjacency.from_edges(make_edges(n, e), n)
    indptr, indices, left = adj.indptr, adj.indices, adj.left
    matrix = adj.on(torch.device("cpu"))
    rows = []
    for d in columns:
        values = np.random.default_rng(0).random((n, d), dtype=np.float32)
        dense = torch.from_numpy(values)
        works: dict[str, Callable[[], Any]] = {"torch_csr": lambda dense=dense: matrix @ dense}
        for dtype in (np.float32, np.float16, np.uint16):
            x, name = padded(n, d, dtype), np.dtype(dtype).name
            x[:] = quantize(values) if dtype == np.uint16 else values
            works[name] = lambda x=x: gather(indptr, indices, left, x)
            works[f"bound_{name}"] = lambda x=x: gather(indptr, indices, left, x, _load_rows)
        runs = interleaved(works, rounds)
        t = {name: float(np.median([r["user"] for r in times])) for name, times in runs.items()}
        row: dict[str, Any] = {"columns": d, "user": t}
        for name in ("float32", "float16", "uint16"):
            row[name] = {"bound_share": t[f"bound_{name}"] / t[name], "ratio_torch_csr": t["torch_csr"] / t[name]}
        rows.append(row)
    return {"shape": shape, "threads": torch.get_num_threads(), "rows": rows}


def disk(shape: str, hops: int, features: int) -> dict[str, Any]:
    """Peak memory of `hops` hops from CSR and labels (or features) on disk to disk, in a process of its own."""
    n, e, c = SHAPES[shape]
    width, dtype = (features, np.float16) if features else (c, np.float32)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        adj = Adjacency.from_edges(make_edges(n, e), n)
        for part in ("indptr", "indices", "left"):
            np.save(folder / f"{part}.npy", getattr(adj, part))
        x = np.lib.format.open_memmap(folder / "x.npy", mode="w+", dtype=dtype, shape=(n, width))
        for lo in range(0, n, 1 << 18):
            rng, rows = np.random.default_rng(lo), min(1 << 18, n - lo)
            x[lo : lo + rows] = rng.random((rows, width), np.float32) if features else rng.dirichlet(np.ones(c), rows)
        x.flush()
        del adj, x
        command = [sys.executable, __file__, "--folder", name, "--hops", str(hops), "--features", str(features)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return {"shape": shape, "columns": width, **json.loads(done.stdout)}


def hops_on_disk(folder: Path, hops: int, features: int) -> dict[str, Any]:
    """The process that `disk` measures; rows of the last hop are checked against the hop before, in float64."""
    parts = {part: np.load(folder / f"{part}.npy", mmap_mode="r") for part in ("indptr", "indices", "left")}
    adj = Adjacency(parts["indptr"], parts["indices"], parts["left"], None, True)
    x, path = np.load(folder / "x.npy", mmap_mode="r"), folder / "out.npy"
    before = peak_memory_mib()
    if features:
        out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(len(x), hops + 1, features))
        taken = measure(lambda: write_hops(adj, x, hops, out, folder))
        out.flush()
    else:
        taken = measure(lambda: write_hop_labels(adj, x, hops, path))
    result = {"hops": hops, "peak_mib": peak_memory_mib(), "at_start_mib": before, **taken}
    return {
        **result,
        "file_mib": path.stat().st_size / 2**20,
        "error": _error_on_disk(adj, np.load(path, mmap_mode="r")),
    }


def _error_on_disk(adj: Adjacency, K: np.ndarray) -> float:
    """Largest difference of 100 rows of the last hop from the mean of their neighbours' rows of the hop before."""
    worst = 0.0
    for i in np.linspace(0, len(K) - 1, 100).astype(int):
        near = np.sort(adj.indices[adj.indptr[i] : adj.indptr[i + 1]])
        expected = dequantize(K[near, -2]).astype(np.float64).mean(0)
        worst = max(worst, float(np.abs(dequantize(K[i, -1]) - expected).max()))
    return worst


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=[*SHAPES], default="arxiv")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--disk", action="store_true", help="peak memory of five hops to disk")
    parser.add_argument("--features", type=int, default=0, help="peak memory of three hops of that many features")
    parser.add_argument("--order", action="store_true", help="hops in the ids given against the best order")
    parser.add_argument("--columns", help="comma-separated widths: a hop of wide rows in every type")
    parser.add_argument("--json", action="store_true", help="one JSON line")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--hops", type=int, help="of --disk (5) and --features (3)")
    args = parser.parse_args()
    if args.folder:
        print(json.dumps(hops_on_disk(args.folder, args.hops, args.features)))
        return
    if args.columns:
        print(json.dumps(wide(args.shape, list(map(int, args.columns.split(","))), args.rounds)))
        return
    if args.order:
        print(json.dumps(ordered(args.shape, args.rounds)))
        return
    to_disk = args.disk or args.features
    hops = args.hops or (3 if args.features else 5)
    result = disk(args.shape, hops, args.features) if to_disk else run(args.shape, args.rounds)
    if args.json or to_disk:
        print(json.dumps(result))
        return
    print(f"{args.shape}: {result['nodes']:,} nodes, {result['entries']:,} entries, {result['columns']} columns")
    for name, cpu in result["cpu"].items():
        print(f"  {name:26} cpu {cpu:6.2f}   wall {result['wall'][name]:6.2f}")
    print(
        f"  largest error of a hop: float32 {result['errors']['float32']:.1e}, uint16 {result['errors']['uint16']:.1e}"
    )


if __name__ == "__main__":
    main()
