"""Arrays out of tables: ids of any type join, rows keep their order, features are finite numbers."""

import uuid

import duckdb
import numpy as np
import pytest

from labeldeconv.data.tables import arrays
from labeldeconv.data.tables.folder import load_tables
from labeldeconv.graph.texts import Texts
from tests.data.table_writing import EDGES, FORMATS, NODES, changed, problems, write


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "ids",
    [
        [f"paper {i}" for i in range(6)],
        [str(uuid.UUID(int=i)) for i in range(6)],
        ["007", "7", "8", "9", "10", "é"],
        [-1, 2**62, 0, 5, 6, 7],
    ],
)
def test_ids_of_any_type(tmp_path, ids, kind):
    nodes = [{**row, "id": i} for row, i in zip(NODES, ids, strict=True)]
    edges = [{"source": ids[i], "target": ids[(i + 1) % 6]} for i in range(6)]
    graph = load_tables(write(tmp_path, nodes, edges, kind)).graph
    assert graph.edges.tolist() == [[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]]
    assert list(graph.ids) == ids
    assert isinstance(graph.ids, Texts) == isinstance(ids[0], str)


def test_float_endpoints_join_integer_ids(tmp_path):
    write(tmp_path, kind="parquet")
    duckdb.sql(f"COPY (SELECT 10.0::DOUBLE AS source, '11' AS target) TO '{tmp_path}/edges.parquet'")
    assert load_tables(tmp_path).graph.edges.tolist() == [[0], [1]]


@pytest.mark.parametrize(("n", "e"), [(500, 3000), (3000, 200)])
def test_order_of_rows_survives_chunks(tmp_path, monkeypatch, n, e):
    monkeypatch.setattr(arrays, "TEXT_ROWS", 64)
    monkeypatch.setattr(arrays, "EDGE_ROWS", 128)
    rng = np.random.default_rng(0)
    ids = rng.permutation(10 * n)[:n]
    nodes = [{"id": int(i), "text": f"é{i}", "label": int(i) % 12} for i in ids]
    ends = rng.integers(0, n, (2, e))
    edges = [{"source": int(ids[s]), "target": int(ids[t])} for s, t in ends.T]
    for kind in FORMATS:
        graph = load_tables(write(tmp_path / kind, nodes, edges, kind)).graph
        np.testing.assert_array_equal(graph.edges, ends)
        np.testing.assert_array_equal(graph.ids, ids)
        assert list(graph.texts) == [f"é{i}" for i in ids]
        assert graph.class_names == [str(c) for c in range(12)]  # in the order of numbers, not 0, 1, 10, 11, 2
        np.testing.assert_array_equal(graph.labels, ids % 12)


@pytest.mark.parametrize("kind", FORMATS)
def test_features(tmp_path, kind):
    nodes = [{**row, "u": i, "v": i / 2} for i, row in enumerate(NODES)]
    edges = [{**row, "w": 0.5} for row in EDGES]
    write(
        tmp_path,
        nodes,
        edges,
        kind,
        'features = ["u", "v"]\nedge_features = "w"\nname = "n"\nattributes = "sequence"\ntext = "text"',
    )
    graph = load_tables(tmp_path).graph
    np.testing.assert_array_equal(graph.features, [[i, i / 2] for i in range(6)])
    np.testing.assert_array_equal(graph.edge_features, [[0.5]] * 6)
    assert graph.features.dtype == np.float32
    assert (graph.name, graph.attributes) == ("n", "sequence")


def test_features_file(tmp_path):
    write(tmp_path)
    np.save(tmp_path / "features.npy", np.ones((6, 2), np.float32))
    loaded = load_tables(tmp_path)
    assert loaded.graph.features.shape == (6, 2)
    assert "features.npy: taken for the given features" in loaded.warnings[0]
    (tmp_path / "graph.toml").write_text('features = "x.npy"')
    assert "x.npy: cannot be read" in problems(tmp_path)[0]
    np.save(tmp_path / "x.npy", np.ones((5, 2)))
    assert "x.npy: numbers of shape (6, d) expected, one row per node, got float64 (5, 2)" in problems(tmp_path)[0]
    x = np.ones((6, 2))
    x[3, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    assert "not finite numbers within float32: row 4, column 2" in problems(tmp_path)[0]
    x[3, 1] = 1e300  # finite in float64, infinite in the float32 that features are computed with
    np.save(tmp_path / "x.npy", x)
    assert "not finite numbers within float32: row 4, column 2" in problems(tmp_path)[0]


def test_bad_features(tmp_path):
    nodes = [{**row, "u": u} for row, u in zip(NODES, (1, None, "nan", "x", "inf", 6), strict=True)]
    edges = changed([{**row, "w": 1} for row in EDGES], 2, w="?")
    told = problems(write(tmp_path, nodes, edges, toml='features = "u"\nedge_features = "w"'))
    assert "nodes.csv, column 'u': 4 cells are not finite numbers: line 3, line 4, line 5, line 6" in told
    assert "edges.csv, column 'w': 1 cells are not finite numbers: line 4" in told


@pytest.mark.parametrize("end", ["010", " 10", "10.0", "1e1", "ten"])
def test_ids_join_only_if_written_alike(tmp_path, end):
    told = problems(write(tmp_path, edges=changed(EDGES, 0, source=end)))
    assert f"1 of 6 edges name a node unknown to nodes.csv: line 2 ('{end}')" in told[0]
