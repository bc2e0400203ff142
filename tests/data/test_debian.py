"""Debian: control files, texts, edges, splits; and one real run where apt and its sources can be reached."""

import gzip
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from labeldeconv.data.apt import fetch_indices
from labeldeconv.data.control import description, paragraphs, relations
from labeldeconv.data.debian import debian_files, load_debian, split_by_group, without_name
from labeldeconv.errors import DataError
from labeldeconv.names import open_data
from labeldeconv.record import Cache

PACKAGES = """\
Package: game
Version: 1
Depends: libgame (>= 1), editor | nano, missing
Suggests: game-data
Section: games
Description: a short one
Description-md5: m1
Tag: role::program, use::gameplaying,
 interface::x11

Package: libgame
Source: game (1.0)
Section: contrib/libs
Description-md5: m2

Package: game-data
Source: game
Enhances: game
Pre-Depends: libgame:any
Section: games
Description-md5: m1

Package: nano
Provides: editor
Section: editors
Description: only the synopsis
Description-md5: m9

Package: vi
Provides: editor (= 2), other
Recommends: vi, game
Section: editors
Description-md5: m2

Package: game
Version: 2
Section: oldlibs
"""
TRANSLATION = """\
Package: game
Description-md5: m1
Description-en: a game of cards
 The game game is about
 cards.
 .
 * second paragraph

Package: libgame
Description-md5: m2
Description-en: library
"""


def write(folder, packages=PACKAGES, translation=TRANSLATION):
    folder.mkdir(exist_ok=True)
    (folder / "Packages").write_text(packages)
    (folder / "Translation-en.gz").write_bytes(gzip.compress(translation.encode()))
    return debian_files(folder, fetch=False)


def test_paragraphs(tmp_path):
    files = write(tmp_path)
    found = list(paragraphs(files[0], {"Package", "Tag"}))
    assert found[0] == (1, {"Package": "game", "Tag": "role::program, use::gameplaying,\ninterface::x11"})
    assert [line for line, _ in found] == [1, 11, 16, 23, 29, 35]


def test_relations_and_descriptions():
    assert relations("a (>= 1:2~), b:any | c [amd64], d+e-1.2 <!nocheck>, ") == ["a", "b", "c", "d+e-1.2"]
    assert description("syn\n one\n two\n .\n   * three") == "syn\none two\n* three"
    assert without_name("The vi editor; vim, vi-like. vi", "vi") == "The editor; vim, vi-like."
    assert without_name("c++filt and g++", "g++") == "c++filt and"


def test_graph(tmp_path):
    loaded = load_debian(write(tmp_path))
    graph = loaded.graph
    assert list(graph.ids) == ["game", "libgame", "game-data", "nano", "vi"]
    assert graph.texts[0] == "a of cards\nThe is about cards.\n* second paragraph"
    assert graph.texts[3] == "only the synopsis"
    assert graph.class_names == ["editors", "games", "libs"]
    assert graph.labels.tolist() == [1, 2, 1, 0, 0]
    edges = {(0, 1), (0, 3), (0, 4), (0, 2), (2, 0), (2, 1), (4, 0)}  # editor is virtual; vi names itself
    assert set(map(tuple, graph.edges.T.tolist())) == edges
    assert len(set(graph.split.roles[:3].tolist())) == 1  # one source, one part
    assert loaded.warnings == [
        "Packages: 1 other versions of packages are left out",
        "Translation-en.gz: 1 packages have no long description: 'nano'",
        "1 relations name packages outside the archive and are left out: 'missing'",
    ]


def test_tags(tmp_path):
    many = "".join(f"\nPackage: p{i}\nSection: net\nTag: role::program{', rare::x' * (i < 3)}\n" for i in range(30))
    graph = load_debian(write(tmp_path, PACKAGES + many), tags=True).graph
    assert graph.name == "debian-tags"
    assert graph.class_names == ["role::program"]
    assert graph.labels[:5, 0].tolist() == [1, -1, -1, -1, -1]
    assert graph.split.roles[1] == -1
    with pytest.raises(DataError, match=r"the field Tag is not in this archive"):
        load_debian(write(tmp_path), tags=True)


def test_split_by_group():
    groups = [f"s{i // 3}" for i in range(3000)]
    labels = np.arange(3000) % 4
    labels[:30] = -1
    roles = split_by_group(groups, labels, (0.54, 0.18), 0).roles
    assert (roles[:30] == -1).all()
    assert (roles[30:].reshape(-1, 3).min(1) == roles[30:].reshape(-1, 3).max(1)).all()
    np.testing.assert_allclose(np.bincount(roles[30:]) / 2970, [0.54, 0.18, 0.28], atol=0.002)
    assert (roles != split_by_group(groups, labels, (0.54, 0.18), 1).roles).any()


@pytest.mark.parametrize(
    ("packages", "message"),
    [
        ("Package: a\nnonsense\n", r"Packages, line 2: 'Field: value' expected, got 'nonsense'"),
        ("\n continued\n", r"line 2: a continuation line without a field"),
        ("Section: x\n", r"line 1: a paragraph without the field Package"),
        ("", r"no packages"),
    ],
)
def test_bad_files(tmp_path, packages, message):
    with pytest.raises(DataError, match=message):
        load_debian(write(tmp_path, packages))


def test_names(tmp_path):
    write(tmp_path / "d")
    cache = Cache(tmp_path / "cache")
    assert open_data(f"debian@{tmp_path / 'd'}", 0, cache).graph.num_nodes == 5
    assert open_data(str(tmp_path / "d"), 0, cache).graph.num_nodes == 5
    (tmp_path / "d" / "Translation-en.gz").unlink()
    with pytest.raises(DataError, match=r"Packages and Translation-en \(plain or .gz\)"):
        open_data(f"debian@{tmp_path / 'd'}", 0, cache)


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
    loaded = load_debian(debian_files(tmp_path, fetch=False))
    assert loaded.graph.num_nodes > 1_500
    assert loaded.graph.num_classes > 40
    assert loaded.graph.num_edges > 1_000
    assert np.mean([len(text) for text in loaded.graph.texts]) > 200  # long descriptions are there
    if before:
        assert before == sorted((path, path.stat().st_mtime) for path in lists.rglob("*"))
