"""Numbers one can trust: no test label in training, scores that others compute too, equal bytes for equal seeds.

Runs share two caches, one for the graph as it is and one for the graph with other labels, so that nothing of the first
can reach the second, and every stage that methods share is made once in each. `make test-thorough` adds every method
with every GNN.
"""

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, roc_auc_score

from labeldeconv import AttributedGraph, compare, fit, planted
from labeldeconv.data.sets.ogb.evaluator import ogb_score
from labeldeconv.errors import ConfigError
from labeldeconv.gnns.base import GNNS
from labeldeconv.methods.base import METHODS
from labeldeconv.runs.directory import RunDirectory
from tests.data.table_writing import write

ROOT = Path(__file__).parents[1]
QUICK = {
    "encoder": "tiny", "encoder__max_tokens": 8, "train__epochs": 1, "gnn__epochs": 2, "gnn__hidden": 8,
    "giant__coarsest": 2, "giant__cluster_size": 10, "joint__epochs": 1, "joint__batch_nodes": 16, "glem__rounds": 1,
}  # fmt: skip
SETTINGS = ("transductive", "inductive")
COSTS = {"seconds", "peak_mib", "peak_accelerator_mib", "step_seconds", "cached", "checksum", "provenance", "bytes"}


@pytest.fixture(scope="module")
def graphs():
    """A graph, and the same with other test labels, with other validation labels."""
    graph = planted(40, seed=0, num_classes=4, num_features=6).graph
    return {"as it is": graph, **{role: relabelled(graph, role) for role in ("test", "val")}}


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    """A cache per graph."""
    return {name: tmp_path_factory.mktemp("cache") for name in ("as it is", "test", "val")}


def relabelled(graph: AttributedGraph, role: str) -> AttributedGraph:
    """Every label of one part is another class."""
    labels, ids = graph.labels.copy(), graph.split.ids(role)
    labels[ids] = (labels[ids] + 1) % graph.num_classes
    return replace(graph, labels=labels)


