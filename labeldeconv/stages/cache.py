"""The cache: finished stages by key under one folder, read-only, checked when opened, shared by all runs.

    CACHE/STAGE/KEY/            the files of a stage and stage.json, its manifest
    CACHE/STAGE/KEY.partial/    a stage being made; it survives a kill, and the next run goes on there
    CACHE/runs/                 which run directories used which stages

A stage is made in `KEY.partial`. Its manifest, written last, lists every file that belongs to the stage with size and
checksum. Then everything is flushed to the disk, what is not listed (checkpoints and the like) is deleted, and the
folder is made read-only and renamed to `KEY`: until the manifest is written nothing that a killed attempt needs is
gone, and afterwards nothing of it is needed. Whoever opens a stage compares it with its manifest, once per process by
content; a stage that is broken is made again, with a word. `labeldeconv cache` lists, verifies and prunes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platformdirs import user_cache_dir

from labeldeconv.errors import StorageError, plainly
from labeldeconv.progress import logger
from labeldeconv.stages.files import (
    checksum,
    files_in,
    flush,
    flush_folder,
    is_sealed,
    make_read_only,
    sealed,
    write_json,
)
from labeldeconv.stages.locks import locked

MANIFEST = "stage.json"
FORMAT = 3  # of the manifest; 2 had no checksum of its own
DAY = 86_400.0

Manifest = dict[str, Any]


class Broken(Exception):
    """A kept stage that cannot be used; the message says why."""


@dataclass(frozen=True)
class Kept:
    """A stage in the cache: how large it is, days since a run last used it, and the run directories that used it."""

    stage: str
    key: str
    path: Path
    bytes: int
    days: float
    used_by: list[str]


class Cache:
    """Finished stages under `root`: LABELDECONV_CACHE, or the user's cache folder."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = Path(root or os.environ.get("LABELDECONV_CACHE") or user_cache_dir("labeldeconv"))

    def obtain(self, stage: str, key: str, build: Callable[[Path], Manifest]) -> tuple[Path, Manifest, bool]:
        """Folder and manifest of a stage, and whether it was there already.

        `build(folder)` makes it and returns its manifest without files; it may find an earlier attempt's files.
        """
        final = self.root / stage / key
        try:
            return self._obtain(final, key, build)
        except Exception as error:
            told = plainly(error, final)
            if told is None:
                raise
            raise told from error

    def manifests(self, stage: str) -> list[tuple[str, Manifest]]:
        """Keys and manifests of all finished stages of a name, the one used last first; files are not compared."""
        found = []
        for path in (self.root / stage).glob("*"):
            if path.suffix != ".partial" and path.is_dir():
                try:
                    found.append(((path / MANIFEST).stat().st_mtime, path.name, read_manifest(path)))
                except (Broken, OSError, StorageError):
                    continue  # made again when somebody asks for it
        return [(key, manifest) for _, key, manifest in sorted(found, key=lambda each: (-each[0], each[1]))]

    def usable(self, stage: str, key: str) -> tuple[Path, Manifest] | None:
        """Folder and manifest of a finished stage whose files are as they were written; None for others."""
        folder = self.root / stage / key
        try:
            manifest = self._usable(folder)
        except (OSError, StorageError):
            return None
        return None if manifest is None else (folder, manifest)

    def _obtain(self, final: Path, key: str, build: Callable[[Path], Manifest]) -> tuple[Path, Manifest, bool]:
        if found := self._usable(final):
            return final, found, True
        final.parent.mkdir(parents=True, exist_ok=True)
        (self.root / "locks").mkdir(exist_ok=True)
        with locked(self.root / "locks" / key) as alone:  # a second process waits, then finds the stage done
            if found := self._usable(final, deletes=True):
                return final, found, True
            self._make(final, build, alone)
            manifest = read_manifest(final)
            _SEEN[final] = _marks(final, manifest)
        return final, manifest, False

    def _usable(self, folder: Path, deletes: bool = False) -> Manifest | None:
        """The manifest of a stage that can be opened; None where there is none, or a broken one.

        Who holds the stage's lock may delete what is broken, and says so.
        """
        if not folder.exists():
            return None
        try:
            manifest = read_manifest(folder)
            check_files(folder, manifest, content=not _seen(folder, manifest))
        except Broken as why:
            if deletes:
                logger.warning("%s is broken (%s) and is computed again", folder, why)
                delete_folder(folder)
            return None
        _SEEN[folder] = _marks(folder, manifest)
        _touch(folder / MANIFEST)
        return manifest

    def _make(self, final: Path, build: Callable[[Path], Manifest], alone: bool = True) -> None:
        """Make a stage; who may not be `alone`, for want of locks, works in a folder of its own, and the first wins."""
        own = "" if alone else f".{socket.gethostname()}-{os.getpid()}"
        work = final.with_name(f"{final.name}{own}.partial")
        work.mkdir(exist_ok=True)
        try:  # a kill between manifest and rename
            manifest = read_manifest(work, final.name)
            check_files(work, manifest, content=True)
        except Broken:
            (work / MANIFEST).unlink(missing_ok=True)
            manifest = build(work)
            listed = {str(p.relative_to(work)): [p.stat().st_size, checksum(p)] for p in _files_of(manifest, work)}
            manifest = sealed({"format": FORMAT, **manifest, "files": listed})
            write_json(work / MANIFEST, manifest)
        flush_folder(work)
        for path in files_in(work):
            if path.name != MANIFEST and str(path.relative_to(work)) not in manifest["files"]:
                path.unlink()
        make_read_only(work)
        try:
            work.replace(final)
        except OSError:
            if alone or not final.exists():
                raise
            shutil.rmtree(work)  # another process was faster, with the same result
        flush(final.parent)

    def remember(self, run: Path, keys: list[str]) -> None:
        """Note that a run directory was made of these stages, for `used_by`; a cache that cannot be written is not."""
        folder = self.root / "runs"
        name = hashlib.blake2b(str(run.resolve()).encode(), digest_size=8).hexdigest()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / f"{name}.json", {"run": str(run.resolve()), "stages": keys})
        except OSError as error:
            logger.warning("the run is complete, but the cache does not know of it: %s", plainly(error, folder))

    def stages(self) -> list[Kept]:
        """All finished stages, by name and age."""
        users: dict[str, list[str]] = {}
        for run, keys in self._runs():
            for key in keys:
                users.setdefault(key, []).append(run)
        found = []
        for path in sorted(self.root.glob("*/*")):
            if path.parent.name in ("locks", "runs") or not path.is_dir() or path.suffix == ".partial":
                continue
            size = sum(p.stat().st_size for p in files_in(path))
            marked = path / MANIFEST if (path / MANIFEST).exists() else path
            days = (time.time() - marked.stat().st_mtime) / DAY
            found.append(Kept(path.parent.name, path.name, path, size, days, users.get(path.name, [])))
        return sorted(found, key=lambda kept: (kept.stage, kept.days))

    def verify(self) -> list[tuple[Kept, str]]:
        """Stages whose files do not have the sizes and checksums of their manifest, each with the reason."""
        wrong = []
        for kept in self.stages():
            try:
                check_files(kept.path, read_manifest(kept.path), content=True)
            except (Broken, StorageError) as why:
                wrong.append((kept, str(why)))
        return wrong

    def prune(
        self, older_than_days: float | None = None, keep_bytes: int | None = None, run: Path | None = None
    ) -> list[Kept]:
        """Delete stages and say which: unused for so long; the longest unused until `keep_bytes` are left; of a run.

        With `run`, stages that no other run directory uses are deleted.
        """
        left = sorted(self.stages(), key=lambda kept: kept.days)
        chosen: dict[str, Kept] = {}
        if older_than_days is not None:
            chosen |= {k.key: k for k in left if k.days > older_than_days}
        if run is not None:
            only = [str(run.resolve())]
            chosen |= {k.key: k for k in left if k.used_by == only}
        if keep_bytes is not None:
            total = sum(k.bytes for k in left if k.key not in chosen)
            for kept in reversed(left):
                if total <= keep_bytes:
                    break
                if kept.key not in chosen:
                    chosen[kept.key] = kept
                    total -= kept.bytes
        for kept in chosen.values():
            delete_folder(kept.path)
        return list(chosen.values())

    def _runs(self) -> list[tuple[str, list[str]]]:
        """Run directories that are still there, with the keys of their stages."""
        found = []
        for path in (self.root / "runs").glob("*.json"):
            try:
                noted = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            if Path(noted["run"]).is_dir():
                found.append((noted["run"], noted["stages"]))
        return found


