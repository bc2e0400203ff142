"""Mutation testing: change one operator, constant or statement at a time, and see whether a test notices.

    python benchmarks/mutants.py labels propagation gnns methods --most 60 --minutes 30
    python benchmarks/mutants.py gnns --most 80 --seed 1 --json mutants.json

A mutant is killed where a test of its module fails or hangs: tests/ROOM/test_MODULE.py, the suites of the whole room
(such as tests/gnns/test_published.py) and tests/test_paper.py, in this order, up to the first failure. A survivor is a
change that no test sees: a missing test, or a change that means nothing. The latter are listed, with the reason, in
benchmarks/equivalent_mutants.toml, and are not drawn. Mutants are drawn by seed from all modules of a room, and the
rooms take turns, so that any number of them is a fair sample of each room.

Work is done in a copy of the tree, outside of which a mutant may not write. Every mutant is a fork of a process that
has loaded already what tests import, and only tests that call the changed function are run, the quick ones first. A
mutant hangs where it takes far more CPU time than the unchanged tests, or none at all for a minute. `--json FILE` keeps
the results, and a run with the same file goes on where the last one ended: killed mutants stay killed while their
module is the same, survivors are tried again where a test has changed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import gc
import hashlib
import importlib
import itertools
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import tomllib
import traceback
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = ROOT / "benchmarks" / "equivalent_mutants.toml"
KEPT = ("labeldeconv", "tests", "recipes", "docs", "pyproject.toml", "README.md")  # what tests read
# Emitted LLVM text and its launch: a wrong number there is a wrong address, which kills the process that tests.
SEALED = ("propagation/kernel/gather.py",)
SPEECH = ("logger", "bar", "warnings")  # statements that only speak to the user
SWAPPED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
ANYTHING = "*"  # among the calls of a test: it may call every function
LAYERS = (  # of docs/design.md, the lowest first: a room imports rooms of lower lines alone
    ("errors", "progress", "registry"),
    ("stages", "settings"),
    ("graph", "propagation"),
    ("data", "encoders", "gnns", "labels"),
    ("training",),
    ("methods",),
)
MEMORY = 8 << 30  # bytes a test may take: a wrong size must not take the machine
STARTUP, SLOW = 15.0, 4.0  # a test hangs where it takes so many CPU seconds more than SLOW times the unchanged tests
STILL = 60.0  # seconds without any CPU time: a deadlock, even on a busy machine
WRITES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink", "shutil.rmtree")


@dataclass(frozen=True)
class Mutant:
    """One change of a module, whose path below labeldeconv/ and source it has.

    Args:
        line: its number; `text` is the line as it is written.
        before: the code that is changed, and `after` what becomes of it.
        site: the number of the changed node among all of the module that may be changed.
        kind: of the change.
        inside: first line of the function around it, 0 outside of any.
        compiled: whether numba compiles that function.
    """

    module: str
    original: str
    line: int
    text: str
    before: str
    after: str
    site: int
    kind: str
    inside: int = 0
    compiled: bool = False

    @property
    def source(self) -> str:
        """The whole changed module."""
        tree = ast.parse(self.original)
        node, replace = next(itertools.islice(_sites(tree), self.site, None))
        after = _mutate(node, self.kind)
        if after is not node:
            replace(after)
        return ast.unparse(ast.fix_missing_locations(tree))

    @property
    def name(self) -> str:
        """A key that changes with the module."""
        return hashlib.blake2b("\0".join(map(str, asdict(self).values())).encode(), digest_size=10).hexdigest()

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.before}  ->  {self.after}"


def mutants_of(source: str, module: str = "module.py") -> list[Mutant]:
    """Every mutant of a module's source, in the order of its lines."""
    tree, lines = ast.parse(source), source.splitlines()
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    found = []
    for site, (node, _) in enumerate(_sites(tree)):
        for kind in _kinds(node):
            before, after = _short(node), _short(_mutate(copy.deepcopy(node), kind))
            text, around = lines[node.lineno - 1].strip(), _around(functions, node.lineno)
            found.append(Mutant(module, source, node.lineno, text, before, after, site, kind, *around))
    return found


