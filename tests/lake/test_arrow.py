"""What workers do, without Spark: the same tables in one process."""

from types import SimpleNamespace

import numpy as np
import pytest

from labeldeconv.labels.hops import hop_labels
from labeldeconv.lake.arrow import as_lists, encoder_of, finisher, lists, local_rows, packer, summer
from labeldeconv.lake.node_blocks import BlockForm
from labeldeconv.lake.parquet import write_rows

pa = pytest.importorskip("pyarrow", reason="comes with the extra spark")


def test_lists_and_back():
    values = np.random.default_rng(0).random((4, 3), np.float32)
    column = as_lists(values)
    np.testing.assert_array_equal(lists(column, 3), values)
    np.testing.assert_array_equal(lists(pa.chunked_array([column[:1], column[1:]]), 3), values)
    assert lists(as_lists(np.empty((0, 3), np.float32)), 3).shape == (0, 3)


def test_a_hop_of_one_block():
    """A path of three nodes, all in one block: K_1 of the middle is the mean of the ends."""
    form = BlockForm(1, 3, 2)
    entries = pa.table({"block": [0] * 4, "source": [0, 1, 1, 2], "target": [1, 0, 2, 1]})
    pages = packer(form)(entries)
    assert pages.schema.names == ["block", "page", "sources", "targets"]
    Y = np.array([[1, 0], [0, 1], [0, 0.5]], np.float32)
    rows, degree = pa.array([2, 0, 1]), pa.array([1, 1, 2])
    vectors = pa.table({"row": rows, "degree": degree, "values": as_lists(Y[[2, 0, 1]])})
    none = SimpleNamespace(value=(np.empty(0, np.int64), np.empty((0, 2))))
    sums = summer(form, none)((pa.scalar(0),), pages, vectors)
    K_1 = finisher(form, 1)(pa.table({"id": ["c", "a", "b"], "row": rows, "degree": degree}), sums)
    assert K_1["id"].to_pylist() == ["c", "a", "b"]
    expected = hop_labels(np.array([[0, 1], [1, 2]]), Y, 1)[:, 1]
    np.testing.assert_allclose(lists(K_1["values"], 2), expected[[2, 0, 1]], atol=1e-7)


def test_texts_of_a_batch_become_lists():
    batch = pa.RecordBatch.from_pydict({"id": ["x", "y"], "row": [0, 1], "text": ["ab", "c"]})
    (made,) = encoder_of(lambda texts: np.array([[len(text)] for text in texts], np.float16))(iter([batch]))
    assert made.to_pydict() == {"id": ["x", "y"], "row": [0, 1], "values": [[2.0], [1.0]]}


def test_rows_of_local_files(tmp_path):
    write_rows(tmp_path / "x", 0, {"row": np.array([3, 1])}, np.array([[1, 2], [3, 4]], np.float32))
    ((rows, values),) = local_rows(str(tmp_path / "x"))
    assert (rows.tolist(), values.tolist()) == ([3, 1], [[1, 2], [3, 4]])
