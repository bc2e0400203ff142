"""FASTA: names, residues as the protein encoders read them, and errors with the line."""

import gzip

import pytest

from labeldeconv.data.sets import text_files
from labeldeconv.data.sets.fasta import read_fasta
from labeldeconv.errors import DataError

TEXT = ">4932.A first\nMKV\nLJ*\n\n>4932.B\r\nacd\r\n>4932.C\n>4932.D\nUXBZO"


@pytest.mark.parametrize("block", [1, 7, 1 << 22])
@pytest.mark.parametrize("packed", [False, True])
def test_sequences(tmp_path, monkeypatch, block, packed):
    monkeypatch.setattr(text_files, "BLOCK", block)
    path = tmp_path / "x.fa"
    path.write_bytes(gzip.compress(TEXT.encode()) if packed else TEXT.encode())
    found = read_fasta(path)
    assert found.by_name == {"4932.A": "MKVLX", "4932.B": "ACD", "4932.C": "", "4932.D": "UXBZO"}
    assert found.changes() == ["1 sequences hold 'J', read as 'X'", "1 sequences hold '*', which is left out"]
    assert read_fasta(path, {"4932.B", "9606.Z"}).by_name == {"4932.B": "ACD"}


@pytest.mark.parametrize("block", [1, 1 << 22])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (">a\nMK\n>b\nM\n>a\nM\n", r"line 5: 'a' was already on line 1"),
        (">a\nMK\nM1K\n", r"line 3: '1' is no residue"),
        ("\nMK\n>a\n", r"line 2: '>' and a name expected, got 'MK'"),
        (">a\nMK\n> \nM\n", r"line 3: a sequence without a name"),
        ("", r"no sequences; the file is empty"),
    ],
)
def test_bad_files(tmp_path, monkeypatch, block, text, message):
    monkeypatch.setattr(text_files, "BLOCK", block)
    (tmp_path / "x.fa").write_text(text)
    with pytest.raises(DataError, match=message):
        read_fasta(tmp_path / "x.fa")


def test_bytes_that_are_no_residues(tmp_path):
    (tmp_path / "x.fa").write_bytes(b">a\nMK\xe9\n")
    with pytest.raises(DataError, match=r"line 2: .* is no residue"):
        read_fasta(tmp_path / "x.fa")
