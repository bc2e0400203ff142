"""The stage cache and the files of a run directory: plain formats, atomic writes, never pickle.

A stage is keyed by a hash of its settings and of its inputs' keys. It is built in `KEY.partial`, which survives a kill
so that the next run resumes there, and renamed to `KEY` when `stage.json` (written last) is in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from platformdirs import user_cache_dir

MANIFEST = "stage.json"


@dataclass(frozen=True)
class Stage:
    """A finished stage: its files, its key, what it cost when it was computed, and whether that was just now."""

    name: str
    key: str
    path: Path
    seconds: float
    peak_mib: float | None
    cached: bool
    info: dict[str, Any]

    def array(self, name: str) -> np.ndarray:
        """NAME.npy of the stage, memory-mapped."""
        return np.load(self.path / f"{name}.npy", mmap_mode="r")


class Cache:
    """Finished stages by content key under one folder (LABELDECONV_CACHE, or the user's cache folder)."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or Path(os.environ.get("LABELDECONV_CACHE") or user_cache_dir("labeldeconv"))

    def stage(self, name: str, parts: Mapping[str, Any], build: Callable[[Path], Mapping[str, Any] | None]) -> Stage:
        """The stage with this key, from the cache or made by `build(folder)`.

        `build` may find an earlier attempt's files in its folder and go on from them. What it returns is kept in the
        manifest; 'seconds' there (for work spread over several attempts) replaces the measured time.
        """
        key = content_key({"stage": name, **parts})
        final = self.root / name / key
        if not (final / MANIFEST).exists():
            final.parent.mkdir(parents=True, exist_ok=True)
            (self.root / "locks").mkdir(exist_ok=True)
            with FileLock(self.root / "locks" / key):  # a second process waits, then finds the stage done
                if not (final / MANIFEST).exists():
                    self._build(name, key, final, parts, build)
                    return self._open(name, key, final, cached=False)
        return self._open(name, key, final, cached=True)

    def _build(
        self,
        name: str,
        key: str,
        final: Path,
        parts: Mapping[str, Any],
        build: Callable[[Path], Mapping[str, Any] | None],
    ) -> None:
        work = final.parent / f"{key}.partial"
        work.mkdir(exist_ok=True)
        _reset_peak_memory()
        start = time.perf_counter()
        info = dict(build(work) or {})
        seconds = info.pop("seconds", time.perf_counter() - start)
        manifest = {"name": name, "key": key, "parts": parts, "seconds": round(seconds, 3), "info": info}
        write_json(work / MANIFEST, {**manifest, "peak_mib": peak_memory_mib()})
        work.replace(final)

    def _open(self, name: str, key: str, path: Path, cached: bool) -> Stage:
        m = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        return Stage(name, key, path, m["seconds"], m["peak_mib"], cached, m["info"])


def content_key(parts: Mapping[str, Any]) -> str:
    """Stable hash of JSON-able settings and input keys."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def array_key(array: np.ndarray) -> str:
    """Hash of an array's type, shape and content."""
    head = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.blake2b(head + np.ascontiguousarray(array).tobytes(), digest_size=12).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write JSON under a temporary name, then rename."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text under a temporary name, then rename."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def link(source: Path, target: Path) -> None:
    """Put a cached file or folder into a run directory: a hard link where the file system allows it, else a copy."""
    if source.is_dir():
        for child in source.iterdir():
            link(child, target / child.name)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def peak_memory_mib() -> float | None:
    """Largest resident memory since the last reset; None where the system does not tell."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    return next((round(int(line.split()[1]) / 1024, 1) for line in status.splitlines() if line[:5] == "VmHWM"), None)


def _reset_peak_memory() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return
