"""apt's own indices, fetched into a private state directory: no root, and the system's lists stay as they are.

The machine's configured sources decide what is fetched; nothing here names a server. The indices are a stage of the
cache: they are fetched once, and again when they are deleted there.
"""

from __future__ import annotations

import gzip
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labeldeconv.errors import DataError
from labeldeconv.progress import logger
from labeldeconv.stages.stage import Artefact, Folder, stage

PACKAGES, TRANSLATION = "Packages.gz", "Translation-en.gz"
HELPER = "/usr/lib/apt/apt-helper"  # unpacks the indices, however apt stored them
SECONDS = 600


@dataclass(frozen=True, eq=False)
class Indices(Artefact):
    """The folder that holds Packages.gz and Translation-en.gz."""

    folder: Path


@stage(version=1)
def debian_indices(out: Folder) -> Indices:
    """Fetch the indices of this machine's archive."""
    folder = out.path / "indices"
    fetch_indices(folder)
    return Indices(folder)


def fetch_indices(folder: Path) -> None:
    """Write Packages.gz and Translation-en.gz of all configured sources into `folder`, complete or not at all."""
    if shutil.which("apt-get") is None or not Path(HELPER).exists():
        raise DataError(
            "debian: apt-get is not on this machine; copy Packages and Translation-en of a Debian archive"
            " into a folder and say debian@FOLDER"
        )
    logger.info("debian: fetching the package indices with apt-get")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="labeldeconv-apt-") as state:
        options = _private(Path(state))
        _run(["apt-get", *options, "update"])
        listed = _run(["apt-get", *options, "indextargets", "--format", "$(CREATED_BY)|$(FILENAME)"]).decode()
        targets = [line.partition("|")[::2] for line in listed.splitlines()]
        for kind, name in (("Packages", PACKAGES), ("Translations", TRANSLATION)):
            paths = [path for made_by, path in targets if made_by == kind and Path(path).exists()]
            if not paths:
                raise DataError(f"debian: apt-get update left no {kind} index; are sources configured on this machine?")
            with gzip.open(folder / f"{name}.tmp", "wb", compresslevel=1) as out:
                for path in paths:
                    out.write(_run([HELPER, "cat-file", path]).rstrip(b"\n") + b"\n\n")
    for name in (TRANSLATION, PACKAGES):  # Packages last: its presence means that both are whole
        (folder / f"{name}.tmp").replace(folder / name)


def _private(state: Path) -> list[str]:
    """Options that keep everything apt writes inside `state`."""
    for name in ("lists/partial", "cache/archives/partial"):
        (state / name).mkdir(parents=True)
    (state / "status").touch()
    settings = {
        "Dir::State": state,
        "Dir::State::Lists": state / "lists",
        "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache",
        "Acquire::Languages": "en",
        "Acquire::http::Timeout": 20,
        "Acquire::Retries": 1,
        "APT::Sandbox::User": pwd.getpwuid(os.getuid()).pw_name,  # the sandbox user could not write here
    }
    return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


def _run(command: Sequence[str]) -> bytes:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.run(command, check=True, capture_output=True, timeout=SECONDS, env=environment).stdout
    except subprocess.CalledProcessError as error:
        told = [line for line in error.stderr.decode("utf-8", "replace").splitlines() if line.startswith(("E:", "Err"))]
        raise DataError(f"debian: {Path(command[0]).name} failed", told[:5]) from None
    except subprocess.TimeoutExpired:
        raise DataError(f"debian: {Path(command[0]).name} gave no answer in {SECONDS} s; is the network up?") from None
