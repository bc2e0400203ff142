"""Names of real data: where files are looked for, and what is said about wrong names."""

import pytest

from labeldeconv.data.catalog import REAL_DATA, folder_reader, named_reader
from labeldeconv.errors import DataError
from labeldeconv.names import DATA


def test_every_name_is_listed():
    assert set(REAL_DATA) < set(DATA)


@pytest.mark.parametrize("name", ["planted", "nowhere", "./some@folder", "debiann"])
def test_other_names_are_left_alone(tmp_path, name):
    assert named_reader(name, 0, tmp_path) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wordnet:3", r"'wordnet' takes nothing after a colon; --max-nodes takes a part"),
        ("wordnet@/no/such", r"/no/such is no folder"),
        ("string", r"string:SPECIES or string:SPECIES:SCORE expected"),
        ("string:4932:high", r"string:SPECIES:SCORE expected"),
        ("ogbn-proteins", r"0 files of ogbn-proteins are there, 8 are missing"),
    ],
)
def test_wrong_names(tmp_path, monkeypatch, name, message):
    monkeypatch.setenv("LABELDECONV_DATA", str(tmp_path))
    with pytest.raises(DataError, match=message):
        named_reader(name, 0, tmp_path)


def test_a_folder_of_something_else(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    assert folder_reader(tmp_path, 0) is None
