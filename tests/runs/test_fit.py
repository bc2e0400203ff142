"""Whole runs with the tiny encoder: sharing, run directory, Python API, defaults, kill -9."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file
from transformers import AutoModel

from labeldeconv import AttributedGraph, fit, open_data, planted
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.graph.metrics import METRICS
from labeldeconv.graph.split import Split
from labeldeconv.graph.task import Task
from labeldeconv.propagation.fixed_point import dequantize
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.stages.memory import free_memory_mib

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5}


@pytest.mark.parametrize("method", ["pne", "fne", "wo-ld", "ld"])
@pytest.mark.parametrize("data", ["planted:60", "planted-multilabel:60", "planted-protein:60", "planted-regression:60"])
def test_every_method_on_every_flavour(data, method, tmp_path):
    result = fit(data, method=method, gnn="sagn", out=tmp_path / "run", **QUICK)
    stored = RunDirectory.open(result.run)
    ids = stored.graph.split.test
    assert result.test == Task.of(stored.graph).score(result.logits[ids], stored.graph.labels[ids])
    assert (result.gamma is not None) == (method == "ld")
    assert result.features.shape == (60, 32)
    assert result.metric == {"planted": "accuracy", "planted-regression": "R2"}.get(data.split(":")[0], "mean ROC-AUC")


def test_run_directory_is_complete_and_open(tmp_path):
    result = fit("planted:60", method="ld", out=tmp_path / "run", **QUICK)
    run = result.run
    stored = json.loads((run / "result.json").read_text())
    told = json.loads(json.dumps(result.to_dict()))
    assert told.pop("targets") is None  # of numbers alone
    own = ("format", "files", "bytes", "checksum", "encoder_key")
    assert {k: v for k, v in stored.items() if k not in own} == {k: v for k, v in told.items() if k != "run"}
    assert set(stored["peak_accelerator_mib"]) == set(stored["peak_mib"])
    assert stored["largest_batch"] is None
    assert stored["settings"]["encoder"]["name"] == "tiny"
    assert tomllib.loads((run / "config.toml").read_text())["train"]["epochs"] == 1
    assert np.load(run / "hop_labels.npy").shape == (60, 2, 10)
    K = dequantize(np.load(run / "hop_labels.npy"))
    np.testing.assert_allclose(K[:, 0], np.load(run / "pseudo_labels.npy"), atol=1e-5)
    assert len(json.loads((run / "steps.jsonl").read_text().splitlines()[0])["gamma"]) == 2
    assert load_file(run / "gnn.safetensors")
    assert AttributedGraph.load(run / "graph").num_nodes == 60
    AutoModel.from_pretrained(run / "encoder")
    assert not [p for p in run.rglob("*") if p.suffix in (".pt", ".pkl", ".bin") and p.name != "texts.bin"]


def test_stages_are_shared(tmp_path):
    for method in ("pne", "ld"):
        result = fit("planted:60", method=method, out=tmp_path / method, **QUICK)
    assert set(result.cached) == {"encode", "tokens", "first gnn"}
    again = fit("planted:60", method="ld", out=tmp_path / "again", **QUICK)
    assert set(again.cached) == set(again.seconds)
    assert again.test == result.test
    other = fit("planted:60", method="ld", alpha=0.5, out=tmp_path / "other", **QUICK)
    assert "hops" in other.cached
    assert "train" not in other.cached


def test_same_seed_same_numbers_other_seed_others(tmp_path):
    runs = [
        fit("planted:60", seed=seed, out=tmp_path / f"o{i}", cache=tmp_path / f"c{i}", **QUICK)
        for i, seed in enumerate((0, 0, 1))
    ]
    assert np.array_equal(runs[0].logits, runs[1].logits)
    assert not np.array_equal(runs[0].logits, runs[2].logits)


def test_own_graph_and_pyg(small_graph, tmp_path):
    data = small_graph.to_pyg()
    graph = AttributedGraph.from_pyg(data, small_graph.texts, name="mine")
    result = fit(graph, method="pne", out=tmp_path / "run", **QUICK)
    assert graph.to_pyg(x=result.features).x.shape == (6, 32)


def test_own_gnn_by_path(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from labeldeconv.gnns.gcn import GCN\n\n\nclass Mine(GCN):\n    pass\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = fit("planted:40", method="pne", gnn="mine:Mine", out=tmp_path / "r", **QUICK)
    gcn = fit("planted:40", method="pne", gnn="gcn", out=tmp_path / "s", **QUICK)
    assert [r.settings["gnn"]["name"] for r in (mine, gcn)] == ["mine:Mine", "gcn"]
    assert mine.stages["gnn"] != gcn.stages["gnn"]
    np.testing.assert_array_equal(mine.logits, gcn.logits)


def test_psi_from_the_first_gnn(tmp_path):
    fresh = fit("planted:60", out=tmp_path / "a", **QUICK)
    warm = fit("planted:60", out=tmp_path / "b", train__psi_init="gnn", **QUICK)
    assert not np.array_equal(fresh.features, warm.features)


def test_last_gnn_from_psi(tmp_path):
    """With no GNN epoch that beats the start, the last GNN of `gnn.init = "psi"` is psi."""
    still = {**QUICK, "gnn__epochs": 1, "gnn__lr": 1e-12, "gnn__weight_decay": 0.0}
    warm = fit("planted:60", out=tmp_path / "a", gnn__init="psi", **still)
    psi, last = (load_file(warm.run / f"{name}.safetensors") for name in ("psi", "gnn"))
    weights = [name for name in psi if psi[name].dtype == np.float32 and "running" not in name]
    assert weights
    assert all(np.allclose(psi[name], last[name], rtol=0, atol=1e-9) for name in weights)
    fresh = fit("planted:60", out=tmp_path / "b", **still)
    assert np.array_equal(fresh.features, warm.features)
    assert not np.array_equal(fresh.logits, warm.logits)
    for method in ("pne", "giant"):  # no psi to start from
        a, b = (fit("planted:60", method=method, gnn__init=i, out=tmp_path / "c", **still) for i in ("fresh", "psi"))
        assert a.test == b.test


def test_wrong_names_are_answered():
    with pytest.raises(ConfigError, match=r"method 'l': unknown"):
        fit("planted:60", method="l", **QUICK)
    with pytest.raises(ConfigError, match=r"gnn.name 'gnc': unknown; did you mean 'gcn'"):
        fit("planted:60", gnn="gnc", **QUICK)
    with pytest.raises(ConfigError, match=r"gnn.options.nrm: gcn has no such option; did you mean 'norm'"):
        fit("planted:60", gnn__options={"nrm": 1}, **QUICK)
    with pytest.raises(DataError, match="data 'plantde': no such folder, and not a name; did you mean 'planted'"):
        open_data("plantde")
    with pytest.raises(DataError, match="a number of nodes, 4 to"):
        open_data("planted:2")


def test_a_taken_place_is_told_before_anything_is_computed(tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match=r"holds 'notes.txt', which no run writes"):
        fit("planted:60", out=tmp_path / "taken", cache=tmp_path / "cache", **QUICK)
    assert not (tmp_path / "cache" / "tokens").exists()


def test_auto_is_a_word_of_fit(tmp_path):
    result = fit("planted:60", alpha="auto", out=tmp_path / "r", **QUICK)
    assert result.settings["labels"]["gamma"] == "auto"


def command(cache, out, *more):
    quick = ["--encoder", "tiny", "--set", "train.epochs=3", "--set", "gnn.epochs=30", "--set", "gnn.patience=30"]
    always = ["--set", "train.checkpoint_minutes=0", "--set", "gnn.checkpoint_minutes=0"]
    run = [
        sys.executable,
        "-m",
        "labeldeconv",
        "fit",
        "planted:300",
        "--method",
        "ld",
        "--gnn",
        "gcn",
        "--out",
        str(out),
        *quick,
        *always,
        *more,
    ]
    env = {**os.environ, "LABELDECONV_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(run, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines(folder, pattern):
    return sum(p.read_text().count("\n") for p in folder.glob(pattern))


def test_killed_run_goes_on_and_ends_with_the_same_numbers(tmp_path):
    straight = command(tmp_path / "c1", tmp_path / "straight")
    assert straight.wait(timeout=120) == 0, straight.stderr.read()
    # kill -9 during the encoder phase, then during the last GNN phase, then let it finish
    for pattern, least in (("train/*.partial/steps.jsonl", 5), ("gnn/*.partial/epochs.jsonl", 10)):
        process = command(tmp_path / "c2", tmp_path / "killed")
        trained = pattern.startswith("gnn")
        while process.poll() is None:
            ready = not trained or any((tmp_path / "c2" / "train").glob("*/stage.json"))
            if ready and lines(tmp_path / "c2", pattern) >= least:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.005)
        process.wait()
        assert process.returncode == -signal.SIGKILL, "finished before it could be killed"
        process.stdout.close()
        process.stderr.close()
        assert not (tmp_path / "killed").exists()
    last = command(tmp_path / "c2", tmp_path / "killed", "--json")
    out, err = last.communicate(timeout=120)
    assert last.returncode == 0, err
    straight.stdout.close()
    straight.stderr.close()
    result = json.loads(out)
    expected = json.loads((tmp_path / "straight" / "result.json").read_text())
    assert {k: result[k] for k in ("val", "test", "gamma")} == {k: expected[k] for k in ("val", "test", "gamma")}
    for name in ("features.npy", "logits.npy", "steps.jsonl", "epochs.jsonl", "encoder/model.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes(), name
    assert not (tmp_path / "killed.partial").exists()


def test_a_run_directory_used_again_holds_the_new_split(tmp_path):
    for split in ([0.08, 0.02], [0.5, 0.2]):
        fit("planted:200", method="pne", out=tmp_path / "run", cache=tmp_path / "cache", split=split, **QUICK)
        graph = AttributedGraph.load(tmp_path / "run" / "graph")
        assert len(graph.split.train) == pytest.approx(split[0] * 200, abs=10)
    with pytest.raises(ConfigError, match="split: shares of train and validation nodes below 1"):
        fit("planted:200", method="pne", cache=tmp_path / "cache", split=[0.7, 0.4], **QUICK)


def test_off_a_terminal_every_stage_is_a_line(tmp_path):
    """Under nohup, SLURM or CI a run of hours printed nothing."""
    run = [sys.executable, "-m", "labeldeconv", "fit", "planted:60", "--encoder", "tiny", "--gnn", "gcn"]
    run += ["--method", "ld", "--out", str(tmp_path / "r"), "--set", "gnn.epochs=2", "--set", "train.epochs=1"]
    env = {**os.environ, "LABELDECONV_CACHE": str(tmp_path / "c")}
    told = subprocess.run(run, env=env, capture_output=True, text=True, check=True).stderr
    assert all(any(label in line for line in told.splitlines()) for label in ("tokens", "first gnn", "hops", "train"))
    quiet = subprocess.run([*run, "--quiet"], env=env, capture_output=True, text=True, check=True).stderr
    assert quiet == ""


@pytest.mark.skipif(free_memory_mib() is None, reason="this system does not tell how much memory is free")
def test_the_largest_batch_is_measured_and_recorded(tmp_path):
    plain = fit("planted:60", method="fne", out=tmp_path / "a", **QUICK)
    found = fit("planted:60", method="fne", out=tmp_path / "b", find_batch=True, memory_mib=2000, **QUICK)
    assert (plain.largest_batch, found.largest_batch) == (None, 60)
    assert json.loads((tmp_path / "b" / "result.json").read_text())["largest_batch"] == 60
    assert found.stages == plain.stages  # it changes nothing else
    assert fit("planted:60", method="pne", out=tmp_path / "c", find_batch=True, **QUICK).largest_batch is None


def test_the_metric_chooses_the_epoch_and_is_what_the_result_names(tmp_path):
    graph = planted(90, seed=0, num_classes=4).graph
    settings = {"gnn": "gcn", "cache": tmp_path / "cache", "encoder": "tiny", "gnn__epochs": 30, "gnn__hidden": 8}
    by = {m: fit(graph, "pne", metric=m, out=tmp_path / f"{m}", **settings) for m in (None, "macro-f1", "roc-auc")}
    assert by["macro-f1"].metric == "macro-F1"
    for name, result in by.items():
        epochs = [json.loads(line) for line in (result.run / "epochs.jsonl").read_text().splitlines()]
        assert max(row["val"] for row in epochs) == result.val  # every epoch was judged by it
        for role in ("val", "test"):
            assert result.metrics[role][name or "accuracy"] == getattr(result, role)
            assert set(result.metrics[role]) == set(METRICS["multiclass"])
        assert result.to_dict()["metrics"] == result.metrics
    assert by["macro-f1"].val >= by[None].metrics["val"]["macro-f1"]
    assert by["roc-auc"].val > by[None].metrics["val"]["roc-auc"]


def test_class_weights_find_more_of_a_rare_class(tmp_path):
    """The planted graph with most nodes of class 3 gone from the train set."""
    graph = planted(300, seed=0, num_classes=4).graph
    roles, labels = graph.split.roles.copy(), np.asarray(graph.labels)
    rare = np.flatnonzero((roles == 0) & (labels == 3))
    roles[rare[4:]] = 2
    graph = replace(graph, split=Split(roles))
    settings = {
        "encoder": "tiny",
        "gnn__epochs": 60,
        "gnn__hidden": 16,
        "cache": tmp_path / "cache",
        "gnn__choose": "loss",
    }
    recall = {}
    for weights in ("none", "balanced"):
        result = fit(
            graph, "fne", class_weights=weights, out=tmp_path / weights, gnn="gcn", train__epochs=1, **settings
        )
        test = graph.split.test[labels[graph.split.test] == 3]
        recall[weights] = float((result.logits[test].argmax(1) == 3).mean())
        assert result.settings["class_weights"] == weights
    assert recall["balanced"] > recall["none"] + 0.1
    with pytest.raises(ConfigError, match="4 weights expected, one per class, got 2"):
        fit(graph, "fne", class_weights=[1.0, 2.0], out=tmp_path / "wrong", **settings)
