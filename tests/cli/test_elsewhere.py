"""`labeldeconv export` and `push`: options and messages. What is written: tests/runs/test_export.py, tests/sharing."""

import json
import re
import shutil
from pathlib import Path

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
        (["RUN"], "one of OUT, a table, --onnx FOLDER and --graphstorm FOLDER expected"),
        (["RUN", "x.npy", "--onnx", "y"], "one of OUT, a table, --onnx FOLDER and --graphstorm FOLDER expected"),
        (["RUN", "--graphstorm", "x", "--onnx", "y"], "--onnx FOLDER and --graphstorm FOLDER expected"),
        (["RUN", "--graphstorm", "x", "--int8"], "--int8 and --force go with --onnx"),
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


def test_a_folder_for_graphstorm(ld_run, tmp_path):
    assert run("export", ld_run, "--graphstorm", tmp_path / "a").strip() == str(tmp_path / "a")
    assert json.loads(run("export", ld_run, "--graphstorm", tmp_path / "b", "--json")) == {"out": str(tmp_path / "b")}
    assert all((tmp_path / name / "gconstruct.json").is_file() for name in "ab")


@pytest.mark.parametrize("graph", [False, True])
def test_push_into_a_folder_says_what_is_in_it(ld_run, tmp_path, graph):
    words = ["push", ld_run, "--folder", tmp_path / "model", *(["--with-graph"] if graph else [])]
    told = run(*words).strip()
    wanted = "with its graph, texts and labels" if graph else "without the graph: no texts, no labels"
    assert told == f"{tmp_path / 'model'} ({wanted})"
    assert (tmp_path / "model" / "graph").is_dir() == graph


def test_push_as_json_and_its_licence(ld_run, tmp_path):
    told = json.loads(run("push", ld_run, "--folder", tmp_path / "model", "--license", "cc-by-4.0", "--json"))
    assert told == {"out": str(tmp_path / "model"), "with_graph": False}
    assert "\nlicense: cc-by-4.0\n" in (tmp_path / "model" / "README.md").read_text()


@pytest.mark.parametrize("words", [["RUN"], ["RUN", "someone/papers", "--folder", "x"]])
def test_push_goes_to_one_place(words):
    with pytest.raises(ConfigError, match="push: one of USER/NAME and --folder DIR expected"):
        run("push", *words)


def test_the_session_of_the_docs(ld_run, tmp_path, monkeypatch):
    """The first command and the Python of docs/serving.md, "On a hub"."""
    section = (Path(__file__).parents[2] / "docs" / "serving.md").read_text().partition("## On a hub")[2]
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ld_run, "runs/small")
    run(*re.search(r"\n    labeldeconv ([^#\n]*)", section)[1].split())
    held: dict = {}
    exec(re.search(r"```python\n(.*?)```", section, re.S)[1], held)
    assert (held["features"].shape, held["probabilities"].shape) == ((1, 32), (1, 10))
