"""The approximation figure: four curves, numbers and a plot."""

import csv
import json
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from labeldeconv import load_config
from labeldeconv.analysis.approximation import approximation
from labeldeconv.cli.app import app


def test_numbers_and_plot(tmp_path):
    config = load_config(None, {"data": "planted:60", "encoder.name": "tiny", "gnn.hidden": 8})
    result = approximation(config, epochs=4, out=tmp_path / "out")
    assert [c.gnn for c in result.curves] == ["gcn", "spegcn", "revgat", "spegnn"]
    assert all(c.epochs == [1, 2, 3, 4] and max(c.val) == pytest.approx(c.best_val) for c in result.curves)
    stored = json.loads((tmp_path / "out" / "approximation.json").read_text())
    assert stored == json.loads(json.dumps(result.to_dict()))
    assert set(stored["gaps"]) == {"gcn - spegcn", "revgat - spegnn"}
    rows = list(csv.DictReader((tmp_path / "out" / "approximation.csv").read_text().splitlines()))
    assert len(rows) == 16
    svg = ElementTree.fromstring((tmp_path / "out" / "approximation.svg").read_text())
    assert len(svg.findall(".//{http://www.w3.org/2000/svg}polyline")) == 8


def test_command(tmp_path):
    sets = ["--encoder", "tiny", "--set", "gnn.hidden=8", "--epochs", "2", "--out", str(tmp_path / "o")]
    out = CliRunner().invoke(app, ["analyze", "approximation", "planted:60", *sets, "--json"], catch_exceptions=False)
    assert out.exit_code == 0, out.output
    assert json.loads(out.stdout)["data"] == "planted-multiclass"
    text = CliRunner().invoke(app, ["analyze", "approximation", "planted:60", *sets], catch_exceptions=False).stdout
    named = [line.split()[1] for line in text.splitlines() if line.startswith("│")]
    assert named == ["gcn", "spegcn", "revgat", "spegnn"]