def _around(functions: list[ast.FunctionDef], line: int) -> tuple[int, bool]:
    """First line, decorators included, of the innermost function around a line, and whether numba compiles it."""
    around = [f for f in functions if f.lineno <= line <= (f.end_lineno or 0)]
    if not around:
        return 0, False
    inner = max(around, key=lambda f: f.lineno)
    compiled = any("njit" in ast.unparse(d) for f in around for d in f.decorator_list)
    return min([inner.lineno, *(d.lineno for d in inner.decorator_list)]), compiled


def _sites(tree: ast.AST) -> Iterator[tuple[Any, Callable[[ast.AST], None]]]:
    """Nodes that may be changed, each with a function that puts another one in its place."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list", "type_params", "bases", "keywords_of_class"):
            continue  # a stage's version, types: nothing that a test of behaviour could see
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or _is_speech(child):
                continue

            def replace(new: ast.AST, value: object = value, field: str = field, index: int = index) -> None:
                if isinstance(value, list):
                    value[index] = new
                else:
                    setattr(tree, field, new)

            yield child, replace
            if not isinstance(child, ast.Raise | ast.JoinedStr):  # words of errors are free
                yield from _sites(child)


def _is_speech(node: ast.AST) -> bool:
    """Imports, docstrings, TYPE_CHECKING blocks and calls that only log or warn."""
    if isinstance(node, ast.Import | ast.ImportFrom) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ):
        return True
    text = ast.unparse(node) if isinstance(node, ast.Expr | ast.If | ast.Assign) else ""
    return text.startswith(("if TYPE_CHECKING", "__all__", *(f"{name}." for name in SPEECH)))


def _kinds(node: ast.AST) -> list[str]:
    """Ways in which a node can be changed."""
    if isinstance(node, ast.Compare):
        return [f"op {i}" for i, op in enumerate(node.ops) if type(op) in SWAPPED]
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPPED:
        return ["op"]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        return ["drop"]
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        return ["next"]
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return ["negate"]
    if isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        return ["none"]
    if isinstance(node, ast.AugAssign):
        return ["op", "delete"] if type(node.op) in SWAPPED else ["delete"]
    if isinstance(node, ast.Raise | ast.Break | ast.Continue) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        return ["delete"]
    return []


def _mutate(node: ast.AST, kind: str) -> ast.AST:
    """The changed node: the same object, or another one for its place."""
    if kind.startswith("op"):
        if isinstance(node, ast.Compare):
            index = int(kind.split()[1])
            node.ops[index] = SWAPPED[type(node.ops[index])]()
        else:
            node.op = SWAPPED[type(node.op)]()
        return node
    if kind == "drop":
        return node.operand
    if kind == "next":
        value = node.value
        return ast.Constant(not value if isinstance(value, bool) else value + 1)
    if kind == "negate":
        node.test = ast.UnaryOp(ast.Not(), node.test)
        return node
    if kind == "none":
        node.value = ast.Constant(None)
        return node
    return ast.Pass()


def _short(node: ast.AST) -> str:
    """Its code in one line."""
    text = ast.unparse(ast.fix_missing_locations(node)).strip().splitlines()[0]
    return text if len(text) <= 100 else text[:97] + "..."


@dataclass(frozen=True)
class Equivalent:
    """A change that means nothing: of a line that begins with `text`, and if given only this one; and the reason."""

    module: str
    text: str
    why: str
    before: str | None = None
    after: str | None = None

    def covers(self, mutant: Mutant) -> bool:
        """Whether it is this change; line numbers do not matter."""
        return (
            self.module == mutant.module
            and mutant.text.startswith(self.text)
            and self.before in (None, mutant.before)
            and self.after in (None, mutant.after)
        )


def equivalents() -> list[Equivalent]:
    """Changes that mean nothing, of the list that gives the reason for each."""
    return [Equivalent(**row) for row in tomllib.loads(EQUIVALENT.read_text())["mutant"]]


def draw(rooms: list[str], seed: int, most: int | None) -> list[Mutant]:
    """Mutants of rooms (or single files) in seeded order, at most `most` of each room, the rooms by turns."""
    nothing, drawn = equivalents(), []
    for room in rooms:
        found = [m for p in _modules(room) for m in mutants_of(p.read_text(), str(p.relative_to(ROOT / "labeldeconv")))]
        found = [m for m in found if not any(same.covers(m) for same in nothing)]
        random.Random(seed).shuffle(found)
        drawn.append(found[:most])
    return [m for m in itertools.chain.from_iterable(itertools.zip_longest(*drawn)) if m is not None]


def files_for(module: str) -> list[str]:
    """Test files that look at a module: its own, those of its room that are of no single module, and the paper's."""
    path = Path(module)
    room = path.parts[0]
    modules = {f"test_{p.name}" for p in (ROOT / "labeldeconv" / room).rglob("*.py")}
    suites = [p for p in sorted((ROOT / "tests" / room).glob("test_*.py")) if p.name not in modules]
    wanted = [ROOT / "tests" / path.parent / f"test_{path.name}", *suites, ROOT / "tests" / "test_paper.py"]
    return [str(p.relative_to(ROOT)) for p in wanted if p.exists()]


