"""Break a run at every file operation, then run the same command again: is the result that of an undisturbed run?

    python -m benchmarks.faults                      # every operation of fit and compare, every fault: an hour or more
    python -m benchmarks.faults --sample 30 --seed 1 # some of them, as the test suite does
    python -m benchmarks.faults --command fit --kinds kill,power --json

A layer under the file operations of a child process counts them (opening for writing, writing, truncating, taking
blocks, flushing, renaming, linking, deleting, making and removing folders, changing rights) and breaks one:

    kill        SIGKILL before the operation; in the middle of a write
    ENOSPC      this and every later operation that needs room fails: the disk is full
    EROFS       this and every later operation fails: the disk has become read-only
    EIO, EACCES this operation fails once
    power       SIGKILL, and of what was written but not flushed half is left ("half") or nothing ("gone")

and at random times: SIGKILL, SIGKILL of one of two processes that share a cache, Ctrl-C. After each the same command
runs undisturbed. It must end well, with metrics, predictions and files equal to those of an undisturbed run, and leave
no other file behind; a failed operation must be told by one line that names a path, or not matter at all.

Children are forked from a process that has done a run, so that a fault costs a second or two. What safetensors writes
is written by Rust: the whole file is one operation here. Memory maps count as not flushed until their file is.
"""

# The layer is below pathlib and sees paths as the system does.
# ruff: noqa: PTH100, PTH115, PTH116, PTH118, PTH208
from __future__ import annotations

import argparse
import builtins
import errno
import fcntl
import hashlib
import io
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # no threads before a fork
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

SETTINGS = {
    "encoder.name": "tiny",
    "train.epochs": 1,
    "train.batch_nodes": 32,
    "train.checkpoint_minutes": 0,
    "gnn.epochs": 2,
    "gnn.hidden": 8,
    "gnn.checkpoint_minutes": 0,
    "gnn.self_training.stages": 2,
    "gnn.self_training.threshold": 0.1,
}
SETS = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
COMMANDS = {
    "fit": ["fit", "planted:40", "--method", "ld", "--gnn", "gcn", *SETS],
    "compare": ["compare", "planted:40", "--methods", "pne,fne", *SETS],
}
ERRORS = {name: getattr(errno, name) for name in ("ENOSPC", "EIO", "EACCES", "EROFS")}
KINDS = ("kill", *ERRORS, "power-half", "power-gone")
NEEDS_ROOM = ("open", "write", "allocate", "truncate", "mkdir", "link", "tensors")
TIMEOUT = 120.0  # seconds until a run counts as hanging


