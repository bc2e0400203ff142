"""X_GIANT: neighbourhoods, never labels; and encoders adapted by it."""

import numpy as np

from labeldeconv import fit
from tests.methods.test_base import relabelled

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5}
GIANT = {"giant__coarsest": 2, "giant__cluster_size": 10, "giant__step": 1}


def test_giant_never_uses_labels(graph, tmp_path):
    settings = {"giant__coarsest": 2, "giant__cluster_size": 10, "giant__step": 1, **QUICK}
    a = fit(graph, method="giant", out=tmp_path / "a", cache=tmp_path / "c1", **settings)
    b = fit(relabelled(graph, "train"), method="giant", out=tmp_path / "b", cache=tmp_path / "c2", **settings)
    np.testing.assert_array_equal(a.features, b.features)
    assert [label for label in a.seconds if label.startswith("train")] == ["train 4", "train 8"]


def test_an_adapted_encoder_is_that_of_giant(graph, tmp_path):
    """Two routes: adapt and go on, or run GIANT, take the encoder out of its run directory and start from there."""
    giant = fit(graph, method="giant", out=tmp_path / "giant", **GIANT, **QUICK)
    pne = fit(graph, method="pne", encoder__adapt="giant", out=tmp_path / "pne", **GIANT, **QUICK)
    np.testing.assert_array_equal(pne.features, giant.features)
    assert set(pne.cached) == {"tokens", "tree", "train 4", "train 8", "encode", "gnn"}  # X_GIANT and its GNN, recalled
    for method in ("ld", "glem", "joint-sage"):
        adapted = fit(graph, method=method, encoder__adapt="giant", out=tmp_path / f"{method}-a", **GIANT, **QUICK)
        quick = {**QUICK, "encoder": str(giant.run / "encoder")}
        folder = fit(graph, method=method, out=tmp_path / f"{method}-b", cache=tmp_path / "other", **quick)
        np.testing.assert_array_equal(adapted.features, folder.features)
        np.testing.assert_array_equal(adapted.logits, folder.logits)
        assert {"train 4", "train 8"} <= set(adapted.seconds)


def test_methods_that_cannot_be_adapted_are_left_alone(graph, tmp_path):
    for method in ("given", "giant"):
        plain = fit(graph, method=method, out=tmp_path / f"{method}-a", **GIANT, **QUICK)
        adapted = fit(graph, method=method, encoder__adapt="giant", out=tmp_path / f"{method}-b", **GIANT, **QUICK)
        assert list(adapted.seconds) == list(plain.seconds)
        np.testing.assert_array_equal(adapted.logits, plain.logits)