class Calls:
    """A plugin of pytest: which functions of the package each test calls, and the CPU seconds it takes.

    What is called while a test is set up counts for all tests of its file, since fixtures are shared.
    """

    def __init__(self, package: Path) -> None:
        self.package = str(package) + os.sep
        self.tests: dict[str, dict[str, Any]] = {}
        self.seen: set[str] = set()
        self.shared: set[str] = set()
        self.clock = 0.0
        self.loaded = set(sys.modules)

    def _watch(self, frame: types.FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(self.package):
            self.seen.add(f"{code.co_filename[len(self.package) :]}:{code.co_firstlineno}")
        elif event == "call" and code.co_name == "_execute_child":  # of subprocess: what it calls is not seen here
            self.seen.add(ANYTHING)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """After each of setup, call and teardown."""
        row = self.tests.setdefault(report.nodeid, {"seconds": 0.0, "calls": []})
        row["seconds"] += time.process_time() - self.clock
        self.clock = time.process_time()
        if report.when == "call":
            row["calls"] = sorted(self.seen)
        else:
            self.shared |= self.seen
        self.seen.clear()

    def pytest_collection_finish(self) -> None:
        """The first test begins."""
        self.clock = time.process_time()

    def pytest_sessionstart(self) -> None:
        """Begin to watch, in this thread and in those to come."""
        threading.settrace(self._watch)
        sys.settrace(self._watch)

    def pytest_sessionfinish(self) -> None:
        """End."""
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def told(self) -> dict[str, Any]:
        """Tests with their seconds and calls, and the modules of others that they import."""
        rows = {name: {**row, "calls": sorted({*row["calls"], *self.shared})} for name, row in self.tests.items()}
        own = ("labeldeconv", "tests", "benchmarks", "conftest", "__")
        new = [name for name in sys.modules if name not in self.loaded and not name.startswith(own)]
        return {"tests": rows, "imports": new}


class Failures:
    """A plugin of pytest that writes the name of the first test that fails to a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: Any) -> None:
        """After each of setup, call and teardown."""
        if report.failed:
            self.file.write_text(report.nodeid)


class Workshop:
    """A copy of the tree in which modules are changed and tests run, each in a fork of this process."""

    def __init__(self, folder: Path, calls: dict[str, dict[str, Any]] | None = None) -> None:
        self.folder = folder
        self.calls = {} if calls is None else calls  # by test file: its key, imports, tests with seconds and calls
        self.changes = 0
        for name in KEPT:
            source, target = ROOT / name, folder / name
            if source.is_dir():
                shutil.copytree(source, target)  # with times, so that what is compiled of it counts
            elif source.exists():
                shutil.copy(source, target)
        self.sources = _hash([str(p.relative_to(folder)) for p in sorted((folder / "labeldeconv").rglob("*.py"))])

    def failure(self, tests: list[str], seconds: float, calls: Calls | None = None) -> str | None:
        """The first of the tests that fails in the tree as it is, None if all pass; `seconds` of CPU at most."""
        (self.folder / "failed").unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            self._run(tests, seconds, calls)
        used, since, asked = -1.0, time.monotonic(), 0.0
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            if time.monotonic() - asked > 1.0:
                asked = time.monotonic()
                if (now := _cpu_seconds(child)) != used:
                    used, since = now, asked
            if time.monotonic() - since > STILL:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return f"{tests[0]} (hangs)"
            time.sleep(0.02)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return None
        failed = self.folder / "failed"
        kind = "hangs" if code in (-signal.SIGXCPU, -signal.SIGKILL) else "does not start or breaks off"
        return failed.read_text() if failed.exists() else f"{tests[0]} ({kind})"

    def unchanged(self, file: str) -> dict[str, dict[str, Any]]:
        """Tests of a file by name with their seconds and calls, on the unchanged tree, where they have to pass."""
        key = self.sources + _hash([file], self.folder)
        if self.calls.get(file, {}).get("key") != key:
            failed = self.failure([file], 900.0, Calls(self.folder / "labeldeconv"))
            if failed:
                sys.exit(f"{failed} fails without any mutant")
            self.calls[file] = {"key": key, **json.loads((self.folder / "calls.json").read_text())}
        _load(self.calls[file]["imports"])
        return self.calls[file]["tests"]

    def chosen(self, mutant: Mutant, file: str) -> tuple[list[str], float]:
        """Tests of a file that call the function of a mutant, the quick ones first, and their seconds.

        Outside of functions it is those that call any function of the module. Where that cannot be told (in compiled
        functions, in other processes) it is the whole file, if that is the module's own.
        """
        tests = self.unchanged(file)
        function = f"{mutant.module}:{mutant.inside or ''}"
        own = file == files_for(mutant.module)[0]

        def concerned(call: str) -> bool:
            if call == ANYTHING:
                return own
            return call == function if mutant.inside else call.startswith(function)

        names = [name for name, row in tests.items() if any(map(concerned, row["calls"]))]
        if (not mutant.inside or mutant.compiled or not names) and own:
            names = list(tests)
        names.sort(key=lambda name: tests[name]["seconds"])
        return names, sum(tests[name]["seconds"] for name in names)

    def killer(self, mutant: Mutant) -> str | None:
        """The first test that fails on a mutant; None where it survives."""
        path = self.folder / "labeldeconv" / mutant.module
        original, before = path.read_text(), path.stat()
        for file in files_for(mutant.module):
            tests, seconds = self.chosen(mutant, file)
            if not tests:
                continue
            self.changes += 1
            path.write_text(mutant.source)
            os.utime(path, (before.st_mtime + 10 * self.changes,) * 2)  # another second: no .pyc file is taken for it
            failed = self.failure(tests, STARTUP + SLOW * seconds)
            path.write_text(original)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # what was compiled of it counts again
            if failed:
                return failed
        return None

    def _run(self, tests: list[str], seconds: float, calls: Calls | None) -> None:
        """In the child: pytest on the copy, silent, with a group of processes of its own."""
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os.chdir(self.folder)
        limit = int(seconds + time.process_time()) + 1
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        sys.dont_write_bytecode = calls is None  # that of the unchanged tree is kept, and spares mutants compilation
        self.confine(self.folder)
        import pytest

        code = 1
        try:
            already = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"  # plugins of pytest, preloaded
            options = ["-x", "-p", "no:cacheprovider", f"--basetemp={self.folder / 'tmp' / 'tests'}", "-W", already]
            plugins = [Failures(self.folder / "failed"), *([calls] if calls else [])]
            code = int(pytest.main([*options, *tests], plugins=plugins))
            if calls:
                (self.folder / "calls.json").write_text(json.dumps(calls.told()))
        except BaseException:
            traceback.print_exc()
        os._exit(code)

    @staticmethod
    def confine(folder: Path) -> None:
        """From here on this process writes, renames and removes files in the copy alone."""
        inside = (str(folder) + os.sep, "/dev/", "/proc/self/")

        def watch(event: str, arguments: tuple[Any, ...]) -> None:
            if event == "open":
                path, _, flags = arguments
                if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
                    return
            elif event in WRITES:
                path = arguments[0]
            else:
                return
            if isinstance(path, str | bytes | os.PathLike):
                full = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  (no look at the disk)
                if not full.startswith(inside):
                    raise PermissionError(f"{event} of {full}: outside of the copy {folder}")

        sys.addaudithook(watch)


def _cpu_seconds(group: int) -> float:
    """CPU time of all processes of a group, since a test may wait for one that it has started."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15])) if int(fields[2]) == group else 0
    return total / os.sysconf("SC_CLK_TCK")


def _preload(folder: Path, rooms: list[str]) -> None:
    """What every test imports, loaded once; nothing of the changed rooms, and nothing that starts a thread."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    for name in ("TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "LABELDECONV_CACHE"):
        os.environ[name] = str(folder / "tmp" / name.lower())
        Path(os.environ[name]).mkdir(parents=True)
    tempfile.tempdir = None  # TMPDIR is asked again
    sys.path.insert(0, str(folder))
    imports = ["duckdb", "numba", "pydantic", "pytest", "scipy.sparse.csgraph", "sklearn.feature_extraction.text"]
    _load([*imports, "torch", "torch_geometric.nn", "transformers"])
    below = [p for room in untouched(rooms) for p in _modules(room)]
    _load([".".join(p.relative_to(ROOT).with_suffix("").parts) for p in below])
    sys.modules["torch"].set_num_threads(1)


def untouched(rooms: list[str]) -> list[str]:
    """Rooms that import none of the given ones, or of the given files."""
    changed = {room.split("/")[0].removesuffix(".py") for room in rooms}
    found: list[str] = []
    for line in LAYERS:
        found += [room for room in line if room not in changed]
        if changed & set(line):
            return found
    return found


def _load(modules: list[str]) -> None:
    """Import what is not yet imported, for all forks to come."""
    new = [name for name in modules if name not in sys.modules]
    for name in new:
        with contextlib.suppress(Exception):  # made by a test or on the fly
            importlib.import_module(name)
    if new:
        gc.freeze()  # forks need not go through what is here


def _modules(room: str) -> list[Path]:
    """Modules of a room, or the one of a path such as labels/hops.py."""
    package = ROOT / "labeldeconv"
    found = sorted((package / room).rglob("*.py")) or [(package / room).with_suffix(".py")]
    return [p for p in found if p.name != "__init__.py" and str(p.relative_to(package)) not in SEALED]


def _hash(paths: list[str], root: Path = ROOT) -> str:
    return hashlib.blake2b(b"".join((root / p).read_bytes() for p in paths), digest_size=8).hexdigest()


def shares(rows: list[dict[str, Any]]) -> str:
    """A line per room: how many of its mutants were killed, and the survivors below."""
    rooms: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        rooms[row["mutant"].partition("/")[0]].append(row)
    lines = []
    for room, its in sorted(rooms.items()):
        survivors = sorted(row["mutant"] for row in its if row["killer"] is None)
        killed = len(its) - len(survivors)
        lines.append(f"{room}: {killed} of {len(its)} killed ({killed / len(its):.1%})")
        lines += [f"  survived {survivor}" for survivor in survivors]
    return "\n".join(lines)


def main() -> None:
    """Draw mutants until the time is over, and print the share that was killed and who survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="+", help="labels, propagation, methods, gnns, or one file: labels/hops.py")
    parser.add_argument("--minutes", type=float, default=8.0, help="of CPU time, as other work may share the machine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=None, help="so many mutants of each room and no more")
    parser.add_argument("--json", type=Path, default=None, help="results, read at the start and written as they come")
    parser.add_argument("--only", default="", help="mutants alone that have these words in their line of the list")
    parser.add_argument("--list", action="store_true", help="print the mutants that would be drawn, and test none")
    asked = parser.parse_args()

    drawn = [m for m in draw(asked.rooms, asked.seed, asked.most) if asked.only in str(m)]
    if asked.list:
        print("\n".join(map(str, drawn)))
        return
    kept = json.loads(asked.json.read_text()) if asked.json and asked.json.exists() else {"mutants": {}, "calls": {}}
    known = kept["mutants"]
    results: dict[str, dict[str, Any]] = {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the copy goes away
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        shop = Workshop(Path(folder), kept["calls"])
        _preload(shop.folder, asked.rooms)
        for mutant in drawn:
            tests = _hash(files_for(mutant.module), shop.folder)
            row = known.get(mutant.name)
            if row is None or (row["killer"] is None and row["tests"] != tests):
                if sum(os.times()[:4]) > 60 * asked.minutes:
                    continue
                row = {"mutant": str(mutant), "killer": shop.killer(mutant), "tests": tests}
                print("survived" if row["killer"] is None else "killed  ", mutant, flush=True)
            known[mutant.name] = results[mutant.name] = row
            if asked.json:
                asked.json.write_text(json.dumps(kept, indent=1) + "\n")
    gc.unfreeze()
    print("", shares(list(results.values())), sep="\n")


if __name__ == "__main__":
    main()