@dataclass
class Layer:
    """Counts file operations below `root` and breaks the operation number `at` in the way of `kind`."""

    root: str
    at: int | None = None
    kind: str = ""
    log: list[str] = field(default_factory=list)
    dirty: dict[int, str] = field(default_factory=dict)  # inode to path, of files not flushed

    def inside(self, path: Any) -> bool:
        """Whether a path is one of the run's."""
        try:
            return os.path.abspath(os.fspath(path)).startswith(self.root)
        except TypeError:
            return False

    def operation(self, name: str, path: Any, half: Callable[[], None] | None = None) -> None:
        """Count one; where it is the one to break, end the process (after `half` of a write) or raise."""
        self.log.append(f"{name} {os.path.relpath(os.fspath(path), self.root)}")
        number = len(self.log) - 1
        if self.at is None or number < self.at:
            return
        if self.kind in ERRORS:
            lasting = self.kind == "EROFS" or (self.kind == "ENOSPC" and name in NEEDS_ROOM)
            first = number == self.at and (self.kind != "ENOSPC" or name in NEEDS_ROOM)
            if first or (lasting and number > self.at):
                if name == "write" and half is not None and self.kind == "ENOSPC":
                    half()
                raise OSError(ERRORS[self.kind], os.strerror(ERRORS[self.kind]), None if name == "write" else str(path))
            return
        if number == self.at:
            if half is not None:
                half()
            if self.kind.startswith("power"):
                self.lose()
            os.kill(os.getpid(), signal.SIGKILL)

    def wrote(self, path: Any) -> None:
        """A file has content that is not flushed."""
        try:
            self.dirty[os.stat(path).st_ino] = os.path.abspath(os.fspath(path))
        except OSError:
            return

    def moved(self, source: Any, target: Any) -> None:
        """A file, or all below a folder, has another name."""
        old, new = os.path.abspath(os.fspath(source)), os.path.abspath(os.fspath(target))
        for inode, path in self.dirty.items():
            if path == old or path.startswith(old + os.sep):
                self.dirty[inode] = new + path[len(old) :]

    def lose(self) -> None:
        """What a power cut does to files that were not flushed."""
        for inode, path in self.dirty.items():
            try:
                if os.stat(path).st_ino != inode:
                    continue
                if self.kind == "power-gone":
                    REAL["unlink"](path)
                else:
                    REAL["truncate"](path, os.stat(path).st_size // 2)
            except OSError:
                continue


REAL: dict[str, Any] = {}


class Written:
    """A file opened for writing: every write is an operation."""

    def __init__(self, file: Any, layer: Layer, path: Any) -> None:
        self.__dict__.update(_file=file, _layer=layer, _path=path)

    def write(self, data: Any) -> Any:
        """Count, then write."""

        def half() -> None:
            part = data if isinstance(data, str) else bytes(memoryview(data).cast("B"))
            self._file.write(part[: len(part) // 2])
            self._file.flush()

        self._layer.operation("write", self._path, half)
        self._layer.wrote(self._path)
        return self._file.write(data)

    def writelines(self, lines: Any) -> None:
        """One by one."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Written:
        self._file.__enter__()
        return self

    def __exit__(self, *what: Any) -> Any:
        return self._file.__exit__(*what)

    def __iter__(self) -> Any:
        return iter(self._file)


def install(layer: Layer) -> None:
    """Put the layer under the file operations of this process; only children of the benchmark do it."""
    import safetensors.torch
    from safetensors import SafetensorError

    names = ("replace", "rename", "link", "unlink", "remove", "rmdir", "mkdir", "fsync", "posix_fallocate", "truncate")
    REAL.update({name: getattr(os, name) for name in (*names, "open", "chmod", "pwrite")})
    opened, real_open = io.open, os.open
    names_of: dict[int, Any] = {}  # file descriptors of os.open

    def path_of(handle: Any) -> Any:
        if not isinstance(handle, int):
            return handle
        try:
            return os.readlink(f"/proc/self/fd/{handle}").removesuffix(" (deleted)")
        except OSError:
            return names_of.get(handle, "")

    def open_file(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, int) or not set(mode) & set("wax+") or not layer.inside(file):
            return opened(file, mode, *args, **kwargs)
        layer.operation("open", file)
        made = opened(file, mode, *args, **kwargs)
        layer.wrote(file)
        return Written(made, layer, file)

    def open_handle(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and layer.inside(path):
            layer.operation("open", path)
        handle = real_open(path, flags, *args, **kwargs)
        names_of[handle] = path
        return handle

    def single(name: str, told: str) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            place = path_of(path)
            if kwargs.get("dir_fd") is not None:
                place = os.path.join(path_of(kwargs["dir_fd"]), os.fspath(path))
            if layer.inside(place):
                layer.operation(told, place)
            out = REAL[name](path, *args, **kwargs)
            if layer.inside(place):
                if told == "flush":
                    layer.dirty.pop(os.fstat(path).st_ino, None)
                elif told in ("allocate", "truncate", "write"):
                    layer.wrote(place)
            return out

        return call

    def double(name: str) -> Callable[..., Any]:
        def call(source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            if layer.inside(target):
                layer.operation("link" if name == "link" else "rename", target)
            out = REAL[name](source, target, *args, **kwargs)
            if name != "link":
                layer.moved(source, target)
            return out

        return call

    def serialize(tensors: Any, filename: Any, metadata: Any = None) -> Any:
        def half() -> None:
            real_serialize(tensors, filename, metadata=metadata)
            REAL["truncate"](filename, os.stat(filename).st_size // 2)
            layer.wrote(filename)

        if layer.inside(filename):
            try:
                layer.operation("tensors", filename, half)
            except OSError as error:
                kind = f'Os {{ code: {error.errno}, kind: Other, message: "{error.strerror}" }}'
                raise SafetensorError(f"Error while serializing: I/O error: {kind}") from None
        real_serialize(tensors, filename, metadata=metadata)
        layer.wrote(filename)

    real_serialize = safetensors.torch.serialize_file
    safetensors.torch.serialize_file = serialize
    builtins.open = io.open = open_file  # type: ignore[assignment]
    os.open = open_handle  # type: ignore[assignment]
    told = {"unlink": "delete", "remove": "delete", "rmdir": "delete", "mkdir": "mkdir", "fsync": "flush"}
    told |= {"posix_fallocate": "allocate", "truncate": "truncate", "chmod": "rights", "pwrite": "write"}
    for name, what in told.items():
        setattr(os, name, single(name, what))
    for name in ("replace", "rename", "link"):
        setattr(os, name, double(name))
    shutil._USE_CP_SENDFILE = False  # type: ignore[attr-defined]
    ioctl = fcntl.ioctl

    def no_clone(handle: Any, request: int, *args: Any, **kwargs: Any) -> Any:
        if request == 0x40049409:  # FICLONE: without it files are copied, which are more operations
            raise OSError(errno.EOPNOTSUPP, "not here")
        return ioctl(handle, request, *args, **kwargs)

    fcntl.ioctl = no_clone  # type: ignore[assignment]


@dataclass
class Ended:
    """How a child ended: its exit code (negative: the signal), what it said, and the operations it did."""

    code: int
    said: str
    operations: list[str]


def start(place: Path, command: str, at: int | None = None, kind: str = "", counts: bool = False) -> int:
    """Fork a child that runs a command with everything below `place`, with a fault if one is named."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # no command has begun yet
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        return child
    code = 70
    try:
        said = os.open(place / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.environ["LABELDECONV_CACHE"] = str(place / "work" / "cache")
        sys.argv = ["labeldeconv", *COMMANDS[command], "--out", str(place / "work" / "out" / "run")]
        layer = Layer(str(place / "work"), at, kind)
        if at is not None or counts:
            install(layer)
        from labeldeconv.cli import app

        shown = app.show

        def begin() -> None:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
            shown()

        app.show = begin  # the first thing that the command does
        try:
            app.main()
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        except BaseException:
            import traceback

            traceback.print_exc()
            code = 70
        sys.stdout.flush()
        sys.stderr.flush()
        if counts:
            with io.FileIO(place / "operations", "w") as file:
                file.write(json.dumps(layer.log).encode())
    finally:
        os._exit(code)


def wait(child: int, place: Path) -> Ended:
    """Wait for a child; one that hangs is ended and counts as a lost run."""
    until = time.monotonic() + TIMEOUT
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return Ended(71, "it hangs", [])
        time.sleep(0.005)
    operations = place / "operations"
    said = (place / "said").read_text(errors="replace") if (place / "said").exists() else ""
    log = json.loads(operations.read_text()) if operations.exists() else []
    return Ended(os.waitstatus_to_exitcode(status), said, log)


VOLATILE = {  # of result.json and compare.json: costs, which differ from run to run, and what follows from them
    "seconds", "peak_mib", "peak_accelerator_mib", "step_seconds", "cached", "stages", "checksum", "files", "run",
}  # fmt: skip


def outcome(place: Path) -> dict[str, str]:
    """Every file below the place, with a hash of what must be the same after a fault: costs are left out."""
    found = {}
    for path in sorted((place / "work").rglob("*")):
        name = str(path.relative_to(place / "work"))
        if path.is_dir() or name.startswith(("cache/locks/", "cache/runs/")):
            continue
        data = path.read_bytes()
        if path.name in ("result.json", "compare.json"):
            data = json.dumps(_lasting(json.loads(data)), sort_keys=True).encode()
        elif path.name in ("stage.json", "table.md", "table.csv"):
            data = b""  # seconds and memory stand in them
        found[name] = hashlib.blake2b(data, digest_size=12).hexdigest()
    return found


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _lasting(v) for k, v in value.items() if k not in VOLATILE}
    return [_lasting(v) for v in value] if isinstance(value, list) else value


@dataclass
class Report:
    """What became of the faults: rows of command, kind, place and end, kept in a file of JSON lines where one is named.

    A row also has the hash of all operations of its command: rows of other code do not count.
    """

    kept: Path | None = None
    operations: dict[str, int] = field(default_factory=dict)
    of: dict[str, str] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def expects(self, command: str, operations: list[str]) -> None:
        """The operations of an undisturbed command; what the file has of them is read."""
        self.operations[command] = len(operations)
        same = re.sub(r"cache/runs/\w+", "cache/runs/_", "\n".join(operations))  # named after the temporary folder
        self.of[command] = hashlib.blake2b(same.encode(), digest_size=8).hexdigest()
        if self.kept is not None and self.kept.exists():
            read = [json.loads(line) for line in self.kept.read_text().splitlines()]
            self.rows += [row for row in read if row["command"] == command and row["of"] == self.of[command]]

    def note(self, command: str, kind: str, at: float, end: str, why: str = "") -> None:
        """One fault and its end: 'told', 'harmless', 'recovered' or 'lost'."""
        row = {"command": command, "of": self.of[command], "kind": kind, "at": at, "end": end, "why": why}
        self.rows.append(row)
        if end == "lost":
            print(f"LOST {command} {kind} at {at}: {why}", file=sys.stderr, flush=True)
        if self.kept is not None:
            with self.kept.open("a") as file:
                file.write(json.dumps(row) + "\n")

    def done(self) -> set[tuple[str, str, float]]:
        """Command, kind and place of all faults so far."""
        return {(row["command"], row["kind"], row["at"]) for row in self.rows}

    def summary(self) -> dict[str, Any]:
        """Counts."""
        ends = Counter(row["end"] for row in self.rows)
        return {
            "operations": self.operations,
            "faults": len(self.rows),
            "by_kind": dict(Counter(row["kind"] for row in self.rows)),
            "told": ends["told"],
            "harmless": ends["harmless"],
            "recovered": len(self.rows) - ends["lost"],
            "lost": ends["lost"],
        }


class Trial:
    """One command, what it gives undisturbed, and the faults done to it."""

    def __init__(self, command: str, folder: Path, report: Report) -> None:
        self.command, self.folder, self.report = command, folder, report
        place, begun = self.fresh(), time.monotonic()
        ended = wait(start(place, command, counts=True), place)
        self.seconds = time.monotonic() - begun
        if ended.code != 0:
            raise SystemExit(f"undisturbed {command} ended with {ended.code}: {ended.said}")
        self.expected, self.operations = outcome(place), ended.operations
        report.expects(command, ended.operations)

    def fresh(self) -> Path:
        """An empty place; always the same name, which stands in some files."""
        place = self.folder / "place"
        shutil.rmtree(place, ignore_errors=True)
        (place / "work").mkdir(parents=True)
        return place

    def breaks(self, at: int, kind: str) -> None:
        """Do one fault and look whether the run recovers."""
        place = self.fresh()
        ended = wait(start(place, self.command, at, kind), place)
        end = "recovered"
        if kind in ERRORS:
            end = "harmless" if ended.code == 0 else "told" if ended.code == 1 and _is_plain(ended.said) else "lost"
        elif ended.code not in (-signal.SIGKILL, 0):
            end = "lost"
        why = f"exit code {ended.code}: {ended.said[-600:]}" if end == "lost" else self.differs(place)
        named = f"({self.operations[at]}) {why}" if why else ""
        self.report.note(self.command, kind, at, "lost" if why else end, named)

    def differs(self, place: Path) -> str:
        """Run the command again, undisturbed, and compare: what is not as it should be."""
        again = wait(start(place, self.command), place)
        if again.code != 0:
            return f"again: exit code {again.code}: {again.said[-600:]}"
        got = outcome(place)
        wrong = sorted(k for k in {*got, *self.expected} if got.get(k) != self.expected.get(k))
        return "other files: " + ", ".join(wrong[:5]) if wrong else ""

    def kills_at(self, share: float, number: int = signal.SIGKILL, others: int = 0) -> None:
        """A signal after a share of the undisturbed time, perhaps while another process works on the same cache."""
        place = self.fresh()
        partner = self.folder / "partner"
        shutil.rmtree(partner, ignore_errors=True)
        second = 0
        if others:
            partner.mkdir()
            (partner / "work").mkdir()
            (place / "work" / "cache").mkdir()
            (partner / "work" / "cache").symlink_to(place / "work" / "cache")
            second = start(partner, self.command)
        child = start(place, self.command)
        time.sleep(share * self.seconds)
        os.kill(child, number)
        ended, why = wait(child, place), ""
        if number == signal.SIGINT and not (
            ended.code == 0 or (ended.code == 130 and "resume with the same command" in ended.said)
        ):
            why = f"exit code {ended.code}: {ended.said[-600:]}"
        if others:
            survivor = wait(second, partner)
            if survivor.code != 0:
                why = why or f"the other: exit code {survivor.code}: {survivor.said[-600:]}"
        why = why or self.differs(place)
        kind = "two" if others else signal.Signals(number).name
        self.report.note(self.command, kind, share, "lost" if why else "recovered", why)


def _is_plain(said: str) -> bool:
    """One line that names a path and what to do."""
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    return "Traceback" not in said and len(errors) == 1 and "/" in errors[0] and ";" in errors[0]


def warm_up(folder: Path) -> None:
    """Import and compile everything in this process, which then has no thread but its own."""
    import torch

    torch.set_num_threads(1)
    from labeldeconv.runs.compare import compare

    os.environ["LABELDECONV_CACHE"] = str(folder / "warm" / "cache")
    given = {name.replace(".", "__"): value for name, value in SETTINGS.items() if name != "encoder.name"}
    compare("planted:40", ["ld"], "tiny", out=folder / "warm" / "run", **given)
    shutil.rmtree(folder / "warm")
    tasks = (Path("/proc/self/task") / task / "comm" for task in os.listdir("/proc/self/task"))
    threads = sum(comm.read_text().strip() != "jemalloc_bg_thd" for comm in tasks)  # pyarrow's, which minds forks
    if threads != 1:
        raise SystemExit(f"{threads} threads after the warm-up: a fork is not safe")


def main() -> None:
    """Break, run again, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", choices=[*COMMANDS, "both"], default="both")
    parser.add_argument("--kinds", default=",".join(KINDS), help="comma-separated")
    parser.add_argument("--sample", type=int, help="so many faults, chosen at random; default all")
    parser.add_argument("--random", type=int, default=0, help="so many signals at random times, of each kind")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kept", type=Path, help="JSON lines of every fault: the same command goes on behind them")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    generator, report, begun = random.Random(args.seed), Report(args.kept), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="labeldeconv-faults-") as name:
        folder = Path(name)
        warm_up(folder)
        trials = [Trial(c, folder, report) for c in (COMMANDS if args.command == "both" else [args.command])]
        every = [(t, at, kind) for t in trials for at in range(len(t.operations)) for kind in args.kinds.split(",")]
        generator.shuffle(every)
        done = report.done()
        for trial, at, kind in every[: args.sample]:
            if args.minutes and time.monotonic() - begun > 60 * args.minutes:
                break
            if (trial.command, kind, at) not in done:
                trial.breaks(at, kind)
        for trial in trials:
            for _ in range(args.random):
                for number, others in ((signal.SIGKILL, 0), (signal.SIGINT, 0), (signal.SIGKILL, 1)):
                    share, kind = round(generator.random(), 4), "two" if others else signal.Signals(number).name
                    if (trial.command, kind, share) not in done:
                        trial.kills_at(share, number, others)
    out = {"possible": len(every), **report.summary(), "seconds": round(time.monotonic() - begun, 1)}
    if args.json:
        print(json.dumps({**out, "losses": [row for row in report.rows if row["end"] == "lost"]}))
    else:
        for key, value in out.items():
            print(f"{key}: {value}")
    sys.exit(bool(out["lost"]))


if __name__ == "__main__":
    main()
