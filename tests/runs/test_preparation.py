"""Before a run: where it is written, and what does not fit is told."""

import numpy as np
import pytest
from torch_geometric.nn import GraphSAGE

from labeldeconv import fit, planted, sweep
from labeldeconv.errors import ConfigError
from labeldeconv.runs.preparation import plain_name

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5}


def test_default_folders_belong_to_their_settings(tmp_path, monkeypatch):
    """Two calls with different settings and no `out` wrote one folder, and the first result read the second's files."""
    monkeypatch.chdir(tmp_path)
    first = fit("planted:60", method="pne", **QUICK)
    kept = np.array(first.logits)
    second = fit("planted:60", method="pne", **{**QUICK, "gnn__epochs": 2})
    other_data = fit("planted:64", method="pne", **QUICK)
    module = fit("planted:60", method="pne", gnn=GraphSAGE, **QUICK)
    assert len({r.run for r in (first, second, other_data, module)}) == 4
    np.testing.assert_array_equal(first.logits, kept)
    assert not np.array_equal(second.logits, kept)
    assert fit("planted:60", method="pne", **QUICK).run == first.run
    assert first.run.parts[0] == "runs"
    assert first.run.name.startswith("planted-multiclass-pne-gcn-0-")


@pytest.mark.parametrize(
    ("name", "plain"), [("../../x y", "_.._x_y"), ("/abs", "_abs"), ("..", "_"), ("a-b.c", "a-b.c")]
)
def test_names_of_folders_are_plain(name, plain):
    assert plain_name(name) == plain


def test_psi_s_layer_norms_cannot_become_the_gnn_s_batch_norms(tmp_path):
    """The defect: the run died after the encoder phase. It is refused before anything runs, and only where it is so."""
    settings = {"train__psi_norm": "layer", "gnn__init": "psi", "gnn__layers": 2, "gnn__hidden": 8}
    settings |= {"out": tmp_path / "run", "cache": tmp_path / "cache"}
    with pytest.raises(ConfigError) as told:
        fit("planted:60", method="fne", gnn="gcn", **settings, **QUICK)
    for word in ("gnn.init 'psi'", "train.psi_norm 'layer'", "gcn", "'batch' or 'running'", "gnn.init 'fresh'"):
        assert word in str(told.value)
    assert not (tmp_path / "run.partial").exists()
    assert not list((tmp_path / "cache").glob("tokens/*"))
    fit("planted:60", method="fne", gnn="gcn", gnn__options={"norm": "layer"}, **settings, **QUICK)
    for norm in ("batch", "running"):
        fit("planted:60", method="fne", gnn="gcn", **{**settings, "train__psi_norm": norm}, **QUICK)


def test_a_metric_that_does_not_fit_the_labels_is_told_before_anything_runs(tmp_path):
    graph = planted(40, "multilabel", seed=0, num_classes=4).graph
    settings = {"encoder": "tiny", "out": tmp_path / "run", "cache": tmp_path / "cache"}
    for gnn in ("gcn", "auto"):
        with pytest.raises(ConfigError, match="metric 'accuracy': the labels are several labels per node"):
            fit(graph, "pne", gnn=gnn, metric="accuracy", **settings)
    assert not list((tmp_path / "cache").glob("tokens/*"))
    with pytest.raises(ConfigError, match="cannot be varied"):
        sweep("planted:40", {"metric": ["accuracy", "macro-f1"]}, ["pne"], **settings)
