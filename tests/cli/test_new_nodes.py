"""`labeldeconv predict`, and the session of docs/serving.md."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import duckdb
import numpy as np
import pytest
from typer.testing import CliRunner

from labeldeconv.cli.app import app, main
from labeldeconv.runs.directory import RunDirectory

DOCS = Path(__file__).parents[2] / "docs" / "serving.md"


def blocks(kind):
    found = re.findall(r"\n\n```(\w*)\n(.*?)```", DOCS.read_text(), re.S)
    return [body for name, body in found if name == kind]


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """A folder in which the commands of the session have run, and what they printed."""
    folder, monkey = tmp_path_factory.mktemp("session"), pytest.MonkeyPatch()
    monkey.chdir(folder)
    monkey.setenv("LABELDECONV_CACHE", str(folder / "cache"))
    printed = ""
    for line in blocks("sh")[0].splitlines():
        words = line.split()
        if words[0] == "labeldeconv":
            result = CliRunner().invoke(app, words[1:], catch_exceptions=False)
            assert result.exit_code == 0, result.output
            printed += result.stdout
        else:
            printed += subprocess.run(line, shell=True, check=True, capture_output=True, text=True).stdout
    shutil.rmtree(folder / "cache")
    yield folder, printed
    monkey.undo()


def test_the_session_of_the_docs(session):
    _, printed = session
    wanted = re.sub(r"topic \d", "topic", blocks("")[0])
    assert wanted in re.sub(r"topic \d", "topic", printed)


def test_the_python_of_the_docs(session, monkeypatch):
    folder, _ = session
    monkeypatch.chdir(folder)
    held: dict = {}
    exec(blocks("python")[0], held)
    assert held["told"].by == ["gnn", "gnn"]
    assert duckdb.sql("SELECT count(*) FROM 'predictions.parquet'").fetchall() == [(2,)]


def test_the_http_session_of_the_docs(session):
    """The commands run as they stand, but for the port; the server runs in a thread of the test."""
    running = pytest.importorskip("tests.serving.running", reason="the extra 'serve' is not installed")
    from labeldeconv.serving.application import loaded

    folder, _ = session
    first, *asked = blocks("sh")[1].splitlines()
    words = first.split()
    assert (words[:2], words[-1]) == (["labeldeconv", "serve"], "&")
    wanted = [json.loads(line) for line in blocks("json")[0].splitlines()]
    assert len(wanted) == len(asked)
    with running.served(loaded(folder / words[2])) as client:
        for line, example in zip(asked, wanted, strict=True):
            assert ":8000" in line
            command = line.replace(":8000", f":{client.port}")
            told = json.loads(subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout)
            assert list(told) == list(example)
            if "errors" in told or "status" in told:
                assert told == example
                continue
            assert len(told["nodes"]) == len(example["nodes"])
            for node, shown in zip(told["nodes"], example["nodes"], strict=True):
                assert list(node) == list(shown)
                assert (node["id"], node.get("by")) == (shown["id"], shown.get("by"))


def test_the_numbers_over_http_of_the_docs(tmp_path, monkeypatch):
    """The commands as they stand, but for the port: answers have the keys, the targets and the kinds of the example."""
    running = pytest.importorskip("tests.serving.running", reason="the extra 'serve' is not installed")
    from labeldeconv.serving.application import loaded

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABELDECONV_CACHE", str(tmp_path / "cache"))
    section = DOCS.read_text().partition("### Numbers over HTTP")[2].partition("\n### ")[0]
    fitted, serving, *asked = re.search(r"```sh\n(.*?)```", section, re.S)[1].splitlines()
    examples = [json.loads(line) for line in re.search(r"```json\n(.*?)```", section, re.S)[1].splitlines()]
    CliRunner().invoke(app, fitted.split()[1:], catch_exceptions=False)
    with running.served(loaded(tmp_path / serving.split()[2])) as client:
        for line, example in zip(asked, examples, strict=True):
            command = line.replace(":8000", f":{client.port}")
            told = json.loads(subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout)
            assert list(told) == list(example)
            if "of" in told:
                fixed = ("node", "of", "by", "how", "hops_are", "of_labels")
                assert [told[name] for name in fixed] == [example[name] for name in fixed]
                assert [len(told["by_hop"]), len(told["neighbours"])] == [len(example["by_hop"]), 1]
                assert len(told["neighbours"][0]["label"]) == 3
                assert 80 < told["logit"] < 120
            else:
                assert told["class_names"] == example["class_names"]
                (node,), (shown,) = told["nodes"], example["nodes"]
                assert {**node, "prediction": 0} == {**shown, "prediction": 0}
                assert np.array(node["prediction"]) == pytest.approx(100, abs=20)
                assert len(node["prediction"]) == 3


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_json_and_modes(session, tmp_path, ending):
    folder, _ = session
    args = ["predict", str(folder / "runs" / "small"), "--nodes", str(folder / "new.csv"), "--json"]
    out = tmp_path / f"x.{ending}"
    result = CliRunner().invoke(app, [*args, "--out", str(out), "--fast", "--alone", "gnn"], catch_exceptions=False)
    told = json.loads(result.stdout)
    assert (told["nodes"], told["by"], told["mode"], told["out"]) == (3, {"gnn": 3}, "fast", str(out))
    assert told["temperature"] > 0
    columns = duckdb.sql(f"SELECT * FROM '{out}'").columns
    assert columns == ["id", "prediction", "probability", "by", "probabilities", "features"]


def test_errors_are_one_message_and_leave_no_file(session, tmp_path, monkeypatch, capsys):
    folder, _ = session
    (tmp_path / "edges.csv").write_text("source,target\na,9999\n")
    out = tmp_path / "out.csv"
    words = ["predict", str(folder / "runs" / "small"), "--nodes", str(folder / "new.csv"), "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["labeldeconv", *words, "--edges", str(tmp_path / "edges.csv")])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    assert (
        "edges.csv: 1 edges name a node that is neither new nor in the graph: line 2 ('9999')"
        in capsys.readouterr().err
    )
    assert not out.exists()
    monkeypatch.setattr("sys.argv", ["labeldeconv", *words[:-1], str(tmp_path / "out.xlsx")])
    with pytest.raises(SystemExit):
        main()
    assert "a name that ends in .parquet, .csv, .tsv, .jsonl expected" in capsys.readouterr().err


def told(session, *words):
    result = CliRunner().invoke(app, ["explain", str(session[0] / "runs" / "small"), *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_explain_in_tables_and_json(session):
    edges = np.load(session[0] / "runs" / "small" / "graph" / "edges.npy")
    node = str(np.bincount(edges.ravel()).argmax())
    found = json.loads(told(session, node, "--top", "2", "--json"))
    assert (found["node"], found["by"], len(found["neighbours"])) == (node, "gnn", 2)
    parts = [found["own"], found["others"], found["gap"], *(n["contribution"] for n in found["neighbours"])]
    assert sum(parts) == pytest.approx(found["logit"] - found["baseline"], abs=1e-5)
    printed = told(session, node, "--top", "2")
    assert "integrated gradients over the features of the neighbourhood" in printed
    assert f"{found['num_others']} others" in printed
    assert f"{found['own']:+.3f}" in printed


def test_explain_a_new_node_of_a_class(session):
    folder = session[0]
    tables = ["--nodes", str(folder / "new.csv"), "--edges", str(folder / "new_edges.csv")]
    found = json.loads(told(session, "a", *tables, "--of", "topic 3", "--json"))
    assert (found["node"], found["of"]) == ("a", "topic 3")
    assert {"17", "42"} <= {n["id"] for n in found["neighbours"]}
    assert json.loads(told(session, "c", *tables, "--json"))["by"] == "psi"


def test_explain_names_what_is_wrong(session, monkeypatch, capsys):
    run = str(session[0] / "runs" / "small")
    for words, message in (
        (["nobody"], "no node 'nobody' in the run's graph"),
        (["17", "--of", "topic x"], "explain: no class 'topic x'; did you mean"),
        (["17", "--edges", "new_edges.csv"], "--edges and --features belong to new nodes"),
    ):
        monkeypatch.setattr("sys.argv", ["labeldeconv", "explain", run, *words])
        with pytest.raises(SystemExit):
            main()
        assert message in capsys.readouterr().err


def test_explain_imports_no_module_unless_trusted(session, tmp_path, monkeypatch, capsys):
    run = RunDirectory.open(session[0] / "runs" / "small")
    config = run.config()
    changed = config.model_copy(update={"gnn": config.gnn.model_copy(update={"name": "somebody.elses:Net"})})
    monkeypatch.setattr(RunDirectory, "config", lambda _: changed)
    words = ["labeldeconv", "explain", str(session[0] / "runs" / "small"), "17"]
    for trust, message in (([], "'somebody.elses:Net' is code to import; `--trust`"), (["--trust"], "somebody.elses")):
        monkeypatch.setattr("sys.argv", [*words, *trust])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 1
        told = capsys.readouterr().err
        assert message in told
        assert ("is code to import" in told) == (not trust)
