"""labeldeconv doctor: what this machine has, and what a run would use of it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
from pathlib import Path
from typing import Any

from labeldeconv import __version__
from labeldeconv.cli.terminal import AsJson, print_json, print_tree

PACKAGES = ("torch", "torch_geometric", "transformers", "numba", "numpy", "duckdb", "safetensors")


def doctor(as_json: AsJson = False) -> None:
    """Say which versions, hardware, precision, threads, cache and extras there are, and what would be used."""
    found = {
        "labeldeconv": _program(),
        "hardware": _hardware(),
        "a run would use": _used(),
        "cache": _cache(),
        "extras": _extras(),
    }
    if as_json:
        return print_json(found)
    for title, facts in found.items():
        print_tree(title, facts)
    return None


def _program() -> dict[str, str]:
    versions = {name: _version(name) or "missing" for name in PACKAGES}
    return {"version": __version__, "python": platform.python_version(), "system": platform.platform(), **versions}


def _hardware() -> dict[str, Any]:
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


def _used() -> dict[str, Any]:
    import numba
    import torch

    from labeldeconv.training.steps import resolved_precision

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return {
        "device": str(device),
        "precision": resolved_precision("auto", device),
        "torch threads": torch.get_num_threads(),
        "numba threads": numba.get_num_threads(),
        "hub": "off" if os.environ.get("HF_HUB_OFFLINE") == "1" else "asked for models that are not local",
    }


def _cache() -> dict[str, Any]:
    from labeldeconv.stages.cache import Cache

    root = Cache().root
    there = next(folder for folder in (root, *root.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    return {
        "folder": str(root),
        "chosen by": "LABELDECONV_CACHE" if os.environ.get("LABELDECONV_CACHE") else "the system's custom",
        "writable": os.access(there, os.W_OK),
        "free": f"{free / 2**30:.1f} GiB",
        "data": os.environ.get("LABELDECONV_DATA", str(Path("data").resolve())),
    }


def _extras() -> dict[str, str]:
    """Extras of the package, each with the versions of what it brings, or how to get it."""
    wanted: dict[str, list[str]] = {}
    for requirement in importlib.metadata.requires("labeldeconv") or []:
        name, _, marker = requirement.partition(";")
        belongs = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        if belongs:
            wanted.setdefault(belongs[1], []).append(re.split(r"[<>=!~ \[]", name.strip(), maxsplit=1)[0])
    told = {}
    for extra, names in sorted(wanted.items()):
        versions = {name: _version(name) for name in names}
        if all(versions.values()):
            told[extra] = ", ".join(f"{name} {version}" for name, version in versions.items())
        else:
            told[extra] = f"not installed: pip install 'labeldeconv[{extra}]'"
    return told


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
