"""Counters of a server in Prometheus' text format, summed over its processes: workers, and a dispatcher before them.

Every process keeps its numbers in a memory-mapped file of its own in one folder; whichever is asked reads all of
them. The file of a worker that died stays: counters never fall. What is in flight there does not count any more.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from time import time

import numpy as np

ROUTES = (
    "/", "/predict", "/explain", "/nodes", "/run", "/health", "/ready", "/metrics", "/openapi.json", "/docs", "other",
)  # fmt: skip
STATUSES = (200, 304, 400, 401, 404, 405, 408, 413, 421, 422, 429, 500, 503, 0)  # 0 is any other
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, float("inf"))  # seconds
NUMBERS = (
    "seconds",
    "in_flight",
    "batches",
    "batched_requests",
    "batched_tokens",
    "nodes_gnn",
    "nodes_psi",
    "start",
    "predicts",
)
PLACE = {name: i for i, name in enumerate(NUMBERS)}
REQUESTS = len(NUMBERS)
HISTOGRAM = REQUESTS + len(ROUTES) * len(STATUSES)
WIDTH = HISTOGRAM + len(BUCKETS)
KINDS = {  # name in the text: type, help
    "requests_total": ("counter", "Answered requests."),
    "predict_seconds": ("histogram", "Seconds from a request to its answer, of /predict."),
    "in_flight": ("gauge", "Requests taken and not answered yet."),
    "batches_total": ("counter", "Batches that went through the encoder."),
    "batched_requests_total": ("counter", "Requests in these batches."),
    "batched_tokens_total": ("counter", "Tokens in these batches."),
    "nodes_total": ("counter", "Predicted nodes, by what predicted them."),
    "workers": ("gauge", "Workers that are alive."),
    "resident_bytes": ("gauge", "Resident memory of the processes that are alive; shared pages count in each."),
    "start_time_seconds": ("gauge", "When the oldest process that is alive started."),
}


class Counters:
    """The numbers of this process in `folder`/PID.f64; without a folder, in one that ends with it.

    A process that only hands requests on does not predict, and is no worker.
    """

    def __init__(self, folder: Path | None, predicts: bool = True) -> None:
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="labeldeconv-serve-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.folder = folder
        path = folder / f"{os.getpid()}.f64"
        self._values = np.memmap(path, np.float64, "w+", shape=(WIDTH,))
        self.add("start", time())
        self.add("predicts", predicts)

    def add(self, name: str, amount: float = 1) -> None:
        """Add to one of `NUMBERS`."""
        self._values[PLACE[name]] += amount

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        place = ROUTES.index(route) if route in ROUTES else len(ROUTES) - 1
        kind = STATUSES.index(status) if status in STATUSES else len(STATUSES) - 1
        self._values[REQUESTS + place * len(STATUSES) + kind] += 1
        if route == "/predict":
            self.add("seconds", seconds)
            self._values[HISTOGRAM + next(i for i, most in enumerate(BUCKETS) if seconds <= most)] += 1

    def batch(self, requests: int, tokens: int) -> None:
        """Count a batch."""
        for name, amount in (("batches", 1), ("batched_requests", requests), ("batched_tokens", tokens)):
            self.add(name, amount)

    @property
    def in_flight(self) -> int:
        """Requests that this process has taken and not answered yet."""
        return int(self._values[PLACE["in_flight"]])

    def text(self) -> str:
        """All workers' numbers, in Prometheus' text format."""
        total, living = np.zeros(WIDTH), []
        for path in sorted(self.folder.glob("*.f64")):
            values = np.fromfile(path, np.float64)
            if len(values) != WIDTH:  # of a worker that is just starting
                continue
            total += values
            if _resident(int(path.stem)) is not None:
                living.append((int(path.stem), values))
        lines = []
        for name, (kind, told) in KINDS.items():
            lines += [f"# HELP labeldeconv_{name} {told}", f"# TYPE labeldeconv_{name} {kind}"]
            lines += [f"labeldeconv_{name}{rest}" for rest in _samples(name, total, living)]
        return "\n".join(lines) + "\n"


def _samples(name: str, total: np.ndarray, living: list[tuple[int, np.ndarray]]) -> Iterator[str]:
    """Labels and value of every sample of a metric."""
    if name == "requests_total":
        for place in np.flatnonzero(total[REQUESTS:HISTOGRAM]):
            route, status = ROUTES[place // len(STATUSES)], STATUSES[place % len(STATUSES)]
            yield f'{{path="{route}",status="{status or "other"}"}} {_number(total[REQUESTS + place])}'
    elif name == "predict_seconds":
        counts = np.cumsum(total[HISTOGRAM:])
        for most, count in zip(BUCKETS, counts, strict=True):
            yield f'_bucket{{le="{"+Inf" if most == float("inf") else most}"}} {_number(count)}'
        yield f"_sum {_number(total[PLACE['seconds']])}"
        yield f"_count {_number(counts[-1])}"
    elif name == "nodes_total":
        for by in ("gnn", "psi"):
            yield f'{{by="{by}"}} {_number(total[PLACE[f"nodes_{by}"]])}'
    elif name == "in_flight":
        yield f" {_number(sum(values[PLACE['in_flight']] for _, values in living))}"
    elif name == "workers":
        yield f" {_number(sum(values[PLACE['predicts']] for _, values in living))}"
    elif name == "resident_bytes":
        yield f" {sum(_resident(pid) or 0 for pid, _ in living)}"
    elif name == "start_time_seconds":
        yield f" {_number(min((values[PLACE['start']] for _, values in living), default=0))}"
    else:
        yield f" {_number(total[PLACE[name.removesuffix('_total')]])}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _resident(pid: int) -> int | None:
    """Bytes of resident memory of a process; None where it has ended, 0 where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") or None  # a zombie has none
    except (OSError, ValueError, IndexError):
        pass
    if Path("/proc/self/statm").exists():
        return None
    try:
        os.kill(pid, 0)
    except OSError:
        return None
    return 0
