"""A stage is a function: it sees its arguments and nothing else, and its result is kept under a key derived from them.

    @stage(version=1)
    def hops(out: Folder, Y: Labels, graph: Annotated[AttributedGraph, Reads("edges", "num_nodes")], ...) -> HopLabels:
        ...
        return HopLabels(K)

    K = hops(Y, graph, adjacency, 2)      # computed, or opened from the cache

`out` is given by the decorator: the folder that takes the stage's files, where a killed attempt is found again. The
result is an `Artefact`: a frozen dataclass whose arrays are kept as .npy files, whose paths name files that the stage
wrote, and whose other fields are plain values. Files that no field names, such as checkpoints, go when the stage is
done. A stage's version is raised when its code gives other results, so that a new release never serves an old release's
numbers.

Under `torchrun` a stage is made by rank 0, and the other ranks open it (stages/ranks.py). One that is declared
`parallel` is run by all ranks in the same folder: its function shares its work out, and rank 0 alone writes the
files that it does not share and returns the artefact.

Where results are kept, and who hears of progress, is said by `session`; both cannot change a result.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, get_type_hints

import numpy as np
from pydantic import BaseModel

from labeldeconv.errors import LabelDeconvError, StorageError, plainly
from labeldeconv.progress import logger
from labeldeconv.stages import ranks
from labeldeconv.stages.cache import Broken, Cache, Manifest, check_files, read_manifest
from labeldeconv.stages.keys import Idle, Reading, Reads, Younger, digest, token
from labeldeconv.stages.memory import peak_accelerator_mib, peak_memory_mib, reset_peak_memory
from labeldeconv.stages.watch import Log, Watch

Shared = bool | Callable[[Mapping[str, Any]], bool]  # whether ranks make a stage together, or a function that says so


@dataclass(frozen=True)
class Made:
    """How an artefact was made: by which stage, under which key, where, at what cost, and whether it was just now."""

    stage: str
    key: str
    path: Path
    seconds: float
    peak_mib: float | None
    cached: bool
    peak_accelerator_mib: float | None = None


@dataclass(frozen=True, eq=False)
class Artefact:
    """The typed result of a stage; `made` says how it came about.

    Fields `seconds` and `peak_mib` replace what was measured.
    """

    @property
    def made(self) -> Made:
        """How it was made; set by the stage mechanism."""
        return self.__dict__["_made"]

    @property
    def content_key(self) -> str:
        """Its key, which stands for its content in the keys of later stages."""
        return self.made.key


@dataclass(frozen=True)
class Folder:
    """Where a stage works: `path` takes its files, `label` names its bar, `watch` hears the rows of its log."""

    path: Path
    label: str = "stage"
    watch: Watch = field(default_factory=lambda: Watch("stage"))


@dataclass(frozen=True)
class Use:
    """A stage that a run has used, under the label it had there; `reads` are the settings it read, if it ran."""

    label: str
    artefact: Artefact
    reads: frozenset[str]


@dataclass
class Session:
    """Where stages are kept while a run goes on, and the account of those it used, in order, each once."""

    cache: Cache
    log: Log | None = None
    used: list[Use] = field(default_factory=list)

    def account(self, label: str, artefact: Artefact, reads: set[str]) -> Artefact:
        """Note a use; a stage used before keeps its first label and cost, and two different ones never share one."""
        for use in self.used:
            if use.artefact.made.key == artefact.made.key:
                return use.artefact  # which knows whether this run computed it
        taken = {use.label for use in self.used}
        name, number = label, 2
        while name in taken:
            name, number = f"{label} {number}", number + 1
        self.used.append(Use(name, artefact, frozenset(reads)))
        return artefact


_current: ContextVar[Session | None] = ContextVar("session", default=None)


@contextmanager
def session(cache: Cache | None = None, log: Log | None = None) -> Iterator[Session]:
    """Inside, stages are kept in `cache`, rows of their logs go to `log`, and what was used is accounted for."""
    opened = Session(cache or Cache(), log)
    before = _current.set(opened)
    try:
        yield opened
    finally:
        _current.reset(before)


_part: ContextVar[str] = ContextVar("part", default="")


@contextmanager
def part_of_run(name: str) -> Iterator[None]:
    """Inside, labels of stages start with a name: those of one candidate among several."""
    before = _part.set(f"{name}: ")
    try:
        yield
    finally:
        _part.reset(before)


def current_cache() -> Cache:
    """The cache of the open session, the default one outside: for stages made of others, which open one of their own.

    What those use is then accounted for by them, and not as stages of the run.
    """
    opened = _current.get()
    return opened.cache if opened else Cache()


P = ParamSpec("P")
A = TypeVar("A", bound=Artefact)


class Stage(Generic[P, A]):
    """A function with `out` first, called without it."""

    def __init__(self, function: Callable[Concatenate[Folder, P], A], version: int, parallel: Shared = False) -> None:
        self.function, self.version, self.parallel = function, version, parallel
        self.name = function.__name__
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> A:
        """The artefact of these arguments, from the cache or computed now."""
        return self._obtain(self.name, args, kwargs)

    def called(self, label: str) -> Callable[P, A]:
        """The same stage under another label in bars and accounts, for stages that a run uses several times."""

        def call(*args: P.args, **kwargs: P.kwargs) -> A:
            return self._obtain(label, args, kwargs)

        return call

    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The key of these arguments."""
        return self._key(self._given(args, kwargs, set()))

    def kept(self, **arguments: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """Keys of the results in the cache that were made with these arguments, the one used last first.

        With each come the tokens of all its arguments, by name.
        """
        wanted = {name: token(value) for name, value in arguments.items()}
        for key, manifest in current_cache().manifests(self.name):
            held = manifest["arguments"]
            if manifest["version"] == self.version and all(held.get(name) == value for name, value in wanted.items()):
                yield key, held

    def opened(self, key: str) -> A | None:
        """The result of a key, if it is in the cache and as it was written; nothing is computed or accounted for."""
        if (found := current_cache().usable(self.name, key)) is None:
            return None
        path, manifest = found
        made = Made(self.name, key, path, manifest["seconds"], manifest["peak_mib"], True)
        try:
            return cast(A, _opened(self._returns, path, manifest, made))
        except OSError:  # pruned since
            return None

    def _obtain(self, label: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> A:
        reads: set[str] = set()
        label = _part.get() + label
        given = self._given(args, kwargs, reads)
        key = self._key(given)
        where = _current.get() or Session(Cache())

        def build(folder: Path) -> Manifest:
            watch = Watch(label, where.log)
            parallel = self.parallel(given) if callable(self.parallel) else self.parallel
            if parallel:
                ranks.tell({**known, "make": str(folder)})
            logger.debug("%s: started, in %s", label, folder)
            reset_peak_memory()
            start = time.perf_counter()
            try:
                with nullcontext() if parallel else ranks.by_itself():
                    artefact = self.function(Folder(folder, label, watch), **given)  # type: ignore[call-arg]
            except (MemoryError, RuntimeError) as error:
                if (told := plainly(error, label)) is None:
                    raise
                raise told from error
            seconds = getattr(artefact, "seconds", time.perf_counter() - start)
            head = {"stage": self.name, "version": self.version, "key": key, "arguments": self._tokens(given)}
            peaks = {"peak_mib": peak_memory_mib(), "peak_accelerator_mib": peak_accelerator_mib()}
            peaks |= {name: getattr(artefact, name, peak) for name, peak in peaks.items()}  # of stages made of others
            return {**head, "seconds": round(seconds, 3), **peaks, **_written(artefact, folder)}

        ranks.at(f"the stage '{label}'")
        known: dict[str, Any] = {}
        if ranks.world() > 1:
            known = {"stage": self.name, **{name: digest(held) for name, held in self._tokens(given).items()}}
        if ranks.world() > 1 and not ranks.leads():
            path, manifest, cached = self._followed(known, label, given)
        else:
            try:
                path, manifest, cached = where.cache.obtain(self.name, key, build)
            except LabelDeconvError as error:
                ranks.tell({**known, "failed": str(error)})
                raise
            ranks.tell({**known, "open": str(path), "cached": cached})
        peaks = manifest["peak_mib"], manifest.get("peak_accelerator_mib")  # the latter is younger than kept stages
        made = Made(self.name, key, path, manifest["seconds"], peaks[0], cached, peaks[1])
        artefact = cast(A, _opened(self._returns, path, manifest, made))
        first = where.account(label, artefact, reads)
        if first is artefact:
            if cached:
                Watch(label, where.log).replay_stage(path)
            told = " when computed, now from the cache" if cached else ""
            logger.info("%-10s %8.1f s%s", label, made.seconds, told)
        return cast(A, first)

    def _heard(self, known: Mapping[str, Any], label: str) -> dict[str, Any]:
        """What rank 0 tells of this stage; refused where it has another one, or with other arguments."""
        told = ranks.hear()
        if wrong := [name for name, held in known.items() if told.get(name) != held]:
            what = f"in {', '.join(wrong)}"
            raise StorageError(f"{label}: rank {ranks.rank()} differs from rank 0 {what}; ranks need the same input")
        return told

    def _followed(self, known: Mapping[str, Any], label: str, given: Mapping[str, Any]) -> tuple[Path, Manifest, bool]:
        """Folder and manifest of the stage that rank 0 makes, with the help of this rank if it is parallel."""
        told = self._heard(known, label)
        if "make" in told:
            self.function(Folder(Path(told["make"]), label), **given)  # type: ignore[call-arg]
            told = self._heard(known, label)
        if "failed" in told:
            raise ranks.Lost(told["failed"], told=True)
        path = Path(told["open"])
        try:
            if not ranks.appears(path):
                raise Broken(f"not to be seen by rank {ranks.rank()}")
            manifest = read_manifest(path)
            check_files(path, manifest)  # by size: rank 0 has compared the content
        except Broken as why:
            raise StorageError(f"{path}: {why}") from None
        return path, manifest, told["cached"]

    def _given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], reads: set[str]) -> dict[str, Any]:
        """Arguments by name, defaults included, narrowed to what the stage declares that it reads."""
        _out, *rest = self._signature.parameters.values()
        bound = self._signature.replace(parameters=rest).bind(*args, **kwargs)
        bound.apply_defaults()
        out = {}
        for name, value in bound.arguments.items():
            declared = next((mark.names for mark in self._marks(name) if isinstance(mark, Reads)), None)
            if declared is not None and value is not None:
                value = Reading(value, declared, reads, f"{name}.")
            elif isinstance(value, BaseModel):
                value = Reading(value, None, reads, f"{name}.")
            out[name] = value
        return out

    def _tokens(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {name: token(value) for name, value in given.items() if not self._unkeyed(name, value)}

    def _unkeyed(self, name: str, value: Any) -> bool:
        """Whether an argument is not in the key: an idle one, or a younger one that has its default."""
        marks = self._marks(name)
        if any(mark is Younger for mark in marks) and value == self._signature.parameters[name].default:
            return True
        return any(mark is Idle for mark in marks)

    def _key(self, given: Mapping[str, Any]) -> str:
        return digest({"stage": self.name, "version": self.version, "arguments": self._tokens(given)})

    @functools.cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @functools.cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.function, include_extras=True)

    @functools.cached_property
    def _returns(self) -> type[Artefact]:
        return self._hints["return"]

    def _marks(self, name: str) -> tuple[Any, ...]:
        return getattr(self._hints.get(name), "__metadata__", ())


