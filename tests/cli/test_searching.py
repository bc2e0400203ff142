"""`labeldeconv sweep --search`."""

import json

import pytest
from typer.testing import CliRunner

from labeldeconv import ConfigError
from labeldeconv.cli.app import app
from labeldeconv.report.html import write_report
from labeldeconv.runs.verification import verify_run


def test_the_command_line(tmp_path):
    pytest.importorskip("optuna", reason="extra 'optuna' is not installed")
    words = ["sweep", "planted:60", "--methods", "pne", "--gnns", "gcn", "--encoder", "tiny", "--set", "gnn.epochs=3"]
    words += ["--search", "gnn.hidden=8,16", "--trials", "2", "--out", str(tmp_path / "s")]
    told = CliRunner().invoke(app, words, catch_exceptions=False)
    assert told.exit_code == 0, told.output
    assert "best: trial" in told.output
    assert "labeldeconv fit planted:60 --method pne --encoder tiny --gnn gcn" in told.output
    assert "test" not in told.output.replace(str(tmp_path), "")
    again = json.loads(CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False).stdout)
    assert [trial["settings"] for trial in again["trials"]]
    assert again["best"]["val"] == max(trial["val"] for trial in again["trials"])
    assert write_report(tmp_path / "s").bytes > 1000
    assert not verify_run(tmp_path / "s").problems
    for wrong in (
        words[:10],
        [*words, "--methods", "pne,ld"],
        [*words, "--vary", "hops=0..1"],
        [*words[:10], "--vary", "hops=0..1", "--trials", "2"],
    ):
        told = CliRunner().invoke(app, wrong)
        assert isinstance(told.exception, ConfigError), told.output
