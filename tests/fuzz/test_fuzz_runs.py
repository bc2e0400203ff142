"""Run directories with anything in them: read as they are, or refused in words; nothing else is left behind."""

import copy
import json
import math
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeldeconv.analysis.cost import cost
from labeldeconv.analysis.weights import gamma_curves
from labeldeconv.report.source import open_source
from labeldeconv.runs.directory import RunDirectory
from tests.fuzz.cases import fuzzed, json_value, told
from tests.report.run_writing import ring, write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    write_run(folder, ring(20))
    return folder


def places(value, prefix=()):
    """Paths to every value inside a JSON value."""
    yield prefix
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*prefix, key))


@fuzzed("result")
@given(st.integers(0, 10**9), json_value, st.sampled_from(["change", "delete"]), st.binary(max_size=40))
def test_results(run, place, value, how, raw):
    path = run / "result.json"
    before = path.read_bytes()
    held = json.loads(before)
    spots = [p for p in places(held) if p]
    spot = spots[place % len(spots)]
    changed = copy.deepcopy(held)
    owner = changed
    for key in spot[:-1]:
        owner = owner[key]
    if how == "delete":
        del owner[spot[-1]]
    else:
        owner[spot[-1]] = value
    try:
        for content in (json.dumps(changed).encode(), raw, before[: place % len(before)]):
            path.write_bytes(content)
            told("result", lambda: cost(run))
        path.write_bytes(json.dumps(changed).encode())
        told("result", lambda: open_source(run))
    finally:
        path.write_bytes(before)


rows = st.dictionaries(st.sampled_from(["step", "epoch", "loss", "gamma", "val", "lr"]), json_value, max_size=6)


@fuzzed("logs")
@given(st.lists(rows | json_value, max_size=3), st.binary(max_size=30), st.binary(max_size=30))
def test_logs_and_settings(run, lines, raw, toml):
    result, log, config = (run / name for name in ("result.json", "steps.jsonl", "config.toml"))
    before = {path: path.read_bytes() for path in (result, log, config)}
    held = json.loads(before[result])
    try:
        for content in ("".join(json.dumps(line) + "\n" for line in lines).encode(), raw):
            log.write_bytes(content)
            config.write_bytes(toml)
            held["files"] |= {"steps.jsonl": [len(content), ""], "config.toml": [len(toml), ""]}
            result.write_text(json.dumps(held))
            curves = told("logs", lambda: gamma_curves(run))
            if curves is not None:
                json.dumps(curves.to_dict())
            told("logs", lambda: RunDirectory.open(run).config())
    finally:
        for path, content in before.items():
            path.write_bytes(content)


def test_the_run_is_whole_again(run, tmp_path):
    """What the cases above changed they put back, so that each one began with a sound run."""
    shutil.copytree(run, tmp_path / "copy")
    assert math.isfinite(cost(tmp_path / "copy").methods[0].test)
