"""Results: they stay those of their run, and say where the time went."""

import json

import numpy as np
import pytest

from labeldeconv import fit

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5}


def test_a_result_belongs_to_its_run_for_ever(tmp_path):
    first = fit("planted:60", method="pne", out=tmp_path / "run", **QUICK)
    kept = np.array(first.features), np.array(first.logits)
    second = fit("planted:60", method="fne", out=tmp_path / "run", **QUICK)
    assert not np.array_equal(second.features, kept[0])
    np.testing.assert_array_equal(first.features, kept[0])
    np.testing.assert_array_equal(first.logits, kept[1])


def test_profile_says_where_the_time_went(tmp_path):
    result = fit("planted:60", out=tmp_path / "run", cache=tmp_path / "cache", **QUICK)
    profile = result.write_profile()
    assert profile == json.loads((tmp_path / "run" / "profile.json").read_text())
    assert [row["stage"] for row in profile["stages"]] == list(result.seconds)
    assert sum(row["share"] for row in profile["stages"]) == pytest.approx(1, abs=0.01)
    assert {row["computed"] for row in profile["stages"]} == {"now"}
    parts = {row["part"]: row["seconds"] for row in profile["step"]}
    assert {"batches", "encoder", "psi", "targets", "loss", "backward", "clip", "update", "log"} == set(parts)
    assert sum(parts.values()) <= result.seconds["train"] + 0.1
    again = fit("planted:60", method="pne", out=tmp_path / "pne", cache=tmp_path / "cache", **QUICK).write_profile()
    assert "step" not in again
    assert {row["stage"]: row["computed"] for row in again["stages"]}["encode"] == "before"
