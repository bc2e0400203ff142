"""Lines and bad bytes of text files, whatever the size of a block."""

import pytest

from labeldeconv.data.tables import encoding


@pytest.mark.parametrize("block", [1, 7, 1 << 24])
def test_lines_and_bad_bytes(tmp_path, monkeypatch, block):
    monkeypatch.setattr(encoding, "BLOCK", block)
    path = tmp_path / "x.csv"
    path.write_bytes("ä☃\n\nplain\n".encode() + b"caf\xe9\nok\n\xff\xfe")
    assert encoding.count_lines(path) == (6, [4, 6])
    assert [encoding.line_at(path, at) for at in (0, 5, 6, 7, 13)] == [1, 1, 2, 3, 4]
    copy = encoding.replace_bad_bytes(path, tmp_path / "copy.csv")
    assert copy.read_text("utf-8") == "ä☃\n\nplain\ncaf\ufffd\nok\n\ufffd\ufffd"


def test_empty_file(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"")
    assert encoding.count_lines(path) == (0, [])
