"""Memory held: a run with `max_memory` refuses a stage that would need more, before the stage starts.

    with limited("2GiB"):
        check_room("hops", 12 * entries, "labels.store uint16 halves it")     # first lines of a stage

What counts is memory that the system cannot take back (anonymous memory): pages of memory-mapped files are in the page
cache, which shrinks when others need it. A stage that can work in smaller blocks asks `room` for their size; blocks
change no result. The formula of a stage stands in the stage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from labeldeconv.errors import ConfigError, NotEnoughMemory
from labeldeconv.stages.memory import MIB, anonymous_memory_mib

UNITS = {"MB": 10**6, "GB": 10**9, "MiB": 1 << 20, "GiB": 1 << 30}
SPARE = 64 << 20  # bytes for what no formula counts: Python's own objects, buffers of files, log rows

SPILLS, LEAST_SPILL = 2 * 10**9, 64 * 10**6  # bytes of duckdb; with less it cannot sort

_most: ContextVar[int | None] = ContextVar("most", default=None)


@contextmanager
def limited(most: str | None) -> Iterator[None]:
    """Inside, stages are held to so much memory, such as '2GiB'; None sets no limit."""
    before = _most.set(None if most is None else bytes_of(most))
    try:
        yield
    finally:
        _most.reset(before)


def bytes_of(text: str) -> int:
    """'2GiB', '1.5 GB' or '800MiB' in bytes."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", text)
    if found is None or found[2] not in UNITS or not float(found[1]):
        raise ConfigError(f"max_memory: a number above 0 with one of {', '.join(UNITS)} expected, got '{text}'")
    return int(float(found[1]) * UNITS[found[2]])


def room() -> int | None:
    """Bytes that may still be taken; None without a limit, or where the system does not tell what is used."""
    most, used = _most.get(), anonymous_memory_mib()
    return None if most is None or used is None else max(0, most - int(used * MIB) - SPARE)


def check_room(label: str, needed: float, advice: str) -> None:
    """Refuse the stage `label`, which needs so many bytes at its peak, where that is more than there is room for."""
    left = room()
    if left is None or needed <= left:
        return
    most = _most.get() or 0
    used = most - left  # what is taken, and what is spared
    raise NotEnoughMemory(
        f"{label}: needs about {_told(needed)} beside {_told(used)} that are taken, {_told(needed + used)} in all; "
        f"max_memory is {_told(most)}. {advice}, or raise max_memory; finished stages are kept"
    )


def spill_limit() -> str:
    """What an engine that spills to disk may hold, in its words: 2 GB, or half of what a limit leaves, if less."""
    left = room()
    size = SPILLS if left is None else min(SPILLS, max(left // 2, LEAST_SPILL))
    return f"{size // 10**6}MB"


def _told(size: float) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 1 << 30 else f"{size / MIB:.0f} MiB"
