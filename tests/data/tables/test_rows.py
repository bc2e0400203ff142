"""Rows with their places: what a message names."""

import duckdb

from labeldeconv.data.tables.rows import Table
from tests.data.table_writing import problems, write


def test_only_five_are_named(tmp_path):
    edges = [{"source": 10, "target": 1000 + i} for i in range(7)]
    (told, *_) = problems(write(tmp_path, edges=edges))
    assert "7 of 7 edges" in told
    assert told.endswith("line 6 ('1004'), ...")
    assert "1005" not in told


def test_places():
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT 'cell ' || i AS name FROM range(9) r(i)")
        table = Table(con, "t", "t.csv", 9, first_line=2, unreadable=(3, 5))
        assert [table.place(row) for row in range(4)] == ["line 2", "line 4", "line 6", "line 7"]
        assert table.examples([0, 3], "name") == "line 2 ('cell 0'), line 7 ('cell 3')"
        assert table.find("name < 'cell 2'", "name") == (2, "line 2 ('cell 0'), line 4 ('cell 1')")
        assert table.find("name IS NULL") == (0, "")
        assert table.find("true")[1].endswith("line 8, ...")
        assert Table(con, "t", "t.parquet", 9).place(0) == "row 1"
        assert Table(con, "t", "t.csv", 9, unreadable=(3,)).place(0) == "readable row 1"
        assert table.fetch("SELECT name FROM t WHERE name = ?", ["cell 4"])["name"].tolist() == ["cell 4"]