def stage(version: int, parallel: Shared = False) -> Callable[[Callable[Concatenate[Folder, P], A]], Stage[P, A]]:
    """Make a function a stage.

    Args:
        version: raised whenever its code gives other results.
        parallel: run by all ranks together, not by rank 0 alone; a function of the arguments by name may decide.
    """
    return lambda function: Stage(function, version, parallel)


def _written(artefact: Artefact, folder: Path) -> Manifest:
    """The part of the manifest that says what the artefact holds; arrays are written where the stage has not."""
    arrays, paths, values = [], {}, {}
    for item in fields(artefact):
        value = getattr(artefact, item.name)
        if isinstance(value, np.ndarray):
            arrays.append(item.name)
            _write_array(value, folder / f"{item.name}.npy")
        elif isinstance(value, Path):
            paths[item.name] = str(value.relative_to(folder))
        else:
            values[item.name] = value
    return {"arrays": arrays, "paths": paths, "values": values}


def _write_array(value: np.ndarray, path: Path) -> None:
    if isinstance(value, np.memmap) and value.filename and path.exists() and path.samefile(value.filename):
        value.flush()  # the very file, whatever its name: numpy resolves links, and a cache may lie behind one
        return
    with path.open("wb") as file:
        np.save(file, value)


def _opened(kind: type[Artefact], path: Path, manifest: Manifest, made: Made) -> Artefact:
    """An artefact from its folder, its arrays memory-mapped."""
    try:
        held: dict[str, Any] = {name: open_array(path / f"{name}.npy") for name in manifest["arrays"]}
    except (ValueError, EOFError) as error:  # which checksums exclude, unless somebody has forged them
        raise StorageError(f"{path}: not what labeldeconv keeps ({error}); delete it, it is made again") from None
    held |= {name: path / inside for name, inside in manifest["paths"].items()}
    artefact = kind(**held, **manifest["values"])
    artefact.__dict__["_made"] = made
    return artefact


def open_array(path: Path) -> np.ndarray:
    """A .npy file, memory-mapped for reading; an empty one is read."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array if array.size else np.array(array)
