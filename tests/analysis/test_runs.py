"""Reading run directories."""

import json
import shutil

import numpy as np
import pytest

from labeldeconv import fit
from labeldeconv.analysis.runs import is_run, run_directories, run_with_gamma
from labeldeconv.errors import DataError
from labeldeconv.task import Task


def test_run_or_comparison(comparison, ld_run, tmp_path):
    names = [r.name for r in run_directories(comparison)]
    assert names == ["ld-gcn-0", "ld-gcn-1", "pne-gcn-0", "pne-gcn-1", "wo-ld-gcn-0", "wo-ld-gcn-1"]
    assert [r.name for r in run_directories(ld_run)] == ["ld-gcn-0"]
    assert run_with_gamma(comparison).name == "ld-gcn-0"
    assert run_directories(ld_run)[0].cell == "ld-gcn"
    assert is_run(comparison)
    assert is_run(ld_run)
    assert not is_run(tmp_path)
    with pytest.raises(DataError, match="finished"):
        run_directories(tmp_path)


def test_inverse_labels_are_the_weighted_sum(ld_run):
    (run,) = run_directories(ld_run)
    graph, K = run.labelled_graph()
    expected = np.einsum("h,nhc->nc", run.gamma, K)
    expected /= expected.sum(1, keepdims=True)
    ids = np.array([3, 0, 7])
    assert run.targets(K, Task.of(graph), ids) == pytest.approx(expected[ids], abs=1e-5)
    Y = np.load(ld_run / "pseudo_labels.npy")
    assert run.targets(K, Task.of(graph), ids, alpha=0.0) == pytest.approx(Y[ids], abs=1e-4)


def test_other_results_are_refused(ld_run, tmp_path):
    shutil.copy(ld_run / "result.json", tmp_path / "result.json")
    old = json.loads((tmp_path / "result.json").read_text())
    del old["encoder_nodes"]
    (tmp_path / "result.json").write_text(json.dumps(old))
    with pytest.raises(DataError, match="'encoder_nodes' is missing"):
        run_directories(tmp_path)
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(DataError, match="not valid JSON"):
        run_directories(tmp_path)


def test_inductive_run_has_labels_of_train_nodes(tmp_path):
    settings = {"gnn__hidden": 8, "gnn__epochs": 2, "train__epochs": 1, "setting": "inductive"}
    result = fit("planted:60", method="ld", encoder="tiny", out=tmp_path / "run", **settings)
    graph, K = run_directories(result.run)[0].labelled_graph()
    assert len(K) == graph.num_nodes < 60