def content(run: Path) -> dict[str, str]:
    """A hash of every file of a run but the graph's labels, and result.json and race.json: they have scores, costs."""
    files = [path for path in run.rglob("*") if path.is_file()]
    found = {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return {name: held for name, held in found.items() if name not in ("result.json", "graph/labels.npy", "race.json")}


def told(run: Path, *left_out: str) -> dict:
    """result.json without costs, without the checksums of the labels, and without what else is `left_out`."""
    held = json.loads((run / "result.json").read_text())
    for name in ("graph/labels.npy", "race.json"):
        held["files"].pop(name, None)
    for candidate in (held["race"] or {}).get("candidates", ()):
        candidate.pop("seconds")
    for part in ("before", "after"):
        held["calibration"]["ece_test"].pop(part)  # a score on test labels
    for part in {"val", "test"} & set(left_out):
        held["metrics"].pop(part)
    return {name: value for name, value in held.items() if name not in (*COSTS, *left_out)}


def pair(graphs, caches, out, other, **words):
    """The same fit of the graph as it is and of one with other labels, each in a cache of its own."""
    if words.get("method") == "joint-gas":
        pytest.importorskip("pymetis", reason="needs the extra metis")
    words = {**QUICK, **words}
    return [fit(graphs[name], out=out / name, cache=caches[name], **words) for name in ("as it is", other)]


def check_test_labels_change_the_test_score_alone(graphs, caches, out, **words):
    plain, flipped = pair(graphs, caches, out, "test", **words)
    assert content(plain.run) == content(flipped.run)
    assert told(plain.run, "test") == told(flipped.run, "test")
    test = graphs["test"].split.test
    for result, name in ((plain, "as it is"), (flipped, "test")):
        assert result.test == accuracy_score(graphs[name].labels[test], result.logits[test].argmax(1))


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("method", METHODS)
def test_test_labels_change_nothing_but_the_test_score_of_a_method(method, setting, graphs, caches, tmp_path):
    check_test_labels_change_the_test_score_alone(graphs, caches, tmp_path, method=method, gnn="gcn", setting=setting)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("gnn", [*GNNS, "auto"])
def test_test_labels_change_nothing_but_the_test_score_of_a_gnn(gnn, setting, graphs, caches, tmp_path):
    more = {"gnn__candidates": ["gcn", "mlp"]} if gnn == "auto" else {}
    check_test_labels_change_the_test_score_alone(
        graphs, caches, tmp_path, method="pne", gnn=gnn, setting=setting, **more
    )


@pytest.mark.thorough
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("gnn", GNNS)
@pytest.mark.parametrize("method", METHODS)
def test_test_labels_change_nothing_but_the_test_score_of_all_pairs(method, gnn, setting, graphs, caches, tmp_path):
    try:
        check_test_labels_change_the_test_score_alone(graphs, caches, tmp_path, method=method, gnn=gnn, setting=setting)
    except ConfigError as refused:
        if not str(refused).startswith("joint training: "):
            raise
        pytest.skip(str(refused))  # a GNN without layers to run one by one


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("method", [name for name in METHODS if name != "auto"])
def test_validation_labels_change_nothing_where_nothing_is_selected(method, setting, graphs, caches, tmp_path):
    """With one epoch there is one model; 'auto' is selection and nothing else."""
    plain, flipped = pair(graphs, caches, tmp_path, "val", method=method, gnn="gcn", setting=setting, gnn__epochs=1)
    a, b = content(plain.run), content(flipped.run)
    a.pop("epochs.jsonl"), b.pop("epochs.jsonl")  # which have the validation scores
    assert a == b
    scored = ("val", "stages", "encoder_key", "calibration", "files")
    assert told(plain.run, *scored) == told(flipped.run, *scored)
    val = graphs["val"].split.val
    for result, name in ((plain, "as it is"), (flipped, "val")):
        assert result.val == accuracy_score(graphs[name].labels[val], result.logits[val].argmax(1))


@pytest.mark.parametrize("gnn", GNNS)
def test_validation_labels_change_no_loss_of_a_gnn(gnn, graphs, caches, tmp_path):
    """They choose the epoch that is kept; every epoch before and after is the same."""
    plain, flipped = pair(graphs, caches, tmp_path, "val", method="pne", gnn=gnn, gnn__epochs=4)
    a, b = ([row["loss"] for row in RunDirectory.open(r.run).epochs()] for r in (plain, flipped))
    assert a == b
    assert len(a) == 4


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("flavour", ["multiclass", "multilabel"])
def test_scores_are_those_of_scikit_learn_and_ogb(flavour, tmp_path):
    graph = planted(300, flavour, seed=1, num_classes=4).graph
    if flavour == "multilabel":
        labels = graph.labels.copy()
        labels[::7, 1] = -1  # not known: it does not count
        graph = replace(graph, labels=labels)
    result = fit(graph, method="pne", out=tmp_path / "run", **{**QUICK, "gnn__epochs": 5})
    held = json.loads((tmp_path / "run" / "result.json").read_text())
    for role in ("val", "test"):
        ids = graph.split.ids(role)
        logits, labels = np.asarray(result.logits[ids]), graph.labels[ids]
        if flavour == "multiclass":
            expected = accuracy_score(labels, logits.argmax(1))
        else:
            columns = [(labels[:, k] >= 0, k) for k in range(graph.num_classes)]
            areas = [roc_auc_score(labels[known, k], logits[known, k]) for known, k in columns]
            expected = float(np.mean(areas))
        assert held[role] == pytest.approx(expected, abs=1e-12)
        assert 0 < held[role] < 1
    assert held["metric"] == {"multiclass": "accuracy", "multilabel": "mean ROC-AUC"}[flavour]
    pytest.importorskip("ogb", reason="needs the extra ogb")
    ids = graph.split.test
    if flavour == "multilabel":  # its Evaluator knows no missing labels
        known = (graph.labels[ids] >= 0).all(1)
        ids = ids[known]
    logits = np.zeros((len(ids), {"multiclass": 40, "multilabel": 112}[flavour])) - 9.0
    logits[:, : graph.num_classes] = result.logits[ids]
    labels = graph.labels[ids]
    if flavour == "multilabel":  # columns that it must have: each of one perfect score
        truth = np.zeros((len(ids), 112), dtype=np.int64)
        truth[:, :4] = labels
        truth[0, 4:], logits[0, 4:] = 1, 9.0
        value = (ogb_score("ogbn-proteins", logits, truth)[1] * 112 - 108) / 4
        expected = float(np.mean([roc_auc_score(labels[:, k], result.logits[ids][:, k]) for k in range(4)]))
        assert value == pytest.approx(expected, abs=1e-12)
    else:
        assert ogb_score("ogbn-arxiv", logits, labels)[1] == pytest.approx(held["test"], abs=1e-12)


def test_a_comparison_has_the_mean_and_deviation_of_its_runs(graphs, tmp_path):
    words = {"methods": ["pne", "fne"], "seeds": 3, "out": tmp_path / "c"}
    rows = compare(graphs["as it is"], **words, **QUICK).rows
    for row in rows:
        tests = [json.loads((tmp_path / "c" / cell / "result.json").read_text())["test"] for cell in row.cells]
        assert row.tests == tests
        assert row.test.mean == pytest.approx(np.mean(tests))
        assert row.test.std == pytest.approx(np.std(tests, ddof=1))
        assert math.isfinite(row.test.std)


def tables(folder: Path) -> Path:
    """Tables whose order, decimal points and letters a locale could change."""
    labels, parts = ["ä", "z", "A", "_"], ["train", "train", "val", "test"]
    nodes = [
        {"id": f"Ö{i:02}", "text": f"İstanbul straße {i % 4} wort", "label": labels[i % 4], "split": parts[i // 4 % 4],
         "x": 0.5 + i}
        for i in range(32)
    ]  # fmt: skip
    edges = [{"source": f"Ö{i:02}", "target": f"Ö{(i * 5 + 1) % 32:02}"} for i in range(32)]
    return write(folder, nodes, edges, toml='features = ["x"]\nname = "tables"')


def run_elsewhere(place: Path, data: Path, umask: int, **environment: str) -> Path:
    """A fit by the command line in a process of its own, its home, cache and folder below `place`."""
    place.mkdir()
    sets = {name.replace("__", "."): value for name, value in QUICK.items() if name != "encoder"}
    words = [sys.executable, "-m", "labeldeconv", "fit", str(data), "--method", "ld", "--gnn", "gcn", "--seed", "5"]
    words += ["--encoder", "tiny", "--out", "run", "--quiet"]
    words += [word for name, value in sets.items() for word in ("--set", f"{name}={value}")]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "LABELDECONV_CACHE": str(place / "cache"), **environment}
    done = subprocess.run(words, cwd=place, env=env, umask=umask, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return place / "run"


def test_equal_seeds_give_equal_bytes_wherever_and_whoever(tmp_path):
    """Another folder, cache, home, umask, locale, time zone and seed of Python's hashes: no byte differs but costs."""
    data = tables(tmp_path / "data")
    shutil.copytree(data, tmp_path / "elsewhere" / "deep" / "data")
    plain = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    other = {"PYTHONHASHSEED": "4711", "LC_ALL": "C", "LANG": "tr_TR.UTF-8", "LANGUAGE": "tr", "TZ": "Asia/Kathmandu"}
    (tmp_path / "home").mkdir()
    a = run_elsewhere(tmp_path / "a", data, 0o022, **plain)
    moved = tmp_path / "elsewhere" / "deep" / "data"
    b = run_elsewhere(tmp_path / "b", moved, 0o077, HOME=str(tmp_path / "home"), COLUMNS="40", **other)
    first, second = content(a), content(b)
    config = {name: (run / "config.toml").read_text() for name, run in (("a", a), ("b", b))}
    assert config["a"].replace(str(data), "DATA") == config["b"].replace(str(moved), "DATA")
    first.pop("config.toml"), second.pop("config.toml")  # which have the folder of the data
    assert first == second
    assert {"logits.npy", "features.npy", "gnn.safetensors", "steps.jsonl", "encoder/model.safetensors"} <= set(first)
    assert told(a, "settings", "files") == told(b, "settings", "files")
    stages = [{str(path.parent.relative_to(place)) for path in place.glob("*/*/stage.json")} for place in
              (tmp_path / "a" / "cache", tmp_path / "b" / "cache")]  # fmt: skip
    assert stages[0] == stages[1]
