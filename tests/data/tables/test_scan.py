"""Table files that cannot be read: told with the line, and the rest is checked."""

import duckdb
import pytest

from labeldeconv.data.tables.folder import load_tables
from tests.data.table_writing import NODES, changed, place, problems, write


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_not_utf8_is_told_with_the_line_and_the_rest_is_checked(tmp_path, kind):
    write(tmp_path, changed(changed(NODES, 1, text="CAFE"), 4, id=10), kind=kind)
    path = tmp_path / f"nodes.{kind}"
    path.write_bytes(path.read_bytes().replace(b"CAFE", b"caf\xe9"))
    told = problems(tmp_path)
    assert told[0] == f"nodes.{kind}: 1 lines are not UTF-8: {place(kind, 1)}; save the file as UTF-8"
    assert f"'10' 2 times ({place(kind, 0)}, {place(kind, 4)})" in told[1]


def test_utf16_is_no_traceback(tmp_path):
    write(tmp_path)
    (tmp_path / "nodes.csv").write_text("id,text,label\n1,a,b\n", encoding="utf-16")
    assert problems(tmp_path) == ["nodes.csv: 1 lines are not UTF-8: line 1; save the file as UTF-8"]


def test_broken_parquet(tmp_path):
    write(tmp_path / "a", kind="parquet")
    (tmp_path / "a" / "nodes.parquet").write_bytes(b"not parquet")
    assert problems(tmp_path / "a")[0].startswith("nodes.parquet: ")
    path = write(tmp_path / "b", kind="parquet") / "nodes.parquet"
    rows = "SELECT i AS id, 'marker' || i AS text, i % 2 AS label FROM range(9) t(i)"
    duckdb.sql(f"COPY ({rows}) TO '{path}' (COMPRESSION uncompressed)")
    path.write_bytes(path.read_bytes().replace(b"marker1", b"mark\xff\xfe1"))
    (told,) = problems(tmp_path / "b")
    assert told.startswith("nodes.parquet, column 'text': ")
    assert "not valid UTF8" in told


def test_csv_rows_that_do_not_fit_the_header(tmp_path):
    write(tmp_path)
    (tmp_path / "edges.csv").write_text("source,target\n10,11\n11\n12,13,14\n13,14\n14,77\n")
    told = problems(tmp_path)
    assert told[0] == (
        "edges.csv: 2 rows cannot be read; line 3: expected number of columns: 2 found: 1;"
        " line 4: expected number of columns: 2 found: 3"
    )
    assert "line 6 ('77')" in told[1]  # lines count the rows left out


def test_csv_lines_are_those_of_an_editor(tmp_path):
    write(tmp_path)
    (tmp_path / "nodes.csv").write_text('id,text,label\n1,"a\nb",x\n2,c\n')
    assert "line 4: expected number of columns: 3 found: 2" in problems(tmp_path)[0]


def test_csv_header_and_delimiter(tmp_path):
    write(tmp_path)
    path = tmp_path / "edges.csv"
    text = path.read_text()
    path.write_text(text.replace("source,target", "source,Source"))
    assert problems(tmp_path)[0] == "edges.csv: more than one column is called 'source'"
    for name in ("nodes.csv", "edges.csv"):
        lines = (text if name == "edges.csv" else (tmp_path / name).read_text()).replace(",", ";").replace("\n", "\r\n")
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + lines.encode())
    (tmp_path / "graph.toml").write_text('delimiter = ";"')
    assert load_tables(tmp_path).graph.num_edges == 6


def test_text_without_columns(tmp_path):
    write(tmp_path)
    (tmp_path / "nodes.csv").unlink()
    (tmp_path / "nodes.jsonl").write_text("no json\n")
    (tmp_path / "edges.csv").write_text("\n")
    assert [told.split(";")[0] for told in problems(tmp_path)] == ["nodes.jsonl: no columns", "edges.csv: no columns"]


def test_malformed_json_lines(tmp_path):
    path = write(tmp_path, kind="jsonl") / "nodes.jsonl"
    lines = path.read_text().splitlines()
    lines[1], lines[3], lines[4] = '{"id": 11, "text":', "[1]", lines[4].replace("14", "10", 1)
    path.write_text("\n".join(lines) + "\n")
    told = problems(tmp_path)
    assert told[0] == "nodes.jsonl: 2 lines are not a JSON object: line 2, line 4"
    assert "'10' 2 times (line 1, line 5)" in told[1]
