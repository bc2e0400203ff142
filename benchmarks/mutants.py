"""Mutation testing: change one operator, constant or statement at a time, and see whether a test notices.

    python benchmarks/mutants.py labels propagation --minutes 8
    python benchmarks/mutants.py gnns methods --minutes 8 --seed 1 --json mutants.json

A mutant is killed where a test of its module fails or hangs: tests/ROOM/test_MODULE.py, the contract suite of the room
(tests/ROOM/test_ROOM.py) and tests/test_paper.py, in this order, up to the first failure. A survivor is a change that
no test sees: a missing test, or a change that means nothing. Mutants are drawn by seed over all modules, so that any
number of them is a fair sample. Work is done in a copy of the tree. Every mutant is a fork of a process that has torch
loaded already, and only tests that call the changed function are run, the quick ones first. `--json FILE` keeps the
results, and a run with the same file goes on where the last one ended: killed mutants stay killed while their module is
the same, survivors are tried again where a test has changed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
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
import traceback
import types
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
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
MEMORY = 8 << 30  # bytes a test may take: a wrong size must not take the machine
STARTUP, SLOW = 30.0, 4.0  # a test hangs where it takes so many seconds more than SLOW times the unchanged module


@dataclass(frozen=True)
class Mutant:
    """One change: the module's path below labeldeconv/, the line, the code before and after, and the whole source.

    `inside` is the first line of the function around it, 0 outside of any; `compiled` says that numba compiles that.
    """

    module: str
    line: int
    before: str
    after: str
    source: str
    inside: int = 0
    compiled: bool = False

    @property
    def name(self) -> str:
        """A key that changes with the module."""
        return hashlib.blake2b("\0".join(map(str, asdict(self).values())).encode(), digest_size=10).hexdigest()

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.before}  ->  {self.after}"


def mutants_of(source: str, module: str = "module.py") -> list[Mutant]:
    """Every mutant of a module's source, in the order of its lines."""
    tree = ast.parse(source)
    sites = list(_sites(tree))
    found = []
    for number, (node, _) in enumerate(sites):
        for kind in _kinds(node):
            changed = copy.deepcopy(tree)
            twin, replace = list(_sites(changed))[number]
            before = _short(node)
            after = _mutate(twin, kind)
            if after is not twin:
                replace(after)
            text = ast.unparse(ast.fix_missing_locations(changed))
            inside, compiled = _around(tree, node.lineno)
            found.append(Mutant(module, node.lineno, before, _short(after), text, inside, compiled))
    return found


def _around(tree: ast.AST, line: int) -> tuple[int, bool]:
    """First line, decorators included, of the innermost function around a line, and whether numba compiles it."""
    functions = [
        f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.lineno <= line <= (f.end_lineno or 0)
    ]
    if not functions:
        return 0, False
    inner = max(functions, key=lambda f: f.lineno)
    compiled = any("njit" in ast.unparse(d) for f in functions for d in f.decorator_list)
    return min([inner.lineno, *(d.lineno for d in inner.decorator_list)]), compiled


def _sites(tree: ast.AST) -> Iterator[tuple[ast.AST, object]]:
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
    text = ast.unparse(ast.fix_missing_locations(node)).strip().splitlines()[0]
    return text if len(text) <= 100 else text[:97] + "..."


def files_for(module: str) -> list[str]:
    """Test files that look at a module, the nearest first; a room without a suite of its own has none."""
    path = Path(module)
    room = path.parts[0]
    near = Path("tests") / path.parent / f"test_{path.name}"
    wanted = [near, Path("tests") / room / f"test_{room}.py", Path("tests/test_paper.py")]
    return [str(p) for p in wanted if (ROOT / p).exists()]


