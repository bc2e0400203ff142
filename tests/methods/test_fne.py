"""X_FNE: true labels of train nodes and nothing else."""

import numpy as np

from labeldeconv import fit

QUICK = {"encoder": "tiny", "train__epochs": 2, "gnn__epochs": 5}


def test_it_trains_on_train_nodes(graph, tmp_path):
    result = fit(graph, method="fne", out=tmp_path / "r", **QUICK)
    pne = fit(graph, method="pne", out=tmp_path / "p", **QUICK)
    assert result.encoder_nodes_by_stage["train"] == 2 * len(graph.split.train)
    assert not np.array_equal(result.features, pne.features)
    assert set(result.seconds) == {"tokens", "train", "features", "gnn"}


def test_psi_can_start_from_the_first_gnn(graph, tmp_path):
    result = fit(graph, method="fne", train__psi_init="gnn", out=tmp_path / "r", **QUICK)
    assert "first gnn" in result.seconds
