"""Export: the same numbers and ids in every format, and back into PyG."""

import json
from dataclasses import replace

import duckdb
import numpy as np
import pytest
from safetensors import safe_open

from labeldeconv import fit, planted
from labeldeconv.errors import DataError
from labeldeconv.graph.texts import Texts
from labeldeconv.runs import export as module
from labeldeconv.runs.export import export, export_run, run_to_pyg

X = np.arange(12, dtype=np.float16).reshape(6, 2)
LOGITS = np.array([[2, 0, 0], [0, 2, 0], [0, 0, 2], [1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32)


@pytest.mark.parametrize("ids", [None, np.arange(6) + 10, Texts.from_strings(["a", "b'", "ç", "d", "e", "f"])])
@pytest.mark.parametrize("rows", [4, 1 << 16])
def test_parquet(small_graph, tmp_path, monkeypatch, ids, rows):
    monkeypatch.setattr(module, "ROWS", rows)
    path = export(replace(small_graph, ids=ids), X, LOGITS, tmp_path / "out" / "x.parquet")
    found = duckdb.sql(f"SELECT * FROM '{path}'").fetchall()
    assert [row[0] for row in found] == (list(range(6)) if ids is None else list(ids))
    np.testing.assert_array_equal([row[1] for row in found], X)
    assert [row[2] for row in found] == ["a", "b", "c"] * 2
    assert found[0][3] == pytest.approx(np.exp(2) / (np.exp(2) + 2))
    assert [p.name for p in path.parent.iterdir()] == ["x.parquet"]


def test_multilabel(small_graph, tmp_path):
    graph = replace(small_graph, labels=np.eye(3, dtype=np.int8)[[0, 1, 2, 0, 1, 2]])
    path = export(graph, X, LOGITS, tmp_path / "x.parquet")
    found = duckdb.sql(f"SELECT probabilities FROM '{path}'").fetchall()
    np.testing.assert_allclose([row[0] for row in found], 1 / (1 + np.exp(-LOGITS)), rtol=1e-6)


def test_npy_and_safetensors(small_graph, tmp_path):
    graph = replace(small_graph, ids=Texts.from_strings("uvwxyz"))
    path = export(graph, X, LOGITS, tmp_path / "x.npy")
    np.testing.assert_array_equal(np.load(path), X)
    np.testing.assert_array_equal(np.load(tmp_path / "x.logits.npy"), LOGITS)
    assert (tmp_path / "x.ids.txt").read_text().split() == list("uvwxyz")
    for ids in (graph.ids, np.arange(6)):
        path = export(replace(graph, ids=ids), X, None, tmp_path / "x.safetensors")
        with safe_open(path, "np") as held:
            np.testing.assert_array_equal(held.get_tensor("features"), X)
            got = held.get_tensor("ids") if "ids" in held.keys() else json.loads(held.metadata()["ids"])  # noqa: SIM118
            assert list(got) == list(ids)


def test_errors(small_graph, tmp_path):
    with pytest.raises(DataError, match=r"ends in .parquet, .npy, .safetensors expected"):
        export(small_graph, X, LOGITS, tmp_path / "x.csv")
    with pytest.raises(DataError, match=r"the directory of a finished `labeldeconv fit`"):
        export_run(tmp_path, tmp_path / "x.npy")


def test_a_run(tmp_path):
    settings = {"method": "pne", "encoder": "tiny", "gnn__epochs": 2, "cache": tmp_path / "c"}
    result = fit("planted:60", out=tmp_path / "r", **settings)
    path = export_run(tmp_path / "r", tmp_path / "x.parquet")
    assert duckdb.sql(f"SELECT count(*), min(len(features)) FROM '{path}'").fetchall() == [(60, 32)]
    data = run_to_pyg(tmp_path / "r")
    np.testing.assert_array_equal(data.x.numpy(), result.features.astype(np.float32))
    np.testing.assert_array_equal(np.flatnonzero(data.train_mask), planted(60).graph.split.train)


def test_ids_with_line_breaks_keep_their_rows(tmp_path, small_graph):
    from dataclasses import replace

    ids = ["a\nb", "c", "d\r", "e\u2028f", "", "g"]
    graph = replace(small_graph, ids=Texts.from_strings(ids), class_names=["x\ny", "b", "c"])
    export(small_graph, np.zeros((6, 2), np.float32), np.zeros((6, 3), np.float32), tmp_path / "x.npy")
    assert (tmp_path / "x.ids.txt").exists()
    export(graph, np.zeros((6, 2), np.float32), np.zeros((6, 3), np.float32), tmp_path / "x.npy")
    assert json.loads((tmp_path / "x.ids.json").read_text()) == ids
    assert json.loads((tmp_path / "x.classes.json").read_text()) == ["x\ny", "b", "c"]
    assert not (tmp_path / "x.ids.txt").exists()


def test_nothing_is_exported_into_a_run(tmp_path, small_graph):
    (tmp_path / "run" / "graph").mkdir(parents=True)
    (tmp_path / "run" / "result.json").write_text("{}")
    for place in ("run/logits.npy", "run/graph/edges.npy", "run/new/x.parquet", "run/../run/x.npy"):
        with pytest.raises(DataError, match="inside the run directory"):
            export(small_graph, np.zeros((6, 2), np.float32), None, tmp_path / place)
    assert sorted(p.name for p in tmp_path.rglob("*.npy")) == []
    (tmp_path / "x.npy").mkdir()
    with pytest.raises(DataError, match=r"x\.npy: cannot be written: Is a directory"):
        export(small_graph, np.zeros((6, 2), np.float32), None, tmp_path / "x.npy")
