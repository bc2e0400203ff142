"""Names of a run that are known here, and names of somebody else's modules, which are never imported."""

import sys

import pytest

from labeldeconv.analysis.bias import bias
from labeldeconv.analysis.known import convolutions_of, hops_of, known_architecture
from labeldeconv.analysis.spectrum import spectrum_for
from labeldeconv.errors import DataError
from labeldeconv.runs.directory import RunDirectory
from tests.analysis.run_changing import with_settings

FOREIGN = {"method": "theirs:method", "gnn.name": "theirs:GNN"}


@pytest.fixture
def _theirs(tmp_path, monkeypatch):
    """A module that must not be imported."""
    (tmp_path / "theirs.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)


def test_a_known_gnn(ld_run):
    run = RunDirectory.open(ld_run)
    assert known_architecture(run).name == "gcn"
    assert convolutions_of(run) == run.settings["gnn"]["layers"] == 1
    assert hops_of(run) == 2  # as set


@pytest.mark.usefixtures("_theirs")
def test_inverse_labels_tell_the_hops_of_an_unknown_gnn(ld_run, tmp_path):
    run = with_settings(ld_run, tmp_path / "run", {**FOREIGN, "labels.hops": None})
    assert known_architecture(run) is None
    assert convolutions_of(run) == hops_of(run) == 2
    found = bias(run.path)
    assert found.before.hops == 2
    assert (found.after.runs[0].psi_test, found.after.runs[0].agreement) == (None, None)
    assert found.after.runs[0].target_distance > 0
    assert spectrum_for(run.graph, run.config(), run).phi[0].name == "A-hat^2"
    assert "theirs" not in sys.modules


@pytest.mark.usefixtures("_theirs")
def test_without_inverse_labels_only_set_hops_are_known(comparison, tmp_path):
    run = with_settings(comparison / "pne-gcn-0", tmp_path / "set", FOREIGN)
    assert hops_of(run) == 2
    with pytest.raises(DataError, match="'theirs:GNN' is not known here"):
        convolutions_of(run)
    unset = with_settings(comparison / "pne-gcn-0", tmp_path / "unset", {**FOREIGN, "labels.hops": None})
    with pytest.raises(DataError, match="'theirs:GNN' is not known here"):
        bias(unset.path)
