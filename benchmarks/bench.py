"""Every benchmark of speed once, in bounded time, into benchmarks/results: `make bench`.

    python benchmarks/bench.py                          # about an hour of two quiet cores
    python benchmarks/bench.py --minutes 5 --only hops-arxiv,gnn-train --results /tmp/new
    python benchmarks/compare.py benchmarks/results /tmp/new

Each is a process of its own with `--minutes` at most; what takes longer, or lacks its data, is told and leaves the old
result. A result gets an account beside it: command, seconds, machine, versions, load before and after.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COMMANDS = {  # result: script and options
    "hops-arxiv": "hops.py --shape arxiv",
    "hops-products": "hops.py --shape products --rounds 3",
    "hops-proteins": "hops.py --shape proteins --rounds 3",
    "gnn-epoch": "gnn_epoch.py",
    "gnn-train": "gnn_train.py --gnns sagn,gamlp,gcn --rounds 3",
    "rows": "rows.py",
    "encoder-planted": "encoder.py --data planted --nodes 512 --layers 2 --rounds 3",
    "export": "encoder.py --data planted --nodes 600 --layers 2 --export",
    "sampling": "sampling.py",
    "journey": "journey.py",
    "scale": "scale.py",
}
PACKAGES = ("torch", "torch_geometric", "numpy", "numba", "scipy", "transformers", "sentence-transformers", "duckdb")


def machine() -> dict[str, Any]:
    """What the numbers depend on: processor, cores, memory, versions, load."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": cores,
        "memory_mib": memory,
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "versions": versions,
    }


def run(name: str, command: str, minutes: float, results: Path) -> str:
    """One benchmark into its file; what became of it."""
    script, *options = command.split()
    load, start = os.getloadavg(), time.perf_counter()
    whole = [sys.executable, str(HERE / script), *options, "--json"]
    try:
        done = subprocess.run(whole, capture_output=True, text=True, check=False, timeout=60 * minutes)
    except subprocess.TimeoutExpired:
        return f"not finished in {minutes:g} minutes"
    seconds = time.perf_counter() - start
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return f"failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}"
    account = {"command": command, "seconds": round(seconds, 1), "load": {"before": load, "after": os.getloadavg()}}
    found = json.loads(lines[-1]) | {"account": account | machine()}
    path = results / f"{name}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(found) + "\n")
    temporary.replace(path)
    return f"{seconds:.0f} s"


def main() -> None:
    """Parse, run all, say what became of each; exit code 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="for each benchmark")
    parser.add_argument("--only", help="names, with commas between them")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    args = parser.parse_args()
    args.results.mkdir(parents=True, exist_ok=True)
    chosen = args.only.split(",") if args.only else list(COMMANDS)
    if unknown := [name for name in chosen if name not in COMMANDS]:
        sys.exit(f"--only {', '.join(unknown)}: unknown; known: {', '.join(COMMANDS)}")
    failed = []
    for name in chosen:
        told = run(name, COMMANDS[name], args.minutes, args.results)
        print(f"{name:18} {told}", flush=True)
        failed += [name] if told.startswith("failed") else []
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
