"""X_GLEM: EM rounds, of which the best is kept whole."""

import json
import re

import numpy as np
import pytest

from labeldeconv import fit
from labeldeconv.graph.split import Split

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5}


def manifest(tmp_path, stage):
    return json.loads((tmp_path / "cache" / stage / "stage.json").read_text())


@pytest.mark.parametrize("first", ["gnn", "encoder"])
def test_glem_takes_the_best_round_whole(graph, tmp_path, first):
    """Features, encoder, psi and GNN are of the round with the best validation score, whichever it is."""
    words = {"method": "glem", "glem__rounds": 3, "glem__first": first, "train__lr": 1e-3, **QUICK}
    result = fit(graph, out=tmp_path / "r", **words)
    rounds = [label for label in result.seconds if re.fullmatch(r"gnn \d", label) and label != "gnn 0"]
    values = {label: manifest(tmp_path, result.stages[label])["values"]["val"] for label in rounds}
    assert len(values) == 3
    best = max(values, key=values.__getitem__)
    assert result.val == values[best] == max(values.values())
    chosen = best.removeprefix("gnn ")
    kept = tmp_path / "cache" / result.stages[f"train {chosen}"]
    for mine, its in (
        ("encoder/model.safetensors", "encoder/model.safetensors"),
        ("psi.safetensors", "head.safetensors"),
    ):
        assert (result.run / mine).read_bytes() == (kept / its).read_bytes()
    np.testing.assert_array_equal(
        result.features, np.load(tmp_path / "cache" / result.stages[f"features {chosen}"] / "values.npy")
    )


def test_glem_keeps_an_earlier_round_that_is_better(graph, tmp_path, monkeypatch):
    """The second round is made worse than the first: everything must be of the first."""
    from labeldeconv.methods import glem as module

    made = []

    def m_step(run, trained, Y, number, real=module._m_step):
        learned = real(run, trained, Y, number)
        made.append(learned)
        if number == 2:
            object.__setattr__(learned.gnn, "val", -1.0)
        return learned

    monkeypatch.setattr(module, "_m_step", m_step)
    result = fit(graph, method="glem", glem__rounds=2, train__lr=1e-3, out=tmp_path / "r", **QUICK)
    assert not np.array_equal(made[0].features.values, made[1].features.values)
    np.testing.assert_array_equal(result.features, made[0].features.values)
    own = (result.run / "encoder" / "model.safetensors").read_bytes()
    assert own == (made[0].encoder.encoder / "model.safetensors").read_bytes()


def test_glem_without_evaluation_nodes_to_label(graph, tmp_path):
    """With all pseudo ratios 0 the E-step is fine-tuning on gold alone."""
    result = fit(graph, method="glem", out=tmp_path / "g", glem__encoder_ratio=0.0, glem__gnn_ratio=0.0, **QUICK)
    fne = fit(graph, method="fne", out=tmp_path / "f", **QUICK)
    np.testing.assert_array_equal(result.features, fne.features)
    assert Split(graph.split.roles).train.size == 48
