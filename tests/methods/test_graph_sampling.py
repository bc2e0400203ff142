"""Joint training on sampled subgraphs."""

import numpy as np
import pytest

from labeldeconv import fit
from labeldeconv.errors import ConfigError

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5}


@pytest.mark.parametrize("method", ["joint-gas", "joint-sage"])
def test_joint_training_trains_the_encoder_and_reports_sizes(graph, tmp_path, method):
    if method == "joint-gas":
        pytest.importorskip("pymetis", reason="needs the extra metis")
    quick = {**QUICK, "joint__epochs": 2, "joint__batch_nodes": 16}
    result = fit(graph, method=method, out=tmp_path / "a", **quick)
    pne = fit(graph, method="pne", out=tmp_path / "p", **quick)
    assert not np.array_equal(result.features, pne.features)
    assert 1 <= result.batch <= result.subgraph <= 80
    again = fit(graph, method=method, out=tmp_path / "b", cache=tmp_path / "c2", **quick)
    np.testing.assert_array_equal(result.logits, again.logits)


def test_joint_training_at_rate_zero_keeps_the_features(graph, tmp_path):
    quick = {**QUICK, "joint__epochs": 2, "joint__batch_nodes": 16}
    joint = fit(graph, method="joint-sage", train__lr=0.0, out=tmp_path / "j", **quick)
    pne = fit(graph, method="pne", out=tmp_path / "p", **quick)
    np.testing.assert_array_equal(joint.features, pne.features)
    assert joint.encoder_nodes_by_stage["train"] == 0


def test_joint_features_can_have_a_gnn_of_their_own(graph, tmp_path):
    quick = {**QUICK, "joint__epochs": 1, "joint__batch_nodes": 16}
    joint = fit(graph, method="joint-sage", out=tmp_path / "j", **quick)
    fresh = fit(graph, method="joint-sage", joint__gnn="fresh", out=tmp_path / "f", **quick)
    assert "train" in fresh.cached
    np.testing.assert_array_equal(joint.features, fresh.features)
    assert not (tmp_path / "j" / "epochs.jsonl").read_text()
    assert (tmp_path / "f" / "epochs.jsonl").read_text()


def test_joint_training_names_gnns_it_cannot_run(graph, tmp_path):
    with pytest.raises(ConfigError, match="SAGN cannot be run layer by layer"):
        fit(graph, method="joint-sage", gnn="sagn", out=tmp_path / "r", **QUICK)
