import json

import pytest

from labeldeconv.errors import DataError
from labeldeconv.lake.tables import (
    Cluster,
    HopTables,
    class_count,
    differing,
    list_length,
    need_columns,
    parquet_files,
    path_of,
    refuse_ids,
    refuse_other,
    refuse_range,
    refuse_unknown,
    spark_url,
)
from labeldeconv.settings.models import AdjacencyConfig


def test_urls_and_plain_names(tmp_path):
    assert str(path_of("file:///a/b%20c")) == "/a/b c"
    assert str(path_of("a/b.parquet")) == "a/b.parquet"
    assert path_of("s3a://bucket/nodes") is None
    assert spark_url("s3a://bucket/nodes") == "s3a://bucket/nodes"
    assert spark_url(str(tmp_path)) == f"file://{tmp_path}"


def test_a_table_is_a_file_or_a_folder(tmp_path):
    for name in ("part-1.parquet", "part-0.parquet", "_x.parquet", "notes.txt"):
        (tmp_path / name).touch()
    assert [p.name for p in parquet_files(str(tmp_path))] == ["part-0.parquet", "part-1.parquet"]
    assert parquet_files(f"file://{tmp_path}/part-0.parquet") == [tmp_path / "part-0.parquet"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="a folder without any"):
        parquet_files(str(tmp_path / "empty"))
    with pytest.raises(DataError, match="there is nothing"):
        parquet_files(str(tmp_path / "absent"))
    with pytest.raises(DataError, match="engine spark"):
        parquet_files("s3a://bucket/x")


def test_the_question_is_json_and_knows_the_files(tmp_path):
    nodes, edges = (tmp_path / name for name in ("n.parquet", "e.parquet"))
    nodes.write_bytes(b"1")
    edges.write_bytes(b"2")
    tables = HopTables(str(nodes), str(edges), 2)
    asked = tables.question()
    assert json.loads(json.dumps(asked)) == asked
    refuse_other("out", json.dumps(asked), tables.question())
    nodes.write_bytes(b"11")
    assert differing(asked, tables.question()) == "files of the tables"
    with pytest.raises(DataError, match=r"another question.*hops 2 and not 3"):
        refuse_other("out", json.dumps(asked), HopTables(str(nodes), str(edges), 3).question())
    with pytest.raises(DataError, match="cannot be read"):
        refuse_other("out", "{", asked)
    assert HopTables("s3a://b/n", "s3a://b/e", 1).question()["files"] == {"s3a://b/n": None, "s3a://b/e": None}


def test_fixed_point_is_for_row_averages_only():
    assert HopTables("n", "e", 1, store="uint16").fixed
    assert not HopTables("n", "e", 1).fixed
    assert not HopTables("n", "e", 1, AdjacencyConfig(normalization="symmetric"), store="uint16").fixed
    assert Cluster().master == "local[*]"


def test_what_is_wrong_is_named():
    with pytest.raises(DataError, match="did you mean 'label'"):
        need_columns("n", ["labl"], ["id", "label"])
    for numbers, told in (((0, 0, 0), "no rows"), ((5, 2, 3), "2 of 5 rows have no"), ((5, 0, 4), "4 values")):
        with pytest.raises(DataError, match=told):
            refuse_ids("n", "id", *numbers)
    refuse_ids("n", "id", 5, 0, 5)
    tables = HopTables("n", "e", 1, store="uint16")
    with pytest.raises(DataError, match="e: 7 ends of edges are no 'id' of n: 1, 2"):
        refuse_unknown(tables, 7, [1, 2])
    refuse_unknown(tables, 0, [])
    assert class_count("n", "label", 0, 4, None) == 5
    assert class_count("n", "label", 0, 4, 9) == 9
    for numbers in ((0, 4, 4), (-1, 4, None), (None, None, None)):
        with pytest.raises(DataError, match="label"):
            class_count("n", "label", *numbers)
    assert list_length("n", "label", 3, 3, 0) == 3
    for numbers in ((2, 3, 0), (3, 3, 1), (None, None, 0)):
        with pytest.raises(DataError, match="equal length"):
            list_length("n", "label", *numbers)
    refuse_range(tables, 0.0, 1.0)
    refuse_range(HopTables("n", "e", 1), -2.0, 9.0)
    with pytest.raises(DataError, match=r"store uint16, and is -1 to 0\.5"):
        refuse_range(tables, -1.0, 0.5)
