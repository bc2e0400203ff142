"""OGB by name: where files are looked for, and that nothing half-written is kept."""

import pytest

from labeldeconv.data.opening import open_data
from labeldeconv.data.sets.expected_files import MissingFiles
from labeldeconv.errors import DataError

from .ogb_writing import arxiv, products, proteins


def test_by_name_and_nothing_half_written(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELDECONV_DATA", str(tmp_path / "root"))
    with pytest.raises(MissingFiles, match=r"0 files of ogbn-arxiv are there, 7 are missing"):
        open_data("ogbn-arxiv")
    folder = arxiv(tmp_path / "root")
    titles = folder / "titleabs.tsv.gz"
    whole = titles.read_bytes()
    titles.write_bytes(whole[:-20])
    with pytest.raises(DataError, match="truncated"):
        open_data("ogbn-arxiv")
    assert not [path for path in (tmp_path / "cache" / "graph").rglob("*") if path.is_file() and path.suffix != ".lock"]
    titles.write_bytes(whole)
    first = open_data("ogbn-arxiv")
    assert len(first.warnings) == 2
    titles.unlink()
    for name in (f"ogbn-arxiv@{tmp_path / 'root'}", f"ogbn-arxiv@{folder}", str(folder)):
        with pytest.raises(MissingFiles, match=r"titleabs.tsv.gz"):
            open_data(name)


@pytest.mark.parametrize("make", [arxiv, products, proteins])
def test_a_folder_is_recognised(tmp_path, make):
    folder = make(tmp_path / "root")
    by_folder = open_data(str(folder)).graph
    by_name = open_data(f"{folder.name.replace('_', '-')}@{tmp_path / 'root'}").graph
    assert by_folder.name == by_name.name == folder.name.replace("_", "-")
    assert by_folder.content_key == by_name.content_key
