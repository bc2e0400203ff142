"""Files that are whole or not there: written under a temporary name, flushed, then renamed. Never pickle."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

BLOCK = 1 << 24  # bytes read at a time
FICLONE = 0x40049409  # Linux: let two files share their blocks until one of them is written


def write_json(path: Path, value: Any) -> None:
    """Write JSON, complete or not at all."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text, complete or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    with _named(path), temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_array(path: Path, array: np.ndarray) -> None:
    """Write a .npy file, complete or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    with _named(path), temporary.open("wb") as file:
        np.save(file, array)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def map_array(path: Path, shape: tuple[int, ...], dtype: np.typing.DTypeLike) -> np.memmap:
    """A new .npy file of zeros, memory-mapped for writing, whose blocks on the disk are all there.

    A write to a memory map that finds the disk full kills the process without a word (SIGBUS). So the blocks are taken
    first, and a full disk is an `OSError` here.
    """
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    with _named(path), path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.flush()
        size = file.tell() + int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            os.truncate(file.fileno(), size)  # a file system that cannot take blocks ahead
    return np.lib.format.open_memmap(path, mode="r+")


def scratch(folder: Path, name: str, shape: tuple[int, ...], dtype: np.typing.DTypeLike) -> np.memmap:
    """A memory map without a name: its file goes away with it, even after a kill."""
    path = folder / f"{name}.tmp.npy"
    out = map_array(path, shape, dtype)
    path.unlink()
    return out


def sealed(value: dict[str, Any]) -> dict[str, Any]:
    """A JSON object with the checksum of everything else in it, by which `is_sealed` finds a changed byte."""
    return {**value, "checksum": _seal(json.loads(json.dumps(value)))}  # as it will be read


def is_sealed(value: dict[str, Any]) -> bool:
    """Whether an object that `sealed` made is unchanged."""
    return value.get("checksum") == _seal({name: part for name, part in value.items() if name != "checksum"})


def _seal(value: dict[str, Any]) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def files_in(folder: Path) -> Iterator[Path]:
    """Every file below a folder, by name."""
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def checksum(path: Path) -> str:
    """Hash of a file's content."""
    digest = hashlib.blake2b(digest_size=12)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def flush_folder(folder: Path) -> None:
    """Bring every file below a folder, and the folders themselves, to the disk."""
    for path in [*folder.rglob("*"), folder]:
        flush(path)


def flush(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with _named(path):
            os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let an error inside name the file: what the system says of a failed write has no name."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def make_read_only(folder: Path) -> None:
    """Take the right to write from every file below a folder."""
    for path in files_in(folder):
        path.chmod(0o444)


def share(source: Path, target: Path, superuser_links: bool = False) -> None:
    """Give a kept file or folder a second name that cannot change the first.

    The new file shares the old one's blocks where the file system can (a reflink). Otherwise it is a hard link where
    the kept file is read-only to this user, and a copy where it is not. A read-only mode does not bind the superuser,
    who therefore gets a copy; with `superuser_links` he gets the link of a file that is read-only to all others, and
    what he writes there in place changes the kept file too, which its checksum tells.
    """
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        for child in source.iterdir():
            share(child, target / child.name, superuser_links)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if _reflink(source, target):
        return
    read_only = not source.stat().st_mode & 0o222
    if not os.access(source, os.W_OK) or (superuser_links and read_only):
        try:
            os.link(source, target)
            return
        except OSError:
            pass  # another file system, or one without links
    shutil.copyfile(source, target)


def _reflink(source: Path, target: Path) -> bool:
    with source.open("rb") as old, target.open("wb") as new:
        try:
            fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
            return True
        except OSError:
            pass
    target.unlink()
    return False