class Calls:
    """A plugin of pytest: which functions of the package each test calls, and how long it takes.

    What is called while a test is set up counts for all tests of its file, since fixtures are shared.
    """

    def __init__(self, package: Path) -> None:
        self.package = str(package) + os.sep
        self.tests: dict[str, dict[str, Any]] = {}
        self.seen: set[str] = set()
        self.shared: set[str] = set()

    def _watch(self, frame: types.FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(self.package):
            self.seen.add(f"{code.co_filename[len(self.package) :]}:{code.co_firstlineno}")
        elif event == "call" and code.co_name == "_execute_child":  # of subprocess: what it calls is not seen here
            self.seen.add(ANYTHING)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """After each of setup, call and teardown."""
        row = self.tests.setdefault(report.nodeid, {"seconds": 0.0, "calls": []})
        row["seconds"] += report.duration
        if report.when == "call":
            row["calls"] = sorted(self.seen)
        else:
            self.shared |= self.seen
        self.seen.clear()

    def pytest_sessionstart(self) -> None:
        """Begin to watch, in this thread and in those to come."""
        threading.setprofile(self._watch)
        sys.setprofile(self._watch)

    def pytest_sessionfinish(self) -> None:
        """End."""
        sys.setprofile(None)
        threading.setprofile(None)


class Workshop:
    """A copy of the tree in which modules are changed and tests run, each in a fork of this process."""

    def __init__(self, folder: Path, calls: dict[str, dict[str, Any]] | None = None) -> None:
        self.folder = folder
        self.calls = {} if calls is None else calls  # by test file: its key, and its tests with seconds and calls
        for name in KEPT:
            source, target = ROOT / name, folder / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy(source, target)

    def passes(self, tests: list[str], timeout: float, calls: Calls | None = None) -> bool:
        """Whether tests pass in the tree as it is; hanging ones do not."""
        begin, child = time.monotonic(), os.fork()
        if child == 0:
            self._run(tests, calls)
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status) == 0
            if time.monotonic() - begin > timeout:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return False
            time.sleep(0.02)

    def unchanged(self, file: str) -> dict[str, dict[str, Any]]:
        """Tests of a file by name with their seconds and calls, on the unchanged tree, where they have to pass."""
        key = _hash([file, *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "labeldeconv").rglob("*.py")))])
        if self.calls.get(file, {}).get("key") != key:
            if not self.passes([file], 900.0, Calls(self.folder / "labeldeconv")):
                sys.exit(f"{file} fails without any mutant")
            self.calls[file] = {"key": key, "tests": json.loads((self.folder / "calls.json").read_text())}
        return self.calls[file]["tests"]

    def chosen(self, mutant: Mutant, file: str) -> tuple[list[str], float]:
        """Tests of a file that call the function of a mutant, the quick ones first, and their seconds.

        Where that cannot be told (outside of functions, in compiled ones, in other processes) it is the whole file,
        if that is the module's own.
        """
        tests = self.unchanged(file)
        function = f"{mutant.module}:{mutant.inside}"
        own = file == files_for(mutant.module)[0]
        sought = {function, ANYTHING} if own else {function}
        names = [name for name, row in tests.items() if sought & set(row["calls"])]
        if (not mutant.inside or mutant.compiled or not names) and own:
            names = list(tests)
        names.sort(key=lambda name: tests[name]["seconds"])
        return names, sum(tests[name]["seconds"] for name in names)

    def killer(self, mutant: Mutant) -> str | None:
        """The first test file that fails on a mutant; None where it survives."""
        path = self.folder / "labeldeconv" / mutant.module
        original, before = path.read_text(), path.stat()
        for file in files_for(mutant.module):
            tests, seconds = self.chosen(mutant, file)
            if not tests:
                continue
            path.write_text(mutant.source)
            passed = self.passes(tests, STARTUP + SLOW * seconds)
            path.write_text(original)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # what numba has compiled of it still counts
            if not passed:
                return file
        return None

    def _run(self, tests: list[str], calls: Calls | None) -> None:
        """In the child: pytest on the copy, silent, with a group of processes of its own."""
        os.setpgid(0, 0)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os.chdir(self.folder)
        sys.path.insert(0, str(self.folder))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        sys.dont_write_bytecode = True  # files change within one second, which the times in .pyc files do not tell
        import pytest

        code = 1
        try:
            already = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"  # plugins of pytest, preloaded
            options = ["-x", "-p", "no:cacheprovider", f"--basetemp={self.folder / 'tmp'}", "-W", already]
            code = int(pytest.main([*options, *tests], plugins=[calls] if calls else []))
            if calls:
                rows = {
                    name: {**row, "calls": sorted({*row["calls"], *calls.shared})} for name, row in calls.tests.items()
                }
                (self.folder / "calls.json").write_text(json.dumps(rows))
        except BaseException:
            traceback.print_exc()
        os._exit(code)


