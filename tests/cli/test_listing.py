"""`labeldeconv list` and `settings` name everything there is."""

import json

from typer.testing import CliRunner

from labeldeconv.cli.app import app


def test_list():
    told = json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout)
    assert {"planted", "debian", "ogbn-arxiv"} <= set(told["data"])
    assert "minilm" in told["encoders"]
    assert told["gnns"][0] == "gcn"
    assert "ld" in told["methods"]
    text = CliRunner().invoke(app, ["list"]).stdout
    assert "Features of an encoder trained on inverse labels" in text
    assert "the packages of this machine's Debian" in text


def test_settings_of_a_group():
    found = json.loads(CliRunner().invoke(app, ["settings", "giant.", "--json"]).stdout)["settings"]
    assert {setting["name"].partition(".")[0] for setting in found} == {"giant"}
