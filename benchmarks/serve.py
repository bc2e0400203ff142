"""`labeldeconv serve` on the loopback address: speed against one-by-one prediction, hostile load, a killed worker.

    labeldeconv fit planted --method pne --encoder minilm --gnn gcn --out runs/minilm
    python benchmarks/serve.py runs/minilm                          # 1 worker, then 2
    python benchmarks/serve.py runs/minilm --requests 10000 --clients 32 --json

Three parts, each on a fresh server:

- speed: in turns, in several rounds, one-by-one prediction in a process of its own (`Predictor.predict`, a text and
  three edges at a time) and such requests to the server by CLIENTS connections, each asking again once it is answered;
  wall is what clients wait, CPU what the processes compute, which says more on a busy machine; the clients' own CPU is
  told too, since they share the cores with the server;
- load: REQUESTS requests, a third of them bad in some way (no JSON, wrong fields, unknown ids, too large, unknown
  paths), by the same clients; counted are statuses, and the server's resident memory after a tenth and at the end;
- kill: one of two workers is killed in the middle; attempts that clients had to repeat are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

Request = tuple[str, str, bytes]
READY = 300  # seconds that a server may take to load


class Connection:
    """One keep-alive connection; a request on a connection that was closed is asked again on a new one."""

    def __init__(self, port: int) -> None:
        self.port, self.retried = port, 0
        self.reader: asyncio.StreamReader | None = None

    async def ask(self, request: Request) -> tuple[int, bytes]:
        """Status and body of the answer."""
        for _ in range(100):
            try:
                return await self._once(*request)
            except (OSError, asyncio.IncompleteReadError, ValueError):
                self.reader = None
                self.retried += 1
                await asyncio.sleep(0.02)
        raise RuntimeError("no answer in a hundred attempts")

    async def _once(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if self.reader is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        self.writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        told = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        size = re.search(r"content-length: (\d+)", told)
        answer = await self.reader.readexactly(int(size[1]) if size else 0)
        if "connection: close" in told:
            self.writer.close()
            self.reader = None
        return int(told.split(" ", 2)[1]), answer


class Server:
    """`labeldeconv serve` in a process of its own."""

    def __init__(self, run: Path, workers: int) -> None:
        options = ["--port", "0", "--workers", str(workers), "--max-concurrent", "1000"]
        command = [sys.executable, "-m", "labeldeconv", "serve", str(run), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port, left = 0, workers
        while left:
            event = json.loads(self.process.stdout.readline())
            self.port = int(event["address"].rpartition(":")[2]) if event["event"] == "bound" else self.port
            left -= event["event"] == "ready"
        self.log = subprocess.Popen(["cat"], stdin=self.process.stdout, stdout=subprocess.DEVNULL)  # keep it flowing
        end = time.monotonic() + READY
        while time.monotonic() < end and not self.metrics():
            time.sleep(0.05)

    def metrics(self) -> dict[str, float]:
        """All metrics; empty while nobody listens."""
        try:
            status, body = asyncio.run(asyncio.wait_for(Connection(self.port).ask(("GET", "/metrics", b"")), 30))
        except (OSError, RuntimeError, TimeoutError):
            return {}
        lines = body.decode().splitlines() if status == 200 else []
        return {k: float(v) for k, v in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}

    def workers(self) -> list[int]:
        """Process ids of the workers behind a dispatcher: its children that serve."""
        found = subprocess.run(
            ["ps", "-o", "pid=,args=", "--ppid", str(self.process.pid)], capture_output=True, text=True
        )
        return [int(line.split()[0]) for line in found.stdout.splitlines() if "spawn_main" in line]

    def cpu(self) -> float:
        """CPU seconds of all processes so far."""
        return sum(map(cpu_seconds, [self.process.pid, *self.workers()]))

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(120)
        self.log.wait(10)
        return code


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process so far, user and system."""
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def good_requests(run: Path, count: int, seed: int = 0) -> list[Request]:
    """A text of the graph with three of its neighbors drawn at random."""
    from labeldeconv import RunDirectory

    graph = RunDirectory.open(run).graph
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        text = graph.texts[int(rng.integers(graph.num_nodes))]
        near = [graph.node_id(int(i)) for i in rng.integers(0, graph.num_nodes, 3)]
        out.append(("POST", "/predict", json.dumps({"nodes": [{"text": text, "neighbors": near}]}).encode()))
    return out


