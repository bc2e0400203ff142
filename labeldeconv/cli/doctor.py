"""labeldeconv doctor: what this machine has, and what a run would use of it."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from labeldeconv.cli.terminal import AsJson, console, print_json, print_tree

Compile = Annotated[bool, typer.Option("--compile", help="Compile all kernels now, so that no fit waits for that.")]


def doctor(as_json: AsJson = False, compile_now: Compile = False) -> None:
    """Say which versions, hardware, precision, threads, cache and extras there are, and what would be used."""
    if compile_now:
        return _compile(as_json)
    from labeldeconv.runs.provenance import hardware, versions

    found = {
        "labeldeconv": versions(),
        "hardware": hardware(),
        "a run would use": _used(),
        "cache": _cache(),
        "extras": _extras(),
    }
    if as_json:
        return print_json(found)
    for title, facts in found.items():
        print_tree(title, facts)
    return None


def _compile(as_json: bool) -> None:
    """Compile the kernels that are not in numba's cache, and say how many, how long it took, and where they are."""
    from labeldeconv.propagation.compiling import compile_kernels

    done = compile_kernels()
    if as_json:
        return print_json(asdict(done))
    what = f"{done.compiled} of {done.kernels} compiled" if done.compiled else f"all {done.kernels} compiled before"
    console.print(f"kernels: {what}, {done.seconds:.1f} s", soft_wrap=True)
    for folder in done.folders:
        console.print(f"cached in {folder}", soft_wrap=True, markup=False)
    return None


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
    from labeldeconv.runs.provenance import version_of

    wanted: dict[str, list[str]] = {}
    for requirement in importlib.metadata.requires("labeldeconv") or []:
        name, _, marker = requirement.partition(";")
        belongs = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        if belongs:
            wanted.setdefault(belongs[1], []).append(re.split(r"[<>=!~ \[]", name.strip(), maxsplit=1)[0])
    told = {}
    for extra, names in sorted(wanted.items()):
        versions = {name: version_of(name) for name in names}
        if all(versions.values()):
            told[extra] = ", ".join(f"{name} {version}" for name, version in versions.items())
        else:
            told[extra] = f"not installed: pip install 'labeldeconv[{extra}]'"
    return told
