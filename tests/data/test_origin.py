"""Files by name and content, and sources by their fields."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from labeldeconv.data.findings import Loaded
from labeldeconv.data.origin import Files
from labeldeconv.stages.keys import digest, token


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "f" / "sub").mkdir(parents=True)
    for name in ("a", "b", "sub/c"):
        (tmp_path / "f" / name).write_text(name)
    return tmp_path / "f"


def test_key_is_of_the_content(folder):
    first = Files.named(folder, ["a", "b"]).content_key
    assert first == Files.named(folder, ["b", "a"]).content_key
    (folder / "b").write_text("c")
    assert Files.named(folder, ["a", "b"]).content_key != first


def test_names_are_relative_to_the_folder(folder, tmp_path):
    key = Files.named(folder, ["a", "sub/c"]).content_key
    folder.rename(tmp_path / "moved")
    assert Files.named(tmp_path / "moved", ["a", "sub/c"]).content_key == key
    (tmp_path / "moved" / "sub" / "c").rename(tmp_path / "moved" / "c")
    assert Files.named(tmp_path / "moved", ["a", "c"]).content_key != key


def test_parts_count(folder):
    one, other = (Files(folder, {p: folder / n for p, n in zip("xy", names, strict=True)}) for names in ("ab", "ba"))
    assert one["x"] == folder / "a"
    assert one.content_key != other.content_key


def test_a_file_elsewhere(folder, tmp_path):
    (tmp_path / "far").write_text("x")
    files = Files.named(folder, ["a", str(tmp_path / "far"), "../far"])
    assert len(files) == 3
    first = files.content_key
    (tmp_path / "far").write_text("y")
    assert Files.named(folder, list(files)).content_key != first


def test_absent_files_are_left_out(folder):
    assert list(Files.named(folder, ["a", "nothing", "sub"])) == ["a"]


@dataclass(frozen=True)
class Mine:
    files: Files
    seed: int
    version: int = 1

    def load(self) -> Loaded:
        raise NotImplementedError


def test_all_fields_of_a_source_are_in_its_key(folder):
    source = Mine(Files.named(folder, ["a"]), 0)
    changed = [replace(source, seed=1), replace(source, version=2), replace(source, files=Files.named(folder, ["b"]))]
    assert len({digest(token(s)) for s in (source, *changed)}) == 4
    assert digest(token(source)) == digest(token(Mine(Files.named(folder, ["a"]), 0)))