def _preload() -> None:
    """What every test imports, loaded once; nothing of labeldeconv, and nothing that starts a thread."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    import duckdb  # noqa: F401
    import numba  # noqa: F401
    import pydantic  # noqa: F401
    import pytest  # noqa: F401
    import scipy.sparse.csgraph  # noqa: F401
    import sklearn.feature_extraction.text  # noqa: F401
    import torch
    import torch_geometric.nn  # noqa: F401
    import transformers  # noqa: F401

    torch.set_num_threads(1)


def _modules(rooms: list[str]) -> list[Path]:
    package = ROOT / "labeldeconv"
    found = [p for room in rooms for p in sorted((package / room).rglob("*.py"))]
    return [p for p in found if p.name != "__init__.py" and str(p.relative_to(package)) not in SEALED]


def _hash(paths: list[str]) -> str:
    return hashlib.blake2b(b"".join((ROOT / p).read_bytes() for p in paths), digest_size=8).hexdigest()


def main() -> None:
    """Draw mutants until the time is over, and print the share that was killed and who survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="+", help="labels, propagation, methods, gnns, or one file: labels/hops.py")
    parser.add_argument("--minutes", type=float, default=8.0, help="of CPU time, as other work may share the machine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=None, help="so many mutants and no more")
    parser.add_argument("--json", type=Path, default=None, help="results, read at the start and written as they come")
    parser.add_argument("--list", action="store_true", help="print the mutants that would be drawn, and test none")
    asked = parser.parse_args()

    rooms = [r for r in asked.rooms if not r.endswith(".py")]
    paths = _modules(rooms) + [ROOT / "labeldeconv" / r for r in asked.rooms if r.endswith(".py")]
    drawn = [m for p in paths for m in mutants_of(p.read_text(), str(p.relative_to(ROOT / "labeldeconv")))]
    random.Random(asked.seed).shuffle(drawn)
    everything = len(drawn)
    drawn = drawn[: asked.most]
    if asked.list:
        print("\n".join(map(str, drawn)))
        return
    kept = json.loads(asked.json.read_text()) if asked.json and asked.json.exists() else {"mutants": {}, "calls": {}}
    known = kept["mutants"]
    _preload()
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        shop = Workshop(Path(folder), kept["calls"])
        for mutant in drawn:
            tests = _hash(files_for(mutant.module))
            row = known.get(mutant.name)
            if row is None or (row["killer"] is None and row["tests"] != tests):
                if sum(os.times()[:4]) > 60 * asked.minutes:
                    continue
                row = {"mutant": str(mutant), "killer": shop.killer(mutant), "tests": tests}
                print("survived" if row["killer"] is None else "killed  ", mutant, flush=True)
            known[mutant.name] = results[mutant.name] = row
            if asked.json:
                asked.json.write_text(json.dumps(kept, indent=1) + "\n")
    survivors = [str(row["mutant"]) for row in results.values() if row["killer"] is None]
    killed = len(results) - len(survivors)
    print(f"\n{killed} of {len(results)} killed ({killed / max(len(results), 1):.1%}), of {everything} mutants in all")
    for survivor in sorted(survivors):
        print("  survived", survivor)


if __name__ == "__main__":
    main()
