"""Locks between processes: a file that one process holds, with its name inside for those who wait.

The system takes the lock from a process that dies, so that nobody waits for the dead. The file is deleted by its owner;
who has waited for a file that is gone tries again.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labeldeconv.progress import logger, say_once

PATIENCE = 2.0  # seconds of waiting before it is said
POLL = 0.05  # seconds between two tries
WITHOUT = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)  # a file system that has no locks


class Held(Exception):
    """Another process holds the lock; the message says which."""


@contextmanager
def locked(path: Path, waits: bool = True) -> Iterator[bool]:
    """Hold the lock `path`; who cannot wait gets `Held`. After PATIENCE seconds it is said whom one waits for.

    False where the file system has no locks: others may be inside at the same time, and it is said once.
    """
    handle = _acquire(path, waits)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            try:
                path.unlink(missing_ok=True)
            except OSError:
                logger.debug("%s: the lock's file stays", path)
            os.close(handle)  # which gives the lock back


def _acquire(path: Path, waits: bool) -> int | None:
    start, told = time.monotonic(), False
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = _owner(handle)
            os.close(handle)
            if error.errno in WITHOUT:
                path.unlink(missing_ok=True)
                say_once(
                    f"{path.parent}: this file system has no locks, so that two processes may do the same work; never "
                    "let two of them write one run directory"
                )
                return None
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            if not waits:
                raise Held(owner) from None
            if not told and time.monotonic() - start >= PATIENCE:
                told = True
                logger.warning("waiting for %s, which has %s", owner, path)
            time.sleep(POLL)
            continue
        if _same_file(handle, path):
            _sign(handle)
            return handle
        os.close(handle)  # its owner has deleted it meanwhile


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _sign(handle: int) -> None:
    """Write who holds the lock; a lock without a name, on a full disk, holds too."""
    try:
        os.truncate(handle, 0)
        os.pwrite(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
    except OSError:
        logger.debug("the lock has no name")


def _owner(handle: int) -> str:
    """'process 12 on host', as the owner has signed."""
    try:
        signed: Any = json.loads(os.pread(handle, 4096, 0))
        return f"process {int(signed['pid'])} on {signed['host']}"
    except (OSError, ValueError, TypeError, KeyError):
        return "another process"
