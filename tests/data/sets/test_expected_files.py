"""Files that a user brings: found at any of their places, and what is said about those that are missing."""

from pathlib import Path

from labeldeconv.data.sets.expected_files import MissingFiles, RawFile, data_root, find_all, missing

EDGES = RawFile("edges", ("raw/edge.csv",), "lines 'source,target'", "in the zip")
NAMES = RawFile("names", ("names.csv", "old/names.csv"), "a table", "in the zip", optional=True)


def test_places(tmp_path):
    assert EDGES.find(tmp_path) is None
    (tmp_path / "edge.csv.gz").touch()
    assert EDGES.find(tmp_path) == tmp_path / "edge.csv.gz"  # directly in the folder
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "edge.csv").touch()
    assert EDGES.find(tmp_path) == tmp_path / "raw" / "edge.csv"


def test_missing(tmp_path):
    found = find_all([EDGES, NAMES], tmp_path)
    assert found == {}
    (told,) = missing([EDGES, NAMES], tmp_path, found)  # the optional one is not missed
    assert told == f"missing {tmp_path}/raw/edge.csv.gz (or without .gz): lines 'source,target'; in the zip"
    error = MissingFiles("title", [told], {"nodes": 3})
    assert error.found == {"nodes": 3}
    assert error.problems == [told]


def test_data_root(monkeypatch):
    monkeypatch.setenv("LABELDECONV_DATA", "/somewhere")
    assert data_root() == Path("/somewhere")
    monkeypatch.delenv("LABELDECONV_DATA")
    assert data_root() == Path("data")
