"""The method 'auto': what it tries, what it takes, what it costs, and what it may not see."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from labeldeconv import fit
from labeldeconv.errors import ConfigError
from labeldeconv.graph.lead import Judged
from labeldeconv.graph.task import Task
from labeldeconv.methods import auto
from labeldeconv.methods.auto import CANDIDATES
from labeldeconv.methods.base import Learned
from labeldeconv.runs.asked import resolve
from labeldeconv.runs.preparation import prepare
from labeldeconv.settings.reading import load_config

QUICK = {"encoder": "tiny", "train__epochs": 3, "gnn__epochs": 5}


def test_it_takes_hop_heads_unless_led_and_says_what_it_tried(graph, tmp_path, caplog):
    with caplog.at_level("INFO", logger="labeldeconv"):
        found = fit(graph, method="auto", out=tmp_path / "auto", **QUICK)
    tried = {(row["method"], row["epochs"]): row["val"] for row in found.tried}
    rows = {(row["method"], row["epochs"]): row for row in found.tried}
    assert set(tried) >= {("pne", 0), ("fne", 1), ("ld", 1), ("ld-heads", 1)}

    def taken(favourite, label, among):
        led = {key: rows[key]["leads"][label] for key in among if key != favourite}
        for key, lead in led.items():
            assert lead["lead"] == pytest.approx(tried[key] - tried[favourite])
        clear = [key for key, lead in led.items() if lead["lead"] > 1.001 * lead["standard_error"]]
        return max(clear, key=tried.get, default=favourite)

    tries = [(name, 0 if name == "pne" else 1) for name in CANDIDATES]
    first, epochs = taken(("ld-heads", 1), "ld-heads 1", tries)
    assert list(tried) == (tries if first == "pne" else [*tries, (first, 3)])
    last = (first, epochs) if first == "pne" else taken((first, 3), f"{first} 3", tries)
    assert (found.chosen, found.val) == (last[0], tried[last])
    (line,) = (record.getMessage() for record in caplog.records if "<- taken" in record.getMessage())
    assert f"{last[0]} {last[1]}".removesuffix(" 0") in line
    assert all(" over ld-heads 1" in message for message in caplog.messages if message.startswith("auto: fne 1 "))
    # Every candidate is the method itself, to the bit, and shares its stages.
    for (name, epochs), val in tried.items():
        gamma = {"labels__gamma": "auto"} if name == "ld" else {}
        same = fit(
            graph, method=name, out=tmp_path / f"{name}{epochs}", **gamma, **{**QUICK, "train__epochs": epochs or 3}
        )
        assert same.val == val
        assert set(same.cached) == set(same.seconds)
        if (name, epochs) == last:
            np.testing.assert_array_equal(found.logits, same.logits)
            np.testing.assert_array_equal(found.features, same.features)


# By candidate and epochs: how many of 60 validation nodes are right; `auto` takes the last of each line.
CLOSE = {"pne": 40, "fne 1": 41, "ld 1": 41, "ld-heads 1": 40, "ld-heads 3": 40}  # one node more is one standard error


@pytest.mark.parametrize(
    ("right", "trained", "expected"),
    [
        (CLOSE, "ld-heads", "ld-heads 3"),
        (CLOSE | {"ld-heads 1": 30, "fne 1": 45, "ld 1": 47, "ld 3": 47}, "ld", "ld 3"),  # the best of those that lead
        (CLOSE | {"ld-heads 1": 30, "ld 1": 38, "fne 1": 38, "pne": 39}, None, "pne"),  # there is nothing to train
        (CLOSE | {"ld-heads 3": 35}, "ld-heads", "fne 1"),  # a full training that went wrong
        (CLOSE | {"ld-heads 3": 50, "pne": 5}, "ld-heads", "ld-heads 3"),
    ],
)
def test_a_lead_within_one_standard_error_changes_nothing(right, trained, expected, graph, monkeypatch):
    settings = {"data": "x", "method": "auto", "encoder.name": "tiny", "train.epochs": 3}
    run, labels, full = prepare(resolve(load_config(None, settings)), graph), np.zeros(60, dtype=np.int64), []

    def train(run, name):
        epochs = 0 if name == "pne" else run.settings.train.epochs
        full.extend([name] if epochs == 3 else [])
        label = f"{name} {epochs}" if epochs else name
        logits = np.eye(2)[(np.arange(60) >= right[label]).astype(int)]
        gnn = SimpleNamespace(val=right[label] / 60)
        judged = Judged.of(Task("multiclass", 2), logits, labels)
        return auto._Candidate(label, epochs, Learned(label, gnn, method=name), judged)

    monkeypatch.setattr(auto, "_train", train)
    learned = auto.best_by_validation(run)
    assert learned.features == expected
    assert full == ([trained] if trained else [])
    assert [tried.method for tried in learned.tried] == [*CANDIDATES, *full]


def test_it_costs_at_most_two_runs_of_ld(graph, tmp_path):
    """In passes of the encoder: a node trained is 3 (forward and backward), a node exported 1."""

    def passes(result):
        counts = result.encoder_nodes_by_stage.items()
        return sum(3 * count if "train" in label else count for label, count in counts)

    ld = fit(graph, method="ld", out=tmp_path / "ld", cache=tmp_path / "one", **QUICK)
    found = fit(graph, method="auto", out=tmp_path / "auto", cache=tmp_path / "two", **QUICK)
    assert passes(ld) < passes(found) <= 2 * passes(ld)


def test_test_labels_choose_nothing(graph, tmp_path):
    labels = graph.labels.copy()
    labels[graph.split.test] = (labels[graph.split.test] + 1) % graph.num_classes
    one = fit(graph, method="auto", out=tmp_path / "a", **QUICK)
    two = fit(replace(graph, labels=labels), method="auto", out=tmp_path / "b", cache=tmp_path / "other", **QUICK)
    assert (one.chosen, one.tried) == (two.chosen, two.tried)
    np.testing.assert_array_equal(one.logits, two.logits)


def test_a_gamma_that_was_said_is_kept(graph, tmp_path):
    said = fit(graph, method="auto", labels__gamma="learned", out=tmp_path / "a", **QUICK)
    assert not any("gamma" in label for label in said.seconds)
    unsaid = fit(graph, method="auto", out=tmp_path / "b", **QUICK)
    assert any(label.startswith("ld 1: gamma") for label in unsaid.seconds)


def test_the_inductive_setting(graph, tmp_path):
    result = fit(graph, method="auto", setting="inductive", out=tmp_path / "a", **QUICK)
    assert result.chosen in CANDIDATES


def test_without_validation_nodes_a_name_is_asked_for(graph):
    roles = np.where(graph.split.roles == 1, 2, graph.split.roles)
    blind = replace(graph, split=type(graph.split)(roles))
    run = prepare(resolve(load_config(None, {"data": "x", "method": "auto", "encoder.name": "tiny"})), blind)
    from labeldeconv.methods.base import method_named

    with pytest.raises(ConfigError, match="name a method instead"):
        method_named("auto").needs(run)
