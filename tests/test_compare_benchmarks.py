"""benchmarks/compare.py: a loss of speed is told from noise, and what cannot be told is said."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import bench
from benchmarks import ranks as by_ranks
from benchmarks.compare import judge, ratios
from labeldeconv.stages import ranks
from tests.launched import launch

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "benchmarks" / "compare.py"


def noisy(middle: float, rounds: int, seed: int, spread: float = 0.1) -> list[float]:
    return (middle * np.exp(spread * np.random.default_rng(seed).normal(size=rounds))).tolist()


def test_a_loss_beyond_the_noise_is_a_regression():
    finding = judge("hop", noisy(2.0, 9, 0), noisy(1.5, 9, 1))
    assert finding.verdict == "regression"
    assert finding.change == pytest.approx(0.75, rel=0.1)
    assert judge("hop", noisy(1.5, 9, 1), noisy(2.0, 9, 0)).verdict == "improvement"


def test_equal_runs_are_seldom_called():
    """At p <= 0.05 of both sides one in ten pairs has such ranks, and fewer have medians 5% apart too."""
    verdicts = [judge("hop", noisy(2.0, 7, 2 * k), noisy(2.0, 7, 2 * k + 1)).verdict for k in range(300)]
    assert verdicts.count("noise") > 0.85 * 300


def test_a_sure_change_of_three_percent_does_not_count():
    assert judge("hop", noisy(2.0, 9, 0, 1e-4), noisy(1.94, 9, 1, 1e-4)).verdict == "noise"


def test_too_few_rounds_are_said_to_be():
    assert judge("hop", [2.0, 2.0], [1.0, 1.0]).verdict == "too few"
    assert judge("hop", [2.0, 2.1, 2.2], [1.0, 1.1, 1.2]).verdict == "regression"  # p = 1/20


def test_the_probability_by_hand():
    """Of the 20 ways to deal 6 ranks to two runs of 3, one has all low ones in the new run, the next one swap."""
    assert judge("hop", [4, 5, 6], [1, 2, 3]).p == pytest.approx(1 / 20)
    assert judge("hop", [3, 5, 6], [1, 2, 4]).p == pytest.approx(2 / 20)


def test_ratios_are_taken_round_by_round():
    flat = {"own": [1.0, 2.0], "peer": [3.0, 8.0], "other": [1.0]}
    clocked = {"own_float32": [{"cpu": 1.0, "wall": 9.0}], "scipy": [{"cpu": 5.0, "wall": 9.0}]}
    nested = {"sagn": {"own": [[1.0, 9.0], [2.0, 9.0]], "before": [[4.0, 9.0], [4.0, 9.0]]}}
    assert dict(ratios(flat)) == {"peer": [3.0, 4.0]}
    assert dict(ratios(clocked)) == {"scipy": [5.0]}
    assert dict(ratios(nested)) == {"sagn before": [4.0, 2.0]}
    assert dict(ratios(None)) == {}


def test_the_command_compares_folders(tmp_path):
    def result(peer: float, **more) -> str:
        return json.dumps({"nodes": 5, **more, "raw": {"own": [1.0] * 5, "peer": noisy(peer, 5, 0)}})

    old, new = tmp_path / "old", tmp_path / "new"
    for folder, slow in ((old, 3.0), (new, 2.0)):
        folder.mkdir()
        (folder / "slow.json").write_text(result(slow))
        (folder / "same.json").write_text(result(3.0))
        (folder / "other.json").write_text(result(slow, threads=int(slow)))
    (old / "gone.json").write_text(result(3.0))
    done = subprocess.run([sys.executable, SCRIPT, old, new], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == "slower: slow: peer"
    assert "other: not compared, threads 3 and 2" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["noise", "regression"]
    assert subprocess.run([sys.executable, SCRIPT, old, old], capture_output=True, check=False).returncode == 0


def test_every_command_of_bench_is_there():
    for command in bench.COMMANDS.values():
        assert "--json" in (ROOT / "benchmarks" / command.split()[0]).read_text()


def test_bench_keeps_the_old_result_of_what_fails_or_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "HERE", tmp_path)
    (tmp_path / "good.py").write_text("print('x'); print('{\"ratio\": 2.0}')")
    (tmp_path / "bad.py").write_text("raise SystemExit('no data here')")
    (tmp_path / "slow.py").write_text("import time; time.sleep(60)")
    (tmp_path / "bad.json").write_text("old")
    assert bench.run("good", "good.py --rounds 3", 1.0, tmp_path).endswith(" s")
    found = json.loads((tmp_path / "good.json").read_text())
    assert found["ratio"] == 2.0
    assert found["account"]["command"] == "good.py --rounds 3"
    assert {"processor", "cores", "versions", "load"} <= set(found["account"])
    assert bench.run("bad", "bad.py", 1.0, tmp_path) == "failed: no data here"
    assert bench.run("slow", "slow.py", 0.01, tmp_path) == "not finished in 0.01 minutes"
    assert (tmp_path / "bad.json").read_text() == "old"


def small_parts(folder):
    with ranks.joined():
        return by_ranks.measured(folder, list(by_ranks.parts(1.0)), 0.01)


def test_every_part_that_ranks_share_is_measured(tmp_path):
    zero, one = launch(small_parts, tmp_path / "ranks", tmp_path)
    assert (zero.code, one.code) == (0, 0), zero.message or one.message
    assert list(zero.value) == list(by_ranks.parts(1.0))
    assert all(wall > 0 and cpu > 0 for told in (zero, one) for wall, cpu in told.value.values())


def test_efficiencies_are_ratios_inside_a_round():
    setups = zip(by_ranks.SETUPS, ([10.0, 10.0], [6.0, 11.0], [8.0, 15.0]), strict=True)
    row = {setup: {"hops": {"wall": wall, "cpu": cpu}} for setup, (wall, cpu) in setups}
    found = by_ranks.summary([row], "hops")
    assert found["efficiency_wall"] == pytest.approx(10 / 16)
    assert found["efficiency_cpu"] == pytest.approx(10 / 15)
    assert found["ratio_two_threads"] == pytest.approx(6 / 8)
    assert found["cpu, 2 ranks"] == 15.0