def bad_requests(count: int, seed: int = 0) -> list[Request]:
    """Requests of every wrong kind."""
    node = {"text": "river"}
    kinds: list[Request] = [
        ("POST", "/predict", b"no json"),
        ("POST", "/predict", b"\xff" * 50),
        ("POST", "/predict", b"[" * 3000),
        ("POST", "/predict", b'{"nodes": [{"text": "\\ud800"}]}'),
        ("POST", "/predict", json.dumps({"nodes": []}).encode()),
        ("POST", "/predict", json.dumps({"nodes": [{"text": 7}]}).encode()),
        ("POST", "/predict", json.dumps({"nodes": [{**node, "neighbors": ["nobody at all"]}]}).encode()),
        ("POST", "/predict", json.dumps({"nodes": [node], "edges": [[1, 2]]}).encode()),
        ("POST", "/predict", json.dumps({"nodes": [node] * 65}).encode()),
        ("POST", "/predict", json.dumps({"nodes": [{"text": "x" * 20_001}]}).encode()),
        ("POST", "/predict", b" " * ((1 << 20) + 1)),
        ("POST", "/run", b"{}"),
        ("GET", "/no-such-path", b""),
        ("GET", "/nodes?limit=0", b""),
    ]
    return [kinds[i] for i in np.random.default_rng(seed).integers(0, len(kinds), count)]


async def ask_all(port: int, requests: list[Request], clients: int, at: dict[int, Any] | None = None) -> dict[str, Any]:
    """All requests by so many connections; `at` calls a function before the i-th."""
    left, statuses, times = iter(enumerate(requests)), Counter(), []
    connections = [Connection(port) for _ in range(clients)]

    async def client(connection: Connection) -> None:
        for i, request in left:
            if at and i in at:
                await asyncio.to_thread(at[i])
            start = time.perf_counter()
            status, _ = await connection.ask(request)
            statuses[status] += 1
            if status == 200:
                times.append(time.perf_counter() - start)

    start = time.perf_counter()
    await asyncio.gather(*map(client, connections))
    seconds = time.perf_counter() - start
    p50, p99 = (1e3 * np.percentile(times, q) for q in (50, 99))
    return {
        "per_second": len(requests) / seconds,
        "p50_ms": p50,
        "p99_ms": p99,
        "statuses": dict(sorted(statuses.items())),
        "retried": sum(connection.retried for connection in connections),
    }


ONE_BY_ONE = """
import json, sys, time
from labeldeconv import Predictor
predictor = Predictor.load(sys.argv[1])
predictor.predict(["warm"], [("new-0", predictor.run.graph.node_id(0))])
predictor.predict(["warm"])
print("ready", flush=True)
for line in sys.stdin:
    asked, times, start = json.loads(line), [], time.perf_counter()
    for nodes in asked:
        begun = time.perf_counter()
        predictor.predict([nodes[0]["text"]], [(other, "new-0") for other in nodes[0]["neighbors"]])
        times.append(time.perf_counter() - begun)
    print(json.dumps({"seconds": time.perf_counter() - start, "times": times}), flush=True)
"""


