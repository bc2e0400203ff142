"""`--continue RUN`: a run that starts where another ended, under keys of its own."""

import json
import logging
import re
from dataclasses import replace

import numpy as np
import pytest
from safetensors.torch import load_file
from typer.testing import CliRunner

from labeldeconv import AttributedGraph, Predictor, Split, Texts, fit, planted
from labeldeconv.cli.app import app
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.runs.warm_start import seen_before, warm_start
from labeldeconv.settings.reading import load_config

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 4, "gnn__hidden": 8, "encoder__max_tokens": 16}
GRAPH = planted(60, seed=0).graph


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first")
    fit(GRAPH, method="ld", out=folder / "run", cache=folder / "cache", **QUICK)
    return folder


def changed(num=1):
    strings = list(GRAPH.texts)
    strings[:num] = [f"something else {i}" for i in range(num)]
    return replace(GRAPH, texts=Texts.from_strings(strings))


def go_on(first, out, graph=GRAPH, cache=None, **more):
    return fit(
        graph, out=out, cache=cache or first / "cache", start=str(first / "run"), **{"method": "ld", **QUICK, **more}
    )


def test_the_encoder_starts_from_the_run_and_its_texts_are_not_encoded_again(first, tmp_path):
    result = go_on(first, tmp_path / "run", changed())
    assert result.reused_nodes_by_stage["encode"] == 59
    assert result.encoder_nodes_by_stage["encode"] == 1
    held = RunDirectory.open(first / "run")
    again = RunDirectory.open(tmp_path / "run")
    assert again.result["encoder_key"] != held.result["encoder_key"]  # it has learned on
    plain = fit(changed(), method="ld", out=tmp_path / "plain", cache=first / "cache", **QUICK)
    assert not set(result.stages.values()) & set(plain.stages.values()) - {result.stages["tokens"]}
    assert Predictor.load(tmp_path / "run").predict(["river"], [("new-0", 3)]).by == ["gnn"]


def test_features_before_training_are_those_of_the_run(first, tmp_path):
    """PNE from a run is the features of that run's encoder, and its own folder has that encoder."""
    result = go_on(first, tmp_path / "run", method="pne")
    held = RunDirectory.open(first / "run")
    np.testing.assert_array_equal(result.features, held.features)
    assert RunDirectory.open(tmp_path / "run").result["encoder_key"] == held.result["encoder_key"]
    apart = go_on(first, tmp_path / "apart", method="pne", cache=tmp_path / "empty")
    np.testing.assert_allclose(apart.features, held.features, atol=2e-3)
    assert apart.stages == result.stages
    third = fit(GRAPH, method="pne", start=str(tmp_path / "run"), out=tmp_path / "c", cache=first / "cache", **QUICK)
    assert third.stages["encode"] == result.stages["encode"]


def test_the_gnn_starts_where_shapes_fit(first, tmp_path, caplog):
    quiet = {"method": "pne", "gnn__epochs": 1, "gnn__lr": 1e-9, "gnn__weight_decay": 0.0}
    held = load_file(first / "run" / "gnn.safetensors")
    with caplog.at_level(logging.INFO, logger="labeldeconv"):
        go_on(first, tmp_path / "same", **quiet)
        go_on(first, tmp_path / "deeper", **quiet, gnn__layers=3)
        go_on(first, tmp_path / "other", **quiet, gnn="sage")
    same, deeper = (load_file(tmp_path / name / "gnn.safetensors") for name in ("same", "deeper"))
    for name in ("convs.0.lin.weight", "convs.1.lin.weight"):
        np.testing.assert_allclose(same[name], held[name], atol=1e-6)
    np.testing.assert_allclose(deeper["convs.0.lin.weight"], held["convs.0.lin.weight"], atol=1e-6)
    assert deeper["convs.1.lin.weight"].shape != held["convs.1.lin.weight"].shape
    assert f"starts from {len(held)} of {len(held)} tensors" in caplog.text
    assert caplog.text.count("starts from") == 2  # GraphSAGE has other weights


def test_what_does_not_fit_or_is_damaged_is_refused(first, tmp_path):
    config = lambda **more: load_config(None, {"encoder.name": "tiny", **more})  # noqa: E731
    with pytest.raises(ConfigError, match=r"encoder.layers None expected, its own, got 1"):
        warm_start(config(start=str(first / "run"), **{"encoder.layers": 1}))
    with pytest.raises(DataError, match="the directory of a finished `labeldeconv fit`"):
        warm_start(config(start=str(tmp_path)))
    fit(GRAPH, method="fne", out=tmp_path / "run", cache=first / "cache", **QUICK)
    path = tmp_path / "run" / "gnn.safetensors"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DataError, match=r"cannot be continued: gnn.safetensors has another content"):
        warm_start(config(start=str(tmp_path / "run")))
    assert warm_start(config()).encoder is None


def test_labels_that_were_seen_are_told(first):
    settings = load_config(None, {"start": str(first / "run")})
    assert seen_before(settings, GRAPH) is None
    roles = GRAPH.split.roles.copy()
    roles[GRAPH.split.train[:3]] = 2
    moved = AttributedGraph(GRAPH.texts, GRAPH.edges, GRAPH.labels, Split(roles), GRAPH.class_names)
    assert seen_before(settings, moved).startswith("3 validation or test nodes were train nodes of")
    assert seen_before(load_config(None, {}), moved) is None


def test_the_command(first, tmp_path, monkeypatch):
    monkeypatch.setenv("LABELDECONV_CACHE", str(first / "cache"))
    words = ["fit", "planted:60", "--method", "pne", "--gnn", "gcn", "--encoder", "tiny", "--set", "gnn.epochs=2"]
    words += ["--set", "gnn.hidden=8", "--set", "encoder.max_tokens=16", "--out", str(tmp_path / "run"), "--json"]
    result = CliRunner().invoke(app, [*words, "--continue", str(first / "run")], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["settings"]["start"] == str(first / "run")


def test_hop_labels_of_rows_that_stay_are_the_runs(tmp_path, caplog):
    """All labels are known here: one node's label changes, and the K of the run serves for what does not read it."""
    graph = planted(300, seed=0, mean_degree=2.0).graph
    labels, node = graph.labels.copy(), int(graph.split.train[5])
    labels[node] = (labels[node] + 1) % graph.num_classes
    quick = {"method": "ld", "setting": "inductive", "cache": tmp_path / "cache", **QUICK}
    fit(graph, out=tmp_path / "first", **quick)
    with caplog.at_level(logging.INFO, logger="labeldeconv"):
        start = str(tmp_path / "first")
        result = fit(replace(graph, labels=labels), out=tmp_path / "next", start=start, **quick)
    (told,) = [line for line in caplog.messages if "computed anew" in line]
    assert re.fullmatch(rf"hops: \d+ of {3 * 180} rows of hop labels computed anew, the others from {start}", told)
    held = [RunDirectory.open(tmp_path / name).hop_labels for name in ("first", "next")]
    assert 0 < (held[0] != held[1]).any((1, 2)).sum() <= int(told.split()[1])
    fresh = fit(replace(graph, labels=labels), out=tmp_path / "fresh", **{**quick, "cache": tmp_path / "empty"})
    assert fresh.stages["hops"] == result.stages["hops"]
    np.testing.assert_array_equal(RunDirectory.open(tmp_path / "fresh").hop_labels, held[1])
