"""psi alone against the GNN, and the targets, from run directories."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from labeldeconv import fit, planted
from labeldeconv.analysis.outcome import _differences, outcome
from labeldeconv.graph.task import Task
from labeldeconv.runs.directory import RunDirectory, open_runs


def test_inverse_labels_are_the_weighted_sum(ld_run):
    (run,) = open_runs(ld_run)
    graph, K = run.labelled_graph()
    expected = np.einsum("h,nhc->nc", run.gamma, K)
    expected /= expected.sum(1, keepdims=True)
    ids = np.array([3, 0, 7])
    assert run.targets(K, Task.of(graph), ids) == pytest.approx(expected[ids], abs=1e-5)
    Y = np.load(ld_run / "pseudo_labels.npy")
    assert run.targets(K, Task.of(graph), ids, alpha=0.0) == pytest.approx(Y[ids], abs=1e-4)


def test_psi_alone_is_the_linear_layer_of_fne(tmp_path):
    """By numpy from the files of the run."""
    graph = planted(60, seed=0).graph
    quick = {"train__epochs": 1, "gnn__epochs": 2, "gnn__hidden": 8}
    result = fit(graph, method="fne", encoder="tiny", out=tmp_path / "run", **quick)
    head, x = load_file(result.run / "psi.safetensors"), np.load(result.run / "features.npy").astype(np.float32)
    named = (x @ head["weight"].T + head["bias"]).argmax(1)
    (found,) = outcome([RunDirectory.open(result.run)]).runs
    test = graph.split.test
    assert found.psi_test == pytest.approx((named[test] == graph.labels[test]).mean())
    assert found.agreement == pytest.approx((named == result.logits.argmax(1)).mean(), abs=1e-4)


@pytest.mark.parametrize("head", ["linear", "psi"])
@pytest.mark.parametrize("method", ["fne", "glem", "giant", "joint-sage"])
def test_psi_of_every_method_that_has_one(method, head, tmp_path):
    """GIANT's head predicts clusters; joint training keeps the GNN's own BatchNorm, whatever psi would have had."""
    quick = {"train__epochs": 1, "gnn__epochs": 2, "gnn__hidden": 8, "joint__epochs": 1, "train__psi_norm": "layer"}
    quick["train__head"] = head
    graph = planted(60, seed=0).graph
    result = fit(graph, method=method, encoder="tiny", out=tmp_path / "run", **quick)
    (found,) = outcome([RunDirectory.open(result.run)]).runs
    assert found.gnn_test == result.test
    assert found.target_distance is None
    if method == "giant":
        assert found.psi_test is found.agreement is None
    else:
        assert 0 <= found.psi_test <= 1
        assert 0 <= found.agreement <= 1


def test_differences_are_paired_by_seed_and_setting():
    scores = {"ld-gcn-0": 0.9, "ld-gcn-1": 0.8, "wo-ld-gcn-0": 0.6, "wo-ld-gcn-1": 0.6, "wo-ld-gcn-2": 0.1}
    scores |= {"ld-sagn-0": 0.5, "joint-gas-gcn-0": 0.95}
    runs = []
    for name, test in scores.items():
        method, gnn, seed = name.rsplit("-", 2)
        settings = {"method": method, "gnn": {"name": gnn}, "seed": int(seed)}
        runs.append(RunDirectory(Path(name), name, {"test": test, "settings": settings}))
    found = {(d.a, d.b, d.setting): (d.points, d.seeds) for d in _differences(runs)}
    assert found == {
        ("ld", "wo-ld", "gcn"): (0.25, 2),
        ("joint-gas", "wo-ld", "gcn"): (0.35, 1),
        ("joint-gas", "ld", "gcn"): (0.05, 1),
    }
