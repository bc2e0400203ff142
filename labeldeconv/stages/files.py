"""Files that are whole or not there: written under a temporary name, flushed, then renamed. Never pickle."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK = 1 << 24  # bytes read at a time
FICLONE = 0x40049409  # Linux: let two files share their blocks until one of them is written


def write_json(path: Path, value: Any) -> None:
    """Write JSON, complete or not at all."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text, complete or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


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
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_read_only(folder: Path) -> None:
    """Take the right to write from every file below a folder."""
    for path in files_in(folder):
        path.chmod(0o444)


def share(source: Path, target: Path) -> None:
    """Give a kept file or folder a second name that can never change the first.

    The new file shares the old one's blocks where the file system can (a reflink). Otherwise it is a hard link where
    the kept file is read-only to this user, and a copy where it is not, as for the superuser.
    """
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        for child in source.iterdir():
            share(child, target / child.name)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if _reflink(source, target):
        return
    if not os.access(source, os.W_OK):
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
