"""Debian: texts, edges, labels and splits of small indices, by file and by name."""

import numpy as np
import pytest

from labeldeconv.data.opening import open_data
from labeldeconv.data.sets import apt
from labeldeconv.data.sets.debian import load_debian, split_by_group, without_name
from labeldeconv.errors import DataError

from .debian_writing import PACKAGES, write


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


def test_a_text_does_not_tell_its_name():
    assert without_name("The vi editor; vim, vi-like. vi", "vi") == "The editor; vim, vi-like."
    assert without_name("c++filt and g++", "g++") == "c++filt and"


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
    assert open_data(f"debian@{tmp_path / 'd'}").graph.num_nodes == 5
    assert open_data(str(tmp_path / "d")).graph.num_nodes == 5
    (tmp_path / "d" / "Translation-en.gz").unlink()
    with pytest.raises(DataError, match=r"Packages and Translation-en \(plain or .gz\)"):
        open_data(f"debian@{tmp_path / 'd'}")


def test_indices_of_this_machine_are_fetched_once(tmp_path, monkeypatch):
    fetched = []

    def fetch(folder):
        fetched.append(folder)
        write(folder, PACKAGES + many)

    many = "".join(f"\nPackage: p{i}\nSection: net\nTag: role::program\n" for i in range(30))
    monkeypatch.setattr(apt, "fetch_indices", fetch)
    assert open_data("debian").graph.num_nodes == 35
    assert open_data("debian").graph.name == "debian"
    assert open_data("debian-tags").graph.class_names == ["role::program"]
    assert len(fetched) == 1