_SEEN: dict[Path, dict[str, tuple[int, ...]]] = {}  # stages whose content this process has compared, and their files


def _marks(folder: Path, manifest: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """What the system tells of a stage's files, which is another for a file that was written or replaced."""
    found: dict[str, tuple[int, ...]] = {}
    for name in manifest["files"]:
        status = (folder / name).stat()
        found[name] = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def _seen(folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether this process has compared the content of these very files."""
    try:
        return _SEEN.get(folder) == _marks(folder, manifest)
    except OSError:
        return False


def _files_of(manifest: Mapping[str, Any], work: Path) -> list[Path]:
    """Files that belong to a stage: those its artefact names, or, for a manifest that names none, all."""
    if "arrays" not in manifest or "paths" not in manifest:
        return list(files_in(work))
    named = [work / f"{array}.npy" for array in manifest["arrays"]]
    named += [work / path for path in manifest["paths"].values()]
    return sorted({file for path in named for file in (files_in(path) if path.is_dir() else [path])})


def read_manifest(folder: Path, key: str | None = None) -> Manifest:
    """The manifest of the stage `key`, by default the folder's name; `Broken` if missing, changed or another's."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except PermissionError:
        raise unreadable(path) from None
    except (OSError, ValueError):
        raise Broken(f"no readable {MANIFEST}") from None
    if not isinstance(manifest, dict) or manifest.get("format") not in (2, FORMAT):
        raise Broken(f"{MANIFEST} is of another format")
    if (manifest["format"] == FORMAT or "checksum" in manifest) and not is_sealed(manifest):
        raise Broken(f"{MANIFEST} has another content than when it was written")
    if manifest.get("key", expected := key or folder.name) != expected:
        raise Broken(f"{MANIFEST} is of the stage {manifest['key']}")
    for name in [*manifest["files"], *manifest.get("paths", {}).values(), *manifest.get("arrays", ())]:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise Broken(f"{MANIFEST} names files elsewhere")
    return manifest


def check_files(folder: Path, manifest: Mapping[str, Any], content: bool = False) -> None:
    """Compare a folder with its list of files, by size and, for `content`, by checksum; `Broken` names the first."""
    for name, (size, hashed) in manifest["files"].items():
        path = folder / name
        try:
            got = path.stat().st_size
            same = got == size and (not content or checksum(path) == hashed)
        except PermissionError:
            raise unreadable(path) from None
        except FileNotFoundError:
            raise Broken(f"{name} is missing") from None
        except OSError as error:
            raise Broken(f"{name} cannot be read: {error.strerror}") from None
        if got != size:
            raise Broken(f"{name} has {got} bytes instead of {size}")
        if not same:
            raise Broken(f"{name} has another content than when it was written")


def unreadable(path: Path) -> StorageError:
    """A file that belongs to somebody else: whose it is, and how to do without it."""
    try:
        owner = f"; it belongs to {path.owner()}"
    except (OSError, KeyError):
        owner = ""
    return StorageError(
        f"{path}: this user may not read it{owner}. Ask for `chmod a+rX`, or keep a cache of your own: "
        "LABELDECONV_CACHE=FOLDER"
    )


def delete_folder(folder: Path) -> None:
    """Delete a stage so that half of it is never taken for the whole: it loses its name first."""
    gone = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(gone, ignore_errors=True)
    folder.replace(gone)
    shutil.rmtree(gone)


def _touch(path: Path) -> None:
    try:
        os.utime(path)
    except OSError:
        return  # a cache that belongs to somebody else
