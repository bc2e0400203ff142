"""Memory of this process and of the accelerators it uses: the peak since a reset, and what is free. In MiB."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MIB = 1 << 20
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # numbers of mallopt(3)
LARGE_BLOCK = 1 << 20  # bytes that are returned to the system when they are freed, where that is asked for
_keeping: list[bool] = []  # not empty inside `freed_memory_kept`
LIMITS = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))


def peak_memory_mib() -> float | None:
    """Largest resident memory since the last reset; None where the system does not tell."""
    return _status("VmHWM")


def resident_memory_mib() -> float | None:
    """Resident memory now; None where the system does not tell."""
    return _status("VmRSS")


def anonymous_memory_mib() -> float | None:
    """Resident memory that is no file's and so cannot be taken back; None where the system does not tell."""
    return _status("RssAnon")


def peak_accelerator_mib() -> float | None:
    """Largest memory of tensors since the last reset, on the fullest accelerator; None where there is none."""
    devices = _accelerators()
    if devices is None:
        return None
    module, count = devices
    return round(max(module.max_memory_allocated(index) for index in range(count)) / MIB, 1)


def reset_peak_memory() -> None:
    """Let `peak_memory_mib` and `peak_accelerator_mib` start again from what is used now."""
    devices = _accelerators()
    if devices is not None:
        module, count = devices
        for index in range(count):
            module.reset_peak_memory_stats(index)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def free_memory_mib(groups: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Memory that can still be had, of the machine or of the container if that is less; None where nobody tells."""
    return _least_memory_mib("MemAvailable", groups, free=True)


def total_memory_mib(groups: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Memory of the machine, or of the container if that is less, whoever uses it now; None where nobody tells."""
    return _least_memory_mib("MemTotal", groups, free=False)


def _least_memory_mib(line: str, groups: Path, free: bool) -> float | None:
    """The least of what a line of the machine's account and limits of containers tell, less what is used if `free`."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    told = [int(row.split()[1]) / 1024 for row in lines if row.startswith(line)]
    for most, used in LIMITS:
        try:
            spent = int((groups / used).read_text()) if free else 0
            told.append((int((groups / most).read_text()) - spent) / MIB)
        except (OSError, ValueError):  # no container, or no limit ('max')
            continue
    return round(max(min(told), 0.0), 1) if told else None


def return_freed_memory() -> None:
    """Give memory that was freed back to the system, so that the next measurement does not count it."""
    devices = _accelerators()
    if devices is not None:
        devices[0].empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
    if trim is not None:
        trim(0)


def return_large_blocks() -> None:
    """Let blocks of 1 MiB and more go back to the system as soon as they are freed, from now on.

    glibc raises its own bound up to 32 MiB with every large block that is freed, and then keeps such holes: of an
    encoder in shards, whose layers are gathered and freed all the time, it held 680 MiB where 253 were in use.
    """
    change = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc alone has it
    if change is not None:
        change(MMAP_THRESHOLD, LARGE_BLOCK)


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Let the process keep what it frees, inside this block, and use it again.

    glibc returns every large array to the system at once, and gets the next one page by page, each cleared: doubling
    70 MB took 52 ms, of which 44 went into that. What was kept is given back at the end. Elsewhere it does nothing.
    """
    change = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc alone has it
    if change is None or _keeping:
        yield
        return
    _keeping.append(True)
    change(MMAP_MAX, 0)
    change(TRIM_THRESHOLD, -1)
    try:
        yield
    finally:
        change(MMAP_MAX, 1 << 16)  # glibc's own values
        change(TRIM_THRESHOLD, 1 << 17)
        _keeping.clear()
        return_freed_memory()


def _accelerators() -> tuple[Any, int] | None:
    """The module that knows the accelerators' memory, and their number; None without torch or without any.

    torch is not imported for it: a program that has not loaded torch uses no accelerator.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.accelerator.is_available():
        return None
    module = torch.accelerator if hasattr(torch.accelerator, "max_memory_allocated") else torch.cuda  # before torch 2.9
    return module, torch.accelerator.device_count()


def _status(name: str) -> float | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((round(int(line.split()[1]) / 1024, 1) for line in lines if line.startswith(f"{name}:")), None)
