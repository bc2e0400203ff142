"""The exceptions users may catch; the command line prints their message without a traceback."""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

CACHE_ADVICE = "or keep the cache elsewhere (LABELDECONV_CACHE=FOLDER) or the run (--out FOLDER)"
RESUME_ADVICE = "the same command goes on where this one stopped"
STORAGE_ADVICE = {  # by the number of the system's error: what is wrong, and what to do
    errno.ENOSPC: ("the disk is full", f"make room (`labeldeconv cache prune`), {CACHE_ADVICE}; {RESUME_ADVICE}"),
    errno.EDQUOT: ("the disk quota is used up", f"make room (`labeldeconv cache prune`), {CACHE_ADVICE}"),
    errno.EFBIG: ("the file would be larger than this user or file system may have", f"raise that, {CACHE_ADVICE}"),
    errno.EACCES: ("no permission", f"ask its owner for the right to read and write it, {CACHE_ADVICE}"),
    errno.EPERM: ("not permitted", f"ask its owner for the right to read and write it, {CACHE_ADVICE}"),
    errno.EROFS: ("the file system is read-only", f"make it writable, {CACHE_ADVICE}"),
    errno.EIO: ("the disk fails (input/output error)", f"look at the disk, {CACHE_ADVICE}; {RESUME_ADVICE}"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter --out"),
    errno.ENOTDIR: ("a file stands where a folder is meant", f"move it away, {CACHE_ADVICE}"),
    errno.EISDIR: ("a folder stands where a file is meant", f"move it away, {CACHE_ADVICE}"),
    errno.EEXIST: ("it is in the way", f"move it away, {CACHE_ADVICE}"),
    errno.ENOENT: ("there is no such file or folder", f"look whether it was deleted meanwhile; {RESUME_ADVICE}"),
    errno.EMFILE: ("too many open files", "raise the limit (ulimit -n)"),
}
MEMORY_ADVICE = (
    "lower train.batch_nodes and train.batch_tokens, set train.gradient_checkpointing=true or gnn.batching=neighbors "
    "(gnn.batch_nodes), take part of the graph (--max-nodes), or more memory; `fit --find-batch` measures what fits"
)
OUT_OF_MEMORY = re.compile(r"can't allocate memory|out of memory|Unable to allocate|Cannot allocate memory", re.I)


class LabelDeconvError(Exception):
    """Base of every error that is the input's fault, not the program's."""


class DataError(LabelDeconvError):
    """The data cannot be used. `problems` lists everything that is wrong, each with file, row and column."""

    def __init__(self, title: str, problems: Sequence[str] = ()) -> None:
        self.problems = list(problems)
        super().__init__("\n".join([title, *(f"  - {p}" for p in self.problems)]))


class ConfigError(LabelDeconvError):
    """A setting has an unknown name or a value that is not accepted."""


class NotFinite(LabelDeconvError):
    """A loss, a feature, a logit or a weight is NaN or infinite. The message names the stage and the nodes."""


class StorageError(LabelDeconvError):
    """A file or folder cannot be read or written. The message names it and says what to do."""


class NotEnoughMemory(LabelDeconvError):
    """The memory of the machine or of a device is used up. The message says what to set."""


class MissingExtra(LabelDeconvError):
    """An optional dependency is needed. The message names the extra to install."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the extra '{extra}': pip install 'labeldeconv[{extra}]'")


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a mistyped `name`: the nearest of the `known` ones, then all of them."""
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"{hint}known: {', '.join(options)}"


def plainly(error: BaseException, where: str | Path) -> LabelDeconvError | None:
    """An error of the disk or of memory as one line that says what to do; None for errors of other kinds.

    Args:
        where: the folder at hand, named where the error does not name a file: a failed write knows no name.
    """
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(str(error))):
        return NotEnoughMemory(f"{where}: not enough memory ({_first_line(error)}); {MEMORY_ADVICE}")
    number = error.errno if isinstance(error, OSError) else _number_inside(error)
    if number == errno.ENOMEM:
        return NotEnoughMemory(f"{where}: not enough memory; {MEMORY_ADVICE}")
    if not isinstance(error, OSError) and number is None:
        return None
    path = next((name for name in (getattr(error, "filename2", None), getattr(error, "filename", None)) if name), where)
    what, advice = STORAGE_ADVICE.get(number or 0, (_first_line(error), f"mend that, {CACHE_ADVICE}; {RESUME_ADVICE}"))
    return StorageError(f"{os.fspath(path)}: {what}; {advice}")


def _number_inside(error: BaseException) -> int | None:
    """The number of the system's error in one of safetensors, whose writer is no Python: 'Os { code: 28, ... }'."""
    found = re.search(r"Os \{ code: (\d+)", str(error)) if type(error).__name__ == "SafetensorError" else None
    return int(found[1]) if found else None


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
