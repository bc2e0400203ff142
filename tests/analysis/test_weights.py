"""gamma over the steps."""

import json

import pytest

from labeldeconv.analysis.weights import GammaCurve, gamma_curves
from labeldeconv.errors import DataError


def test_curve_is_the_log(ld_run):
    (curve,) = gamma_curves(ld_run).curves
    logged = [json.loads(line) for line in (ld_run / "steps.jsonl").read_text().splitlines()]
    assert curve.gamma == [row["gamma"] for row in logged]
    assert curve.steps == list(range(1, len(logged) + 1))
    assert curve.final == json.loads((ld_run / "result.json").read_text())["gamma"]
    assert (curve.run, curve.method, curve.gnn, curve.seed) == ("ld-gcn-0", "ld", "gcn", 0)


def test_comparison_gives_its_ld_runs(comparison):
    found = gamma_curves(comparison)
    assert [c.run for c in found.curves] == ["ld-gcn-0", "ld-gcn-1"]
    rows = found.rows()
    assert len(rows) == sum(len(c.steps) for c in found.curves)
    assert sum(rows[-1][f"gamma_{i}"] for i in range(3)) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("gamma", "mean", "effective"), [([1.0, 0.0, 0.0], 0.0, 1.0), ([1 / 3] * 3, 1.0, 3.0), ([0.0, 0.5, 0.5], 1.5, 2.0)]
)
def test_mean_and_effective_hops(gamma, mean, effective):
    curve = GammaCurve("r", "ld", "gcn", 0, [1], [0], [gamma])
    assert (curve.mean_hop, curve.effective_hops) == pytest.approx((mean, effective), abs=1e-3)


def test_runs_without_gamma_are_an_error(comparison):
    with pytest.raises(DataError, match=r"no gamma.*here: wo-ld"):
        gamma_curves(comparison / "wo-ld-gcn-0")
