"""apt's indices: what is said when they cannot be fetched, and one real fetch where apt and its sources are."""

import gzip
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from labeldeconv.data.sets.apt import fetch_indices
from labeldeconv.data.sets.debian import debian_files, load_debian
from labeldeconv.errors import DataError


def test_without_apt(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(DataError, match=r"apt-get is not on this machine; copy Packages"):
        fetch_indices(tmp_path)


def test_apt_fails(tmp_path, monkeypatch):
    def fail(command, **_):
        raise subprocess.CalledProcessError(100, command, stderr=b"W: x\nE: no network\n")

    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(Path, "exists", lambda path: True)
    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(DataError, match=r"(?s)apt-get failed.*E: no network"):
        fetch_indices(tmp_path / "x")
    assert not list((tmp_path / "x").iterdir())


def test_real_archive(tmp_path):
    lists = Path("/var/lib/apt/lists")
    before = sorted((path, path.stat().st_mtime) for path in lists.rglob("*")) if os.access(lists, os.R_OK) else []
    try:
        fetch_indices(tmp_path)
    except DataError as error:
        pytest.skip(f"needs apt-get and its archive: {error}")
    assert (tmp_path / "Packages.gz").stat().st_size > 5_000_000
    for name in ("Packages", "Translation-en"):  # the beginning of both: all take 4 s, more on a busy machine
        with gzip.open(tmp_path / f"{name}.gz") as file:
            start = file.read(4_000_000)
        (tmp_path / f"{name}.gz").unlink()
        (tmp_path / name).write_bytes(start[: start.rindex(b"\n\n") + 1])
    loaded = load_debian(debian_files(tmp_path))
    assert loaded.graph.num_nodes > 1_500
    assert loaded.graph.num_classes > 40
    assert loaded.graph.num_edges > 1_000
    assert np.mean([len(text) for text in loaded.graph.texts]) > 200  # long descriptions are there
    if before:
        assert before == sorted((path, path.stat().st_mtime) for path in lists.rglob("*"))
