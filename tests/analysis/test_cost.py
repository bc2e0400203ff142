"""Costs of runs."""

import json
import shutil

import pytest

from labeldeconv.analysis.cost import cost
from labeldeconv.errors import DataError
from tests.analysis.run_changing import with_settings


def test_costs_are_those_of_the_results(comparison):
    found = {m.run: m for m in cost(comparison).methods}
    assert set(found) == {"pne-gcn", "wo-ld-gcn", "ld-gcn"}
    ld = found["ld-gcn"]
    results = [json.loads((comparison / f"ld-gcn-{s}" / "result.json").read_text()) for s in (0, 1)]
    assert ld.seeds == 2
    assert ld.seconds == pytest.approx(sum(sum(r["seconds"].values()) for r in results) / 2, abs=0.01)
    assert ld.peak_mib == max(p for r in results for p in r["peak_mib"].values())
    stages = {s.stage: s for s in ld.stages}
    assert {"tokens", "encode", "first gnn", "pseudo", "hops", "train", "features", "gnn"} == set(stages)
    # Algorithm 1: X_PNE for the pseudo labels, two epochs, F over all nodes
    assert [stages[name].passes for name in ("encode", "train", "features", "gnn")] == [1, 2, 1, 0]
    assert ld.encoder_passes == 4
    assert ld.seconds_per_epoch == pytest.approx(stages["train"].seconds / 2, abs=0.001)
    assert (ld.time, ld.memory, ld.signals) == ("O(|V|)", "O(|B|)", "Y & A")
    assert ld.batch == ld.subgraph == results[0]["batch"]
    pne = found["pne-gcn"]
    assert (pne.encoder_passes, pne.seconds_per_epoch, pne.batch, pne.time) == (1, None, None, None)


def test_rows_end_with_the_whole(comparison):
    result = cost(comparison)
    rows = [row for row in result.rows() if row["run"] == "ld-gcn"]
    assert rows[-1]["stage"] == "all"
    assert rows[-1]["seconds"] == pytest.approx(sum(row["seconds"] for row in rows[:-1]), abs=0.01)


def test_results_of_another_version_are_refused(comparison, tmp_path):
    run = tmp_path / "ld-gcn-0"
    shutil.copytree(comparison / "ld-gcn-0", run)
    old = json.loads((run / "result.json").read_text())
    del old["format"]
    (run / "result.json").write_text(json.dumps(old))
    with pytest.raises(DataError, match="another version wrote it"):
        cost(run)


def test_epochs_are_those_of_the_method(comparison, tmp_path):
    """GIANT and joint training count their own; a method that is not known here counts those of the encoder phase."""
    for method, epochs in (("giant", 3), ("joint-sage", 5), ("theirs:method", 2)):
        sets = {"method": method, "giant.epochs": 3, "joint.epochs": 5}
        run = with_settings(comparison / "ld-gcn-0", tmp_path / str(epochs), sets)
        (found,) = cost(run.path).methods
        assert found.seconds_per_epoch == pytest.approx(run.result["seconds"]["train"] / epochs, abs=1e-3)
        assert (found.time is None) == (method == "theirs:method")
