"""Provenance: with which command, versions, hardware and state of the source a run was written.

`result.json` records it beside the settings, which hold the seeds. It is of the process that wrote the run: stages that
came from the cache (`cached`) may be of an older one. Nothing of it is in a key, and nothing of it changes a result.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import subprocess  # nosec B404 (git of this very checkout, below)
import sys
from pathlib import Path
from typing import Any

from labeldeconv import __version__

PACKAGES = ("torch", "torch_geometric", "transformers", "numba", "numpy", "duckdb", "safetensors")
SOURCE = Path(__file__).parents[2]
GIT_SECONDS = 5.0  # a checkout on a slow disk goes without
# A describe without tags is the commit; '-dirty' says that files under version control were changed.
GIT = ("git", "-c", "core.fsmonitor=false", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def provenance() -> dict[str, Any]:
    """What result.json says under 'provenance'."""
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]] if sys.argv else [],
        "versions": versions(),
        "hardware": hardware(),
        "threads": threads(),
        "git": git_state(),
    }


def versions() -> dict[str, str]:
    """Versions of this package, of Python, of the system and of what computes."""
    others = {name: version_of(name) or "missing" for name in PACKAGES}
    return {"version": __version__, "python": platform.python_version(), "system": platform.platform(), **others}


def hardware() -> dict[str, Any]:
    """Processor, vector instructions that torch uses, cores, memory and accelerators."""
    import torch

    from labeldeconv.stages.memory import total_memory_mib

    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    memory = total_memory_mib()
    return {
        "processor": platform.processor() or platform.machine(),
        "vector instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "cores of this process": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": "unknown" if memory is None else f"{memory / 1024:.1f} GiB",
        "accelerators": ", ".join(devices) or "none",
    }


def threads() -> int:
    """Threads of torch, which our kernels take too; they change the last bits of sums (docs/trust.md).

    numba is not asked for its own number: that starts its OpenMP pool, which is torch's too, and sets torch's number.
    """
    import torch

    return torch.get_num_threads()


@functools.cache
def git_state(source: Path = SOURCE) -> str | None:
    """The commit of the checkout that this package is run from, with '-dirty' where it was changed; None elsewhere."""
    if not (source / ".git").exists():
        return None  # installed: the version says it all
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # only look: a commit at the same moment is not in the way
    try:
        told = subprocess.run(GIT, cwd=source, env=env, capture_output=True, text=True, timeout=GIT_SECONDS)  # nosec B603
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.strip() or None


def version_of(name: str) -> str | None:
    """The version of an installed package; None where it is missing."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
