"""`labeldeconv export`: its options and messages. What is written: tests/runs/test_export.py, tests/sharing."""

import json

import pytest
from typer.testing import CliRunner

from labeldeconv.cli.app import app
from labeldeconv.errors import ConfigError
from labeldeconv.sharing import onnx_export
from labeldeconv.sharing.onnx_export import Int8Loss, OnnxExport


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False).stdout


def test_a_table_as_before(ld_run, tmp_path):
    out = tmp_path / "x.parquet"
    assert run("export", ld_run, out).strip() == str(out)
    assert json.loads(run("export", ld_run, out, "--json")) == {"out": str(out)}
    assert out.is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["RUN"], "one of OUT, a table, and --onnx FOLDER expected"),
        (["RUN", "x.npy", "--onnx", "y"], "one of OUT, a table, and --onnx FOLDER expected"),
        (["RUN", "x.npy", "--int8"], "--int8 and --force go with --onnx"),
    ],
)
def test_options_that_do_not_go_together(words, message):
    with pytest.raises(ConfigError, match=message):
        run("export", *words)


def test_what_was_not_written_and_what_8_bits_cost_is_said(tmp_path, monkeypatch):
    loss = Int8Loss(4, 0.99, "accuracy", "psi", 0.5, 0.25)
    told = OnnxExport(tmp_path, ["encoder.onnx", "model.json"], ["no gnn.onnx: gcn reads [the] graph"], loss)
    monkeypatch.setattr(onnx_export, "export_onnx", lambda *given: told)
    printed = run("export", "RUN", "--onnx", tmp_path, "--int8").splitlines()
    assert printed == [f"{tmp_path}: encoder.onnx", str(loss), "no gnn.onnx: gcn reads [the] graph"]
    held = json.loads(run("export", "RUN", "--onnx", tmp_path, "--json"))
    assert (held["int8"]["cosine"], held["files"], held["notes"]) == (0.99, told.files, told.notes)
