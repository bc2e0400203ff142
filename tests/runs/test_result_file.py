"""Runs of unknown origin: what is broken in them is told, and what they name is not imported unless asked."""

import json
import re
import sys

import numpy as np
import pytest

from labeldeconv.errors import DataError
from labeldeconv.runs.directory import FORMAT, ComparisonDirectory, RunDirectory
from labeldeconv.runs.result_file import read_comparison, read_log, read_result
from tests.hostile import answer, refusal
from tests.report.run_writing import ring, write_comparison, write_run


@pytest.fixture
def run(tmp_path):
    write_run(tmp_path / "run", ring())
    return tmp_path / "run"


def change(path, **values):
    """Other values in a JSON file, without the checksum that would give them away at once."""
    held = {name: value for name, value in json.loads(path.read_text()).items() if name != "checksum"}
    path.write_text(json.dumps({**held, **values}))


def readers(run):
    yield from (("analyze", what, run) for what in ("gamma", "similarity", "spectrum", "bias", "cost"))
    yield ("report", run, "--out", run.parent / "page.html")
    yield ("export", run, run.parent / "x.npy")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"format": 1}, "format 2 expected"),
        ({"settings": 3}, "settings: input should be a valid dictionary"),
        ({"settings": {}}, "settings.data: field required"),
        ({"gamma": ["x"]}, "gamma.0: input should be a valid number, got 'x'"),
        ({"gamma": []}, "gamma: list should have at least 1 item"),
        ({"test": "good"}, "test: input should be a valid number"),
        ({"seconds": {"train": -1}}, "seconds.train: input should be greater than or equal to 0"),
        ({"files": {"../x": [1, "a"]}}, "the name of a file inside the run expected, got '../x'"),
        ({"files": {"/etc/passwd": [1, "a"]}}, "the name of a file inside the run expected"),
        ({"files": {"x": 3}}, "files.x: input should be a valid list"),
        ({"encoder_nodes": None}, "encoder_nodes: input should be a valid integer"),
    ],
)
def test_a_broken_result(run, values, told):
    change(run / "result.json", **values)
    for args in readers(run):
        assert told in refusal(*args)


@pytest.mark.parametrize("content", [b"", b"[", b"[1]", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_results_that_are_no_json(run, content):
    (run / "result.json").write_bytes(content)
    for args in readers(run):
        assert "result.json" in refusal(*args)


def test_scores_that_are_null_are_nan(run):
    change(run / "result.json", val=None, test=None)
    held = read_result(run / "result.json", FORMAT)
    assert np.isnan([held["val"], held["test"]]).all()
    assert json.loads(answer("analyze", "cost", run, "--json").out)["methods"][0]["test"] is None


def broken(run, name, content: bytes):
    """A file of the run replaced, and its size in the list of files too."""
    (run / name).write_bytes(content)
    files = json.loads((run / "result.json").read_text())["files"]
    change(run / "result.json", files={**files, name: [len(content), "0"]})


@pytest.mark.parametrize("content", [b"", b"[[", b"seed = 3\n", b"\xff", b"seed = -1", b'data = "x"\nnothing = 1'])
def test_a_broken_config(run, content):
    broken(run, "config.toml", content)
    for args in (("analyze", "bias", run), ("analyze", "cost", run), ("analyze", "spectrum", run)):
        assert "config.toml" in refusal(*args)


@pytest.mark.parametrize("line", [b"{", b"3", b'{"step": "x"}', b'{"epoch": 1, "loss": "x"}', b"\xff", b"{}"])
def test_broken_logs(run, line):
    broken(run, "steps.jsonl", line + b"\n")
    for args in (("analyze", "gamma", run), ("report", run)):
        assert "steps.jsonl" in refusal(*args)
    with pytest.raises(DataError, match=r"steps\.jsonl"):
        read_log(run / "steps.jsonl")


@pytest.mark.parametrize("name", ["logits.npy", "features.npy", "hop_labels.npy", "pseudo_labels.npy"])
def test_broken_arrays(run, name):
    for array in (np.zeros(3), np.zeros((2, 2, 2, 2)), np.array(["x"])):
        np.save(run / name, array)
        broken(run, name, (run / name).read_bytes())
        opened = RunDirectory.open(run)
        with pytest.raises(DataError, match=rf"{name}: .* expected, got"):
            getattr(opened, name.removesuffix(".npy"))


def test_a_broken_comparison(tmp_path):
    folder = write_comparison(tmp_path / "c", ring())
    path = folder / "compare.json"
    rows = json.loads(path.read_text())["rows"]
    assert len(read_comparison(path, FORMAT)["rows"]) == 2
    for values, told in (
        ({"rows": []}, "rows: list should have at least 1 item"),
        ({"rows": 3}, "rows: input should be a valid list"),
        ({"rows": [{**rows[0], "tests": []}]}, "rows.0.tests"),
        ({"rows": [rows[0], {**rows[0], "varied": {"a": 1}}]}, "the same varied settings in every row"),
    ):
        change(path, **{"rows": rows} | values)
        assert told in refusal("report", folder)
        with pytest.raises(DataError, match=re.escape(told)):
            ComparisonDirectory.open(folder)


EVIL = "from pathlib import Path\nPath({mark!r}).touch()\nfrom labeldeconv.gnns.gcn import GCN as G\n"


def evil(run, name, in_result=True):
    text = (run / "config.toml").read_text()
    assert 'name = "gcn"' in text
    broken(run, "config.toml", text.replace('name = "gcn"', f'name = "{name}"').encode())
    if in_result:
        settings = json.loads((run / "result.json").read_text())["settings"]
        settings["gnn"]["name"] = name
        change(run / "result.json", settings=settings)


@pytest.mark.parametrize("in_result", [True, False])
def test_reading_a_run_imports_nothing_that_it_names(run, tmp_path, monkeypatch, in_result):
    """In its config.toml alone, or in its result.json too."""
    mark = tmp_path / "imported"
    (tmp_path / "evil_module.py").write_text(EVIL.format(mark=str(mark)))
    monkeypatch.syspath_prepend(tmp_path)
    evil(run, "evil_module:G", in_result)
    for args in readers(run):
        answer(*args)
    assert not mark.exists()
    if in_result:
        assert answer("analyze", "spectrum", run, "--trust").code == 0
        assert mark.exists()
        sys.modules.pop("evil_module")
        mark.unlink()
        answer("analyze", "spectrum", run)  # asked once is not asked for ever
        assert not mark.exists()
