"""Costs of runs."""

import json

import pytest

from labeldeconv.analysis.cost import cost


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


def test_results_of_before_stages_were_counted(comparison, tmp_path):
    run = tmp_path / "ld-gcn-0"
    (run / "graph").parent.mkdir(parents=True)
    (run / "graph").symlink_to(comparison / "ld-gcn-0" / "graph")
    old = json.loads((comparison / "ld-gcn-0" / "result.json").read_text())
    del old["encoder_nodes_by_stage"]
    (run / "result.json").write_text(json.dumps(old))
    (method,) = cost(run).methods
    assert {s.passes for s in method.stages} == {None}
    assert method.encoder_passes == 4
