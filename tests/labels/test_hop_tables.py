import json

import duckdb
import numpy as np
import pytest

from labeldeconv import fit
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.labels import hop_tables
from labeldeconv.labels.hop_tables import check_sums, hops_of_tables
from labeldeconv.labels.hops import hop_labels
from labeldeconv.lake.parquet import read_values, write_rows
from labeldeconv.lake.tables import HopTables
from labeldeconv.settings.models import AdjacencyConfig
from tests.lake.test_spark import java
from tests.samples import random_edges, write_parquet

__all__ = ["java"]  # a fixture


@pytest.fixture
def tables(tmp_path):
    edges = random_edges(40, 120)
    names = np.array([f"v{i:02d}" for i in range(44)], dtype=object)  # the last four have no edges
    Y = np.random.default_rng(1).random((44, 3))
    order = np.random.default_rng(2).permutation(44)
    nodes = write_parquet(tmp_path / "nodes.parquet", id=names[order], label=Y[order])
    ends = write_parquet(tmp_path / "edges.parquet", source=names[edges[0]], target=names[edges[1]])
    return HopTables(str(nodes), str(ends), 2), hop_labels(edges, Y, 2)


def test_local_hop_labels_as_npy_and_as_parquet(tmp_path, tables):
    asked, expected = tables
    told = hops_of_tables(asked, str(tmp_path / "K"))
    assert {k: told[k] for k in ("nodes", "classes", "hops", "store")} == {
        "nodes": 44, "classes": 3, "hops": 2, "store": "float32",
    }  # fmt: skip
    K = np.load(tmp_path / "K" / "K.npy")
    np.testing.assert_array_equal(K, expected)
    for hop in range(3):
        with duckdb.connect() as con:
            files = f"read_parquet('{tmp_path}/K/K_{hop}.parquet/*.parquet')"
            found = con.execute(f"SELECT id, row, degree, values FROM {files} ORDER BY row").fetchall()
        assert [row[0] for row in found] == [f"v{i:02d}" for i in range(44)]
        assert [row[1] for row in found] == list(range(44))
        assert [row[2] for row in found][-4:] == [1] * 4
        np.testing.assert_array_equal(np.array([row[3] for row in found], np.float32), expected[:, hop])


@pytest.mark.parametrize("store", ["float32", "uint16"])
@pytest.mark.parametrize("normalization", ["row", "symmetric"])
def test_a_hop_that_lost_something_is_refused(tmp_path, tables, normalization, store):
    """What a cluster lost between two hops is missing in a sum that every hop keeps."""
    given = AdjacencyConfig(normalization=normalization)
    asked = HopTables(tables[0].nodes, tables[0].edges, 2, given, "float32" if normalization == "symmetric" else store)
    hops_of_tables(asked, str(tmp_path / "K"))
    check_sums(asked, tmp_path / "K")
    part = tmp_path / "K" / "K_2.parquet"
    values = read_values(part, 0)
    with duckdb.connect() as con:
        known = con.execute(f"SELECT row, degree FROM read_parquet('{part}/*.parquet') ORDER BY row").fetchnumpy()
    values[7, 1] -= 0.1 * values[7, 1]  # one of the sums that came for it did not
    write_rows(part, 0, known, values)
    with pytest.raises(DataError, match=r"K_2.parquet: its weighted sum differs from that of K_0 by .*lost"):
        check_sums(asked, tmp_path / "K")


def test_fixed_point_is_that_of_runs(tmp_path, tables):
    asked, expected = tables
    hops_of_tables(HopTables(asked.nodes, asked.edges, 2, store="uint16"), str(tmp_path / "K"))
    K = np.load(tmp_path / "K" / "K.npy")
    assert K.dtype == np.uint16
    np.testing.assert_allclose(K / 65535, expected, atol=3e-5)


def test_backward_turns_directed_edges(tmp_path, tables):
    asked, _ = tables
    adjacency = asked.adjacency.model_copy(update={"undirected": False})
    found = []
    for backward in (False, True):
        out = tmp_path / str(backward)
        hops_of_tables(HopTables(asked.nodes, asked.edges, 1, adjacency, backward=backward), str(out))
        found.append(np.load(out / "K.npy"))
    turned = HopTables(asked.nodes, asked.edges, 1, adjacency, source="target", target="source")
    hops_of_tables(turned, str(tmp_path / "turned"))
    np.testing.assert_array_equal(found[1], np.load(tmp_path / "turned" / "K.npy"))
    assert not np.array_equal(*found)


def test_a_complete_folder_stays_and_another_question_is_refused(tmp_path, tables):
    asked, _ = tables
    out = tmp_path / "K"
    told = hops_of_tables(asked, str(out))
    before = (out / "K.npy").stat().st_mtime_ns
    assert hops_of_tables(asked, str(out)) == json.loads((out / "hops.json").read_text()) == told
    assert (out / "K.npy").stat().st_mtime_ns == before
    other = HopTables(asked.nodes, asked.edges, 1)
    with pytest.raises(DataError, match="hops 2 and not 1"):
        hops_of_tables(other, str(out))
    (out / "hops.json").unlink()  # killed before the end
    with pytest.raises(DataError, match="hops 2 and not 1"):
        hops_of_tables(other, str(out))
    assert hops_of_tables(asked, str(out))["nodes"] == 44


def test_what_is_not_accepted(tmp_path, tables):
    asked, _ = tables
    with pytest.raises(ConfigError, match="local, spark expected"):
        hops_of_tables(asked, str(tmp_path / "K"), "dask")
    with pytest.raises(ConfigError, match="0 to 1000"):
        hops_of_tables(HopTables(asked.nodes, asked.edges, -1), str(tmp_path / "K"))
    with pytest.raises(DataError, match="a folder of this machine"):
        hops_of_tables(asked, "s3a://bucket/K")
    with pytest.raises(DataError, match="'labels' is missing; did you mean 'label'"):
        hops_of_tables(HopTables(asked.nodes, asked.edges, 1, label="labels"), str(tmp_path / "K"))
    assert not (tmp_path / "K").exists()


@pytest.mark.spark
def test_a_fit_takes_its_hop_labels_from_spark(java, tmp_path):
    """Features of both engines are those of one K: in fixed point it is equal to the bit, but the stage is another."""
    runs = {}
    for engine in ("local", "spark"):
        settings = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 2, "labels__engine": engine}
        runs[engine] = fit("planted:60", **settings, labels__master="local[2]", out=tmp_path / engine)
    local, spark = runs["local"], runs["spark"]
    assert local.stages["hops"] != spark.stages["hops"]
    assert local.stages["pseudo"] == spark.stages["pseudo"]
    np.testing.assert_array_equal(spark.features, local.features)


def test_a_killed_attempt_of_the_stage_goes_on(tmp_path, monkeypatch):
    """The tables of the first attempt stay as they are, so that Spark knows its own folder again."""
    asked = []

    def killed(tables, out, engine, cluster):
        asked.append(tables.question())
        if len(asked) == 1:
            raise KeyboardInterrupt
        return hops_of_tables(tables, out)

    monkeypatch.setattr(hop_tables, "hops_of_tables", killed)
    settings = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 2, "cache": tmp_path / "cache"}
    with pytest.raises(KeyboardInterrupt):
        fit("planted:40", labels__engine="spark", out=tmp_path / "a", **settings)
    spark = fit("planted:40", labels__engine="spark", out=tmp_path / "a", **settings)
    assert asked[0] == asked[1]
    np.testing.assert_array_equal(spark.features, fit("planted:40", out=tmp_path / "b", **settings).features)
