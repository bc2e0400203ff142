"""The analyze commands: JSON, files, tables, and errors in one line."""

import csv
import inspect
import json

import pytest
from typer.testing import CliRunner

from labeldeconv.cli.app import app, main


def invoke(*args):
    out = CliRunner().invoke(app, ["analyze", *map(str, args)], catch_exceptions=False)
    assert out.exit_code == 0, out.output
    return out.stdout


@pytest.mark.parametrize(
    ("name", "key", "shown"),
    [
        ("gamma", "curves", "gamma 0"),
        ("similarity", "fits", "similarity of the inverse labels"),
        ("spectrum", "multi_ratio", "phi over the spectrum"),
        ("bias", "before", "before training"),
        ("cost", "methods", "by stage"),
    ],
)
def test_run_as_json_files_and_tables(name, key, shown, ld_run, tmp_path):
    printed = json.loads(invoke(name, ld_run, "--json", "--out", tmp_path / "out"))
    assert key in printed
    assert json.loads((tmp_path / "out" / f"{name}.json").read_text()) == printed
    assert list(csv.DictReader((tmp_path / "out" / f"{name}.csv").read_text().splitlines()))
    assert shown in invoke(name, ld_run)


def test_the_command_is_exact_up_to_as_many_nodes_as_the_function():
    from labeldeconv.analysis.spectrum import DENSE_NODES
    from labeldeconv.cli.analyze import spectrum

    assert inspect.signature(spectrum).parameters["dense"].default == DENSE_NODES == 20_000


@pytest.mark.parametrize("name", ["spectrum", "bias"])
def test_data_before_training(name):
    printed = json.loads(invoke(name, "planted:60", "--json"))
    assert printed["data"] == "planted-multiclass"
    if name == "bias":
        assert printed["after"] is None
        assert printed["before"]["hops"] == 1  # what planted suggests


def test_estimated_spectrum_says_so():
    assert "at least" in invoke("spectrum", "planted:60", "--dense", 10)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("gamma", "{}"), "`labeldeconv fit` or `compare` expected"),
        (("cost", "{}"), "`labeldeconv fit` or `compare` expected"),
        (("similarity", "{}/none"), "`labeldeconv fit` or `compare` expected"),
        (("bias", "planted:60", "--nodes", "all"), "train or labelled expected"),
    ],
)
def test_errors_are_one_line(args, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["labeldeconv", "analyze", *(a.format(tmp_path) for a in args)])
    with pytest.raises(SystemExit) as stop:
        main()
    told = capsys.readouterr().err
    assert stop.value.code == 1
    assert message in told
    assert told.count("\n") == 1
