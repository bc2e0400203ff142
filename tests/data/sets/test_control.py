"""Control files: paragraphs with their lines, names in relations, descriptions as running text."""

import pytest

from labeldeconv.data.sets.control import description, paragraphs, relations
from labeldeconv.errors import DataError

from .debian_writing import write


def test_paragraphs(tmp_path):
    files = write(tmp_path)
    found = list(paragraphs(files["Packages"], {"Package", "Tag"}))
    assert found[0] == (1, {"Package": "game", "Tag": "role::program, use::gameplaying,\ninterface::x11"})
    assert [line for line, _ in found] == [1, 11, 16, 23, 29, 35]


def test_relations_and_descriptions():
    assert relations("a (>= 1:2~), b:any | c [amd64], d+e-1.2 <!nocheck>, ") == ["a", "b", "c", "d+e-1.2"]
    assert description("syn\n one\n two\n .\n   * three") == "syn\none two\n* three"


def test_what_is_no_field_is_told_with_its_line(tmp_path):
    (tmp_path / "x").write_text("Package: a\n\nno field\n")
    with pytest.raises(DataError, match=r"x, line 3: 'Field: value' expected, got 'no field'"):
        list(paragraphs(tmp_path / "x", {"Package"}))
