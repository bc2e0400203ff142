import numpy as np
import pytest

from labeldeconv.errors import DataError
from labeldeconv.lake import parquet
from labeldeconv.lake.parquet import complete, read_graph, read_texts, read_values, write_rows
from labeldeconv.lake.tables import HopTables
from tests.samples import write_parquet


def tables(folder, ids, label, source=(0, 1), target=(1, 2), **more):
    """Two tables, nodes in the order given."""
    ids, label = np.array(ids), np.array(label)
    ids = ids.astype(object) if ids.dtype.kind == "U" else ids
    label = label.astype(object) if label.dtype.kind == "U" else label
    nodes = write_parquet(folder / "nodes.parquet", id=ids, label=label)
    ends = [np.array(e, dtype=object if isinstance(e[0], str) else None) for e in (source, target)]
    edges = write_parquet(folder / "edges.parquet", source=ends[0], target=ends[1])
    return HopTables(str(nodes), str(edges), 1, **more)


def test_rows_are_in_the_order_of_the_ids(tmp_path):
    ids, Y, edges = read_graph(tables(tmp_path, [30, 10, 20], [2, 0, 1], source=(30, 20), target=(10, 30)))
    assert ids.tolist() == [10, 20, 30]
    np.testing.assert_array_equal(Y, np.eye(3))
    assert sorted(edges.T.tolist()) == [[1, 2], [2, 0]]


def test_strings_as_ids_and_as_classes(tmp_path):
    given = tables(tmp_path, ["b", "ä", "a"], ["red", "blue", "red"], source=("a", "b"), target=("b", "ä"))
    ids, Y, edges = read_graph(given)
    assert ids.tolist() == ["a", "b", "ä"]
    np.testing.assert_array_equal(Y, [[0, 1], [0, 1], [1, 0]])  # blue, red
    assert sorted(edges.T.tolist()) == [[0, 1], [1, 2]]


def test_lists_are_soft_or_several_labels(tmp_path):
    Y = np.array([[0.25, 0.75], [1, 0], [0.5, 0.5]])
    np.testing.assert_array_equal(read_graph(tables(tmp_path, [0, 1, 2], Y))[1], Y)


def test_a_node_without_a_label_has_zeros(tmp_path):
    given = tables(tmp_path, [0, 1, 2], [1, 0, 1])
    with parquet.duckdb.connect() as con:
        missing = f"SELECT id, CASE WHEN id = 1 THEN NULL ELSE label END AS label FROM '{given.nodes}'"
        con.execute(f"COPY ({missing}) TO '{tmp_path}/some.parquet' (FORMAT parquet)")
        lists = f"SELECT id, CASE WHEN id = 1 THEN NULL ELSE [label, 0.5] END AS label FROM '{given.nodes}'"
        con.execute(f"COPY ({lists}) TO '{tmp_path}/lists.parquet' (FORMAT parquet)")
    Y = read_graph(HopTables(f"{tmp_path}/some.parquet", given.edges, 1, classes=3))[1]
    np.testing.assert_array_equal(Y, [[0, 1, 0], [0, 0, 0], [0, 1, 0]])
    Y = read_graph(HopTables(f"{tmp_path}/lists.parquet", given.edges, 1))[1]
    np.testing.assert_array_equal(Y, [[1, 0.5], [0, 0], [1, 0.5]])


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"target": (1, 9)}, "1 ends of edges are no 'id'.*: 9"),
        ({"ids": [0, 1, 1]}, "2 values"),
        ({"label": [0.5, 1.0, 2.0]}, "DOUBLE"),
        ({"label": [0, 7, 1], "classes": 3}, "0 to 2; they are 0 to 7"),
        ({"source": ("0", "1")}, "'source' must be of the type of ids"),
        ({"label": [[0.5, 1.5]] * 3, "store": "uint16"}, "must lie in 0 to 1"),
        ({"label": [[np.nan, 1.0]] * 3}, "3 have empty places"),
        ({"ids": [0.5, 1.5, 2.5]}, "'id' must be whole numbers or strings"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, more, told):
    more = {"ids": [0, 1, 2], "label": [0, 1, 0], **more}
    with pytest.raises(DataError, match=told):
        read_graph(tables(tmp_path, **more))


def test_a_file_that_is_no_parquet(tmp_path):
    given = tables(tmp_path, [0, 1, 2], [0, 1, 0])
    (tmp_path / "nodes.parquet").write_text("id,label")
    with pytest.raises(DataError, match="no Parquet that can be read"):
        read_graph(given)


def test_texts_come_in_lots_by_id(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "ROWS", 2)
    path = write_parquet(tmp_path / "t.parquet", id=np.array([5, 3, 4]), text=np.array(["e", "c", None], dtype=object))
    n, lots = read_texts(str(path), "id", "text")
    assert n == 3
    assert [(ids.tolist(), texts, rows.tolist()) for ids, texts, rows in lots] == [
        ([3, 4], ["c", ""], [0, 1]),
        ([5], ["e"], [2]),
    ]
    with pytest.raises(DataError, match="'id' must be strings"):
        read_texts(str(path), "id", "id")


def test_values_come_back(tmp_path):
    values = np.random.default_rng(0).random((5, 3), np.float32)
    write_rows(tmp_path / "x", 1, {"id": np.arange(5)}, values)
    np.testing.assert_array_equal(read_values(tmp_path / "x", 1), values)
    assert read_values(tmp_path / "x", 0) is None
    complete(tmp_path / "x")
    assert sorted(p.name for p in (tmp_path / "x").iterdir()) == ["_SUCCESS", "part-00001.parquet"]
