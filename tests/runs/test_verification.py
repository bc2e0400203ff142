"""verify: every checksum and every score, each problem with its file."""

import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

from labeldeconv import compare, fit
from labeldeconv.cli.app import app
from labeldeconv.errors import DataError
from labeldeconv.runs.verification import verify_run
from labeldeconv.stages.files import checksum, sealed, write_json

QUICK = {"encoder": "tiny", "gnn__epochs": 2, "gnn__hidden": 8}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify")
    compare("planted:40", ["pne"], seeds=2, out=folder / "c", cache=folder / "cache", **QUICK)
    return folder / "c"


@pytest.fixture
def folder(kept, tmp_path):
    shutil.copytree(kept, tmp_path / "c")
    return tmp_path / "c"


def told(path):
    return "\n".join(verify_run(path).problems)


def test_what_is_right(folder):
    found = verify_run(folder)
    assert found.problems == []
    assert (found.runs, found.scores) == (2, 2 * 2 + 1)
    one = verify_run(folder / "pne-gcn-0")
    assert one.problems == []
    assert one.files == len(json.loads((folder / "pne-gcn-0" / "result.json").read_text())["files"])


def test_every_damaged_file_is_named(folder):
    run = folder / "pne-gcn-0"
    for name in ("logits.npy", "graph/labels.npy"):
        content = bytearray((run / name).read_bytes())
        content[-1] ^= 1
        (run / name).unlink()
        (run / name).write_bytes(content)
    (run / "config.toml").unlink()
    problems = told(folder)
    for name in ("logits.npy: ", "graph/labels.npy: ", "config.toml: config.toml is missing"):
        assert f"{run}/{name}" in problems


def test_a_score_is_computed_again(folder):
    """A result whose seal and list are right, but whose score is not that of its predictions."""
    path = folder / "pne-gcn-0" / "result.json"
    result = json.loads(path.read_text())
    del result["checksum"]
    write_json(path, sealed({**result, "test": result["test"] + 0.01}))
    assert "test is " in told(folder / "pne-gcn-0")
    assert "but logits.npy and graph/ give" in told(folder / "pne-gcn-0")
    assert "has other scores than its runs" in told(folder)


def test_every_metric_is_computed_again(tmp_path):
    run = fit("planted:40", "pne", metric="macro-f1", out=tmp_path / "run", cache=tmp_path / "cache", **QUICK).run
    assert verify_run(run).problems == []
    result = json.loads((run / "result.json").read_text())
    del result["checksum"]
    result["metrics"]["val"]["balanced-accuracy"] += 0.01
    write_json(run / "result.json", sealed({**result, "test": result["metrics"]["test"]["accuracy"] + 0.001}))
    first, second = verify_run(run).problems
    assert "metrics.val.balanced-accuracy is" in first
    assert "result.json: test is" in second


def test_predictions_of_another_run_are_found(folder):
    run = folder / "pne-gcn-0"
    logits = np.load(run / "logits.npy")
    (run / "logits.npy").unlink()
    np.save(run / "logits.npy", -logits)
    result = json.loads((run / "result.json").read_text())
    del result["checksum"]
    result["files"]["logits.npy"][1] = checksum(run / "logits.npy")
    write_json(run / "result.json", sealed(result))
    assert "but logits.npy and graph/ give" in told(run)


def test_what_nobody_listed_or_is_gone(folder):
    (folder / "pne-gcn-0" / "graph" / "notes.txt").write_text("x")
    (folder / "stranger").mkdir()
    shutil.rmtree(folder / "pne-gcn-1")
    problems = told(folder)
    assert "notes.txt: no list has it" in problems
    assert "stranger: the comparison does not name it" in problems
    assert "pne-gcn-1: the run is missing" in problems


def test_a_result_without_a_seal(folder):
    path = folder / "pne-gcn-0" / "result.json"
    path.write_text(path.read_text().replace('"checksum"', '"chocksum"'))
    assert "no checksum of the result itself" in told(folder / "pne-gcn-0")


def test_command(folder, tmp_path):
    good = CliRunner().invoke(app, ["verify", str(folder)])
    assert good.exit_code == 0
    assert "2 runs, " in good.output
    assert "5 scores: 0 problems" in good.output
    (folder / "table.csv").write_text("")
    bad = CliRunner().invoke(app, ["verify", str(folder), "--json"])
    assert bad.exit_code == 1
    [problem] = json.loads(bad.output)["problems"]
    assert "table.csv" in problem
    with pytest.raises(DataError, match="a finished `labeldeconv fit`"):
        verify_run(tmp_path / "nowhere")
