"""Names and strings that data brings into SQL stay names and strings."""

import duckdb
import pytest

from labeldeconv.sql import literal, quoted

HOSTILE = ["plain", "it's", 'a "b"', "'; DROP TABLE t; --", '"; DROP TABLE t; --', "a''b", 'x"" y', "\\'", "ü\n🎉", " "]


@pytest.mark.parametrize("text", HOSTILE)
def test_duckdb_reads_back_what_was_given(text):
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (a INT)")
        found = con.execute(f"SELECT {literal(text)} AS {quoted(text)} FROM (SELECT 1)")
        assert [column[0] for column in found.description] == [text]
        assert found.fetchall() == [(text,)]
        assert con.execute("SELECT count(*) FROM t").fetchone() == (0,)
