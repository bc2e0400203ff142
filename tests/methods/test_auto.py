"""The method 'auto': what it tries, what it takes, what it costs, and what it may not see."""

from dataclasses import replace

import numpy as np
import pytest

from labeldeconv import fit
from labeldeconv.errors import ConfigError
from labeldeconv.methods.auto import CANDIDATES
from labeldeconv.runs.asked import resolve
from labeldeconv.runs.preparation import prepare
from labeldeconv.settings.reading import load_config

QUICK = {"encoder": "tiny", "train__epochs": 3, "gnn__epochs": 5}


def test_it_takes_the_best_by_validation_and_says_what_it_tried(graph, tmp_path):
    auto = fit(graph, method="auto", out=tmp_path / "auto", **QUICK)
    tried = {(row["method"], row["epochs"]): row["val"] for row in auto.tried}
    assert set(tried) >= {("pne", 0), ("fne", 1), ("ld", 1), ("ld-heads", 1)}
    assert auto.val == max(tried.values())
    first = max(CANDIDATES, key=lambda name: tried[name, 0 if name == "pne" else 1])
    assert len(tried) == (4 if first == "pne" else 5)
    assert first == "pne" or (first, 3) in tried
    # Every candidate is the method itself, to the bit, and shares its stages.
    for (name, epochs), val in tried.items():
        gamma = {"labels__gamma": "auto"} if name == "ld" else {}
        same = fit(
            graph, method=name, out=tmp_path / f"{name}{epochs}", **gamma, **{**QUICK, "train__epochs": epochs or 3}
        )
        assert same.val == val
        assert set(same.cached) == set(same.seconds)
        if (name, val) == (auto.chosen, auto.val):
            np.testing.assert_array_equal(auto.logits, same.logits)
            np.testing.assert_array_equal(auto.features, same.features)


def test_it_costs_at_most_two_runs_of_ld(graph, tmp_path):
    """In passes of the encoder: a node trained is 3 (forward and backward), a node exported 1."""

    def passes(result):
        counts = result.encoder_nodes_by_stage.items()
        return sum(3 * count if "train" in label else count for label, count in counts)

    ld = fit(graph, method="ld", out=tmp_path / "ld", cache=tmp_path / "one", **QUICK)
    auto = fit(graph, method="auto", out=tmp_path / "auto", cache=tmp_path / "two", **QUICK)
    assert passes(ld) < passes(auto) <= 2 * passes(ld)


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