def speed(run: Path, workers: int, clients: int, rounds: int, count: int) -> dict[str, Any]:
    """One-by-one prediction and the server in turns: medians over the rounds, and the ratio of throughputs."""
    alone = subprocess.Popen(
        [sys.executable, "-c", ONE_BY_ONE, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert alone.stdin is not None
    assert alone.stdout is not None
    server = Server(run, workers)
    alone.stdout.readline()
    ratios, by_cpu, by_client, rows, served = [], [], [], [], []
    for i in range(rounds):
        requests = good_requests(run, count, seed=i)
        few = requests[: max(20, count // 5)]
        cpu = [cpu_seconds(alone.pid)]
        alone.stdin.write(json.dumps([json.loads(body)["nodes"] for _, _, body in few]) + "\n")
        alone.stdin.flush()
        told = json.loads(alone.stdout.readline())
        cpu += [cpu_seconds(alone.pid), server.cpu()]
        client = time.process_time()
        got = asyncio.run(ask_all(server.port, requests, clients))
        by_client.append(1e3 * (time.process_time() - client) / count)
        cpu += [server.cpu()]
        assert set(got["statuses"]) == {200}, got
        one = len(few) / told["seconds"]
        ratios.append(got["per_second"] / one)
        per = 1e3 * (cpu[1] - cpu[0]) / len(few), 1e3 * (cpu[3] - cpu[2]) / count
        by_cpu.append(per[0] / per[1])
        rows.append([per[0], one, 1e3 * np.percentile(told["times"], 50), 1e3 * np.percentile(told["times"], 99)])
        served.append([per[1], got["per_second"], got["p50_ms"], got["p99_ms"]])
    numbers = server.metrics()
    alone.stdin.close()
    alone.wait(30)
    code = server.stop()
    names = ("cpu_ms", "per_second", "p50_ms", "p99_ms")
    return {
        "workers": workers,
        "clients": clients,
        "one_by_one": dict(zip(names, np.median(rows, 0), strict=True)),
        "served": dict(zip(names, np.median(served, 0), strict=True)),
        "client_cpu_ms": float(np.median(by_client)),
        "times_faster_wall": float(np.median(ratios)),
        "times_less_cpu": float(np.median(by_cpu)),
        "requests_per_batch": numbers["labeldeconv_batched_requests_total"] / numbers["labeldeconv_batches_total"],
        "exit_code": code,
    }


def load(run: Path, clients: int, count: int) -> dict[str, Any]:
    """Good and bad requests; memory after a tenth of them and at the end."""
    server = Server(run, 1)
    bad = bad_requests(count // 3)
    requests = good_requests(run, count - len(bad)) + bad
    order = np.random.default_rng(1).permutation(count)
    memory: list[float] = []

    def look() -> None:
        memory.append(server.metrics()["labeldeconv_resident_bytes"])

    told = asyncio.run(ask_all(server.port, [requests[i] for i in order], clients, {count // 10: look}))
    look()
    told["memory_mib"] = [round(m / 2**20, 1) for m in memory]
    told["memory_growth"] = memory[1] / memory[0] - 1
    told["errors_5xx"] = sum(n for status, n in told["statuses"].items() if status >= 500)
    return {**told, "exit_code": server.stop()}


def kill(run: Path, clients: int, count: int) -> dict[str, Any]:
    """One of two workers is killed after a third of the requests; all end answered."""
    server = Server(run, 2)
    before = server.workers()

    def strike() -> None:
        os.kill(before[0], signal.SIGKILL)

    told = asyncio.run(ask_all(server.port, good_requests(run, count), clients, {count // 3: strike}))
    start = time.monotonic()
    while server.metrics().get("labeldeconv_workers") != 2 and time.monotonic() < start + READY:
        time.sleep(0.5)
    told["replaced"] = len(server.workers()) == 2 and before[0] not in server.workers()
    told["seconds_until_replaced"] = time.monotonic() - start
    return {**told, "exit_code": server.stop()}


def main() -> None:
    """Measure the parts one after the other, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--parts", default="speed,load,kill")
    parser.add_argument("--workers", default="1,2", help="of the part speed")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=300, help="requests of a round, and of the part kill")
    parser.add_argument("--requests", type=int, default=10_000, help="of the part load")
    parser.add_argument("--json", action="store_true", help="one JSON line per part")
    args = parser.parse_args()
    parts = args.parts.split(",")
    work = [
        ("speed", lambda w=int(w): speed(args.run, w, args.clients, args.rounds, args.count))
        for w in args.workers.split(",")
    ]
    work += [("load", lambda: load(args.run, args.clients, args.requests))]
    work += [("kill", lambda: kill(args.run, args.clients, args.count))]
    for name, measure in work:
        if name not in parts:
            continue
        told = measure()
        if args.json:
            print(json.dumps({"part": name, **told}), flush=True)
        else:
            print(f"{name}:", json.dumps(told, indent=2), flush=True)


if __name__ == "__main__":
    main()
