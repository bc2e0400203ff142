"""The files of OGB data sets: recognised, and those that are missing named with what is there."""

import pytest

from labeldeconv.data.sets.expected_files import MissingFiles
from labeldeconv.data.sets.ogb.layout import ARXIV, PRODUCTS, recognise
from labeldeconv.data.sets.ogb.raw_graph import ogb_files
from tests.samples import real_data

from .ogb_writing import N, arxiv, products, proteins


def test_missing_files_are_named_with_what_is_there(tmp_path):
    folder = products(tmp_path)
    (folder / "Amazon-3M.raw" / "tst.json.gz").unlink()
    with pytest.raises(MissingFiles) as caught:
        ogb_files(PRODUCTS, folder)
    (told,) = caught.value.problems
    assert told.startswith(f"missing {folder}/Amazon-3M.raw/tst.json.gz (or without .gz): one JSON object a line")
    assert caught.value.found["nodes"] == N
    assert caught.value.found["split"] == {"train": 6, "val": 3, "test": 3}
    assert "trn texts" in caught.value.found["files"]


def test_real_pieces_of_arxiv():
    folder = real_data("ogbn_arxiv_partial")
    assert recognise(folder) is ARXIV
    with pytest.raises(MissingFiles) as caught:
        ogb_files(ARXIV, folder)
    found = caught.value.found
    assert (found["nodes"], found["classes"]) == (169_343, 40)
    assert found["split"] == {"train": 90_941, "val": 29_799, "test": 48_603}
    edges, texts = caught.value.problems
    assert ("edge.csv" in edges, "titleabs.tsv" in texts) == (True, True)


@pytest.mark.parametrize("make", [arxiv, products, proteins])
def test_recognise(tmp_path, make):
    assert recognise(tmp_path) is None
    folder = make(tmp_path)
    spec = recognise(folder)
    assert spec is not None
    assert folder.name == spec.folder
