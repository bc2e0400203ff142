"""Text files of others: whole lines whatever the block, and errors with file and line."""

import gzip

import numpy as np
import pytest

from labeldeconv.data.sets import text_files
from labeldeconv.data.sets.text_files import check_file, first_of, lines, read_columns
from labeldeconv.errors import DataError


@pytest.mark.parametrize("block", [1, 3, 1 << 22])
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_lines(tmp_path, monkeypatch, block, end, packed):
    monkeypatch.setattr(text_files, "BLOCK", block)
    content = ("ä☃,1\r\n\nlast" + end).encode()
    path = tmp_path / ("x.gz" if packed else "x")
    path.write_bytes(gzip.compress(content) if packed else content)
    assert list(lines(path)) == [(1, "ä☃,1"), (2, ""), (3, "last")]
    assert check_file(path) == 3


def test_truncated_gz(tmp_path):
    path = tmp_path / "edge.csv.gz"
    path.write_bytes(gzip.compress(b"".join(b"%d,%d\n" % (i, i + 1) for i in range(9999)))[:-900])
    with pytest.raises(DataError, match=r"edge.csv.gz: the gz file is truncated or broken after line \d+"):
        read_columns(path, {"a": "INTEGER", "b": "INTEGER"})
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match=r"called .gz, but its first bytes are not those of a gz file"):
        check_file(path)


def test_not_utf8(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_bytes(b"a\tb\nc\tcaf\xe9\n")
    with pytest.raises(DataError, match=r"x.tsv, line 2: not UTF-8"):
        check_file(path)
    with pytest.raises(DataError, match=r"x.tsv, line 2: not UTF-8"):
        list(lines(path))


@pytest.mark.parametrize("packed", [False, True])
def test_columns(tmp_path, packed):
    path = tmp_path / ("x.csv.gz" if packed else "x.csv")
    write = (lambda text: path.write_bytes(gzip.compress(text.encode()))) if packed else path.write_text
    write('node idx,id\n0,"a, b"\n1,c\n')
    found = read_columns(path, {"node": "INTEGER", "id": "VARCHAR"}, header=True, rows=2)
    np.testing.assert_array_equal(found["node"], [0, 1])
    assert found["id"].tolist() == ["a, b", "c"]
    write("0,1\n1\n2,3,4\n3,x\n4,5\n")
    with pytest.raises(DataError, match=r"3 rows cannot be read") as caught:
        read_columns(path, {"a": "INTEGER", "b": "INTEGER"})
    assert [told.split(":")[0] for told in caught.value.problems] == ["line 2", "line 3", "line 4"]
    write("0,1\n1,\n")
    with pytest.raises(DataError, match=r"line 2: the cell of column 'b' is empty"):
        read_columns(path, {"a": "INTEGER", "b": "INTEGER"})
    write("0,1\n")
    with pytest.raises(DataError, match=r"7 rows expected, got 1"):
        read_columns(path, {"a": "INTEGER", "b": "INTEGER"}, rows=7)


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"nowhere: cannot be read: No such file"):
        check_file(tmp_path / "nowhere")
    assert first_of(tmp_path, ["a", "b"]) is None
    (tmp_path / "b.gz").touch()
    assert first_of(tmp_path, ["a", "b"]) == tmp_path / "b.gz"
