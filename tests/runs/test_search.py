"""A search finds what is planted, goes on after a kill, gives up what lags, and never looks at a test label."""

import json
import shlex
import sys
from dataclasses import replace

import numpy as np
import pytest

from labeldeconv import ConfigError, DataError, LabelDeconvError, MissingExtra, planted, search
from labeldeconv.runs import search as searching
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.settings.space import Choices, Range
from tests.samples import interrupt

QUICK = {"method": "given", "gnn": "gcn", "gnn__hidden": 8, "gnn__epochs": 20, "gnn__lr": 1e-6}
RATES = {"gnn.lr": Range(1e-6, 1e-1, log=True)}


@pytest.fixture(autouse=True)
def _optuna():
    pytest.importorskip("optuna", reason="extra 'optuna' is not installed")


def told_by_features(wrong_tests: bool = False):
    """A graph whose features tell the class, so that the rate alone decides; perhaps with other test labels."""
    graph = planted(120, seed=0).graph
    rng = np.random.default_rng(0)
    features = np.eye(graph.num_classes, dtype=np.float32)[graph.labels]
    labels = graph.labels.copy()
    if wrong_tests:
        labels[graph.split.test] = (labels[graph.split.test] + 1) % graph.num_classes
    noise = rng.normal(size=features.shape).astype(np.float32)
    return replace(graph, features=features + 0.1 * noise, labels=labels, name="told")


def test_it_finds_a_planted_optimum(tmp_path):
    """At 1e-6, the rate of the settings and so of the first trial, nothing is learned. Test labels change nothing."""
    found, other = (
        search(told_by_features(wrong), RATES, trials=8, out=tmp_path / name, **QUICK)
        for wrong, name in ((False, "s"), (True, "wrong"))
    )
    assert [(t.settings, t.state, t.val) for t in found.trials] == [(t.settings, t.state, t.val) for t in other.trials]
    assert found.trials[0].settings == {"gnn.lr": 1e-6}
    assert found.best.val > found.trials[0].val + 0.2
    assert found.best.val == max(trial.val or 0 for trial in found.trials)
    assert found.best.settings["gnn.lr"] > 1e-3
    words = shlex.split(found.command)
    assert words[:7] == ["labeldeconv", "fit", "told", "--method", "given", "--gnn", "gcn"]
    assert words[words.index("--set") :].count("--set") == 3
    assert f"gnn.lr={found.best.settings['gnn.lr']}" in words
    table = json.loads((tmp_path / "s" / "compare.json").read_text())
    complete = [trial for trial in found.trials if trial.state == "complete"]
    assert len(table["rows"]) == len(complete)
    assert table["rows"][0]["varied"] == found.best.settings  # the best first
    best = RunDirectory.open(tmp_path / "s" / table["rows"][0]["cells"][0])
    assert best.result["val"] == found.best.val


def test_a_killed_search_goes_on(tmp_path, monkeypatch):
    graph = told_by_features()
    kept = {"trials": 5, "out": tmp_path / "s", **QUICK}
    calls = interrupt_fits(monkeypatch, 4)
    with pytest.raises(KeyboardInterrupt):
        search(graph, RATES, **kept)
    found = search(graph, RATES, **kept)
    assert len(found.trials) == 5
    assert [t.settings["gnn.lr"] for t in found.trials[:3]] == calls[:3]
    assert found.trials[3].settings["gnn.lr"] == calls[3] == calls[4]  # the killed one, again
    assert len(calls) == 6  # none of the first three was run again
    assert search(graph, RATES, **kept).best == found.best
    assert len(calls) == 6  # nothing is left to do
    more = search(graph, RATES, **{**kept, "trials": 6})
    assert (len(more.trials), more.trials[:5]) == (6, found.trials)
    with pytest.raises(DataError, match="holds another search"):
        search(graph, {"gnn.lr": Range(1e-6, 1e-2, log=True)}, **kept)


def interrupt_fits(monkeypatch, number):
    """Let the fit of this number be killed; gives the list of rates that were fitted."""
    real, rates = searching.fit_graph, []

    def killed(settings, *args, **kwargs):
        rates.append(settings.gnn.lr)
        if len(rates) == number:
            raise KeyboardInterrupt
        return real(settings, *args, **kwargs)

    monkeypatch.setattr(searching, "fit_graph", killed)
    return rates


def test_what_lags_is_given_up(tmp_path):
    rates = {"gnn.lr": Choices((0.05, 1e-7))}
    found = search(told_by_features(), rates, trials=9, out=tmp_path / "s", **{**QUICK, "gnn__lr": 0.05})
    given_up = [trial for trial in found.trials if trial.state == "given up"]
    assert given_up
    assert {trial.settings["gnn.lr"] for trial in given_up} == {1e-7}
    assert all(trial.val is None for trial in given_up)
    assert found.best.settings["gnn.lr"] != 1e-7
    assert not list((tmp_path / "s").glob("*.partial"))


def test_budget_of_minutes(tmp_path):
    found = search(told_by_features(), RATES, minutes=1e-6, out=tmp_path / "s", **QUICK)
    assert len(found.trials) == 1
    with pytest.raises(LabelDeconvError, match="no trial was completed"):
        search(told_by_features(), RATES, minutes=0, out=tmp_path / "none", **QUICK)


def test_trials_that_fail_are_told_and_counted(tmp_path, monkeypatch):
    def failing(*_, **__):
        raise LabelDeconvError("out of order")

    monkeypatch.setattr(searching, "fit_graph", failing)
    with pytest.raises(LabelDeconvError, match="no trial was completed; out of order"):
        search(told_by_features(), RATES, trials=2, out=tmp_path / "s", **QUICK)


def test_what_cannot_be_set_is_told_before_anything_runs(tmp_path):
    with pytest.raises(ConfigError, match=r"gnn\.dropout"):
        search(told_by_features(), {"gnn.dropout": Range(0.1, 1.5, log=False)}, out=tmp_path / "s", **QUICK)
    with pytest.raises(ConfigError, match="at least one setting"):
        search(told_by_features(), {}, out=tmp_path / "s", **QUICK)
    assert not (tmp_path / "s").exists()


def test_missing_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtra, match=r"labeldeconv\[optuna\]"):
        search("planted:60", RATES, out=tmp_path / "s")


def test_a_killed_training_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    """With an encoder that trains: seeds count together, and the killed step is not the first one again."""
    import labeldeconv.training.encoder as loop

    rates = {"train.lr": Range(1e-5, 1e-2, log=True)}
    quick = {"gnn": "gcn", "encoder": "tiny", "gnn__hidden": 8, "gnn__epochs": 3, "train__epochs": 1}
    quick |= {"train__batch_nodes": 8, "train__checkpoint_minutes": 0, "trials": 2, "seeds": 2, "out": tmp_path / "s"}
    calls = interrupt(monkeypatch, loop, "_step", 5)
    with pytest.raises(KeyboardInterrupt):
        search("planted:60", rates, **quick)
    found = search("planted:60", rates, **quick)
    assert [trial.state for trial in found.trials] == ["complete", "complete"]
    assert found.trials[0].settings == {"train.lr": 1e-4}  # what planted suggests
    rows = json.loads((tmp_path / "s" / "compare.json").read_text())["rows"]
    assert [len(row["cells"]) for row in rows] == [2, 2]
    assert found.best.val == rows[0]["val"]["mean"]
    steps = len((tmp_path / "s" / rows[0]["cells"][0] / "steps.jsonl").read_text().splitlines())
    assert len(calls) == 4 * steps + 1  # two trials of two seeds, and one step that was killed
