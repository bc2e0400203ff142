"""export --graphstorm: files that hold the run's graph, and a configuration as GraphStorm's documentation has it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
import yaml

from labeldeconv import RunDirectory, planted
from labeldeconv.errors import DataError
from labeldeconv.graph.split import ROLES, Split
from labeldeconv.graph.texts import Texts
from labeldeconv.sharing import graphstorm as module
from labeldeconv.sharing.graphstorm import export_graphstorm, write_graphstorm

X = np.arange(12, dtype=np.float16).reshape(6, 2) / 7
PARTS = dict(zip(ROLES, ("train", "valid", "test"), strict=True))


def rows(folder, files, what="*"):
    """Rows of Parquet files in their order."""
    names = [files] if isinstance(files, str) else files
    return [row for name in names for row in duckdb.sql(f"SELECT {what} FROM '{folder / name}'").fetchall()]


def checked(folder):
    """gconstruct.json: every key that GraphStorm's documentation requires, of files and columns that there are."""
    config = json.loads((folder / "gconstruct.json").read_text())
    assert config["version"] == "gconstruct-v0.1"
    for node in config["nodes"]:
        held = columns(folder, node)
        assert {node["node_id_col"], *(f["feature_col"] for f in node["features"])} <= held
        assert all({"feature_col", "feature_name"} <= f.keys() and "transform" not in f for f in node["features"])
        for label in node["labels"]:
            assert label["task_type"] in ("classification", "regression")
            assert label["label_col"] in held
            split = dict(label["custom_split_filenames"])
            assert split.pop("column") == [node["node_id_col"]]
            assert "train" in split
            assert split.keys() <= {"train", "valid", "test"}
            assert all(rows(folder, name, node["node_id_col"]) for name in split.values())
    types = {node["node_type"] for node in config["nodes"]}
    for edge in config["edges"]:
        assert {edge["source_id_col"], edge["dest_id_col"]} <= columns(folder, edge)
        source, relation, target = edge["relation"]
        assert {source, target} <= types
        assert relation
    return config


def columns(folder, part):
    """Columns of a type of nodes or edges, the same in all its files, none of which is empty."""
    assert part["format"] == {"name": "parquet"}
    assert part["files"] == sorted(part["files"])
    assert part["files"]
    found = {frozenset(duckdb.sql(f"SELECT * FROM '{folder / name}'").columns) for name in part["files"]}
    assert len(found) == 1
    assert all(rows(folder, name) for name in part["files"])
    return set(found.pop())


def test_a_run_comes_back(ld_run, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROWS", 30)
    monkeypatch.setattr(module, "EDGES", 50)
    run = RunDirectory.open(ld_run)
    folder = export_graphstorm(ld_run, tmp_path / "gs")
    (node,), (edge,) = (checked(folder)[part] for part in ("nodes", "edges"))
    assert len(node["files"]) == 3
    assert len(edge["files"]) > 2
    ids, X, labels = zip(*rows(folder, node["files"], "id, features, label"), strict=True)
    assert ids == tuple(range(80))
    np.testing.assert_array_equal(X, run.features.astype(np.float32))
    np.testing.assert_array_equal(labels, run.graph.labels)
    split = node["labels"][0]["custom_split_filenames"]
    for role, part in PARTS.items():
        assert [row[0] for row in rows(folder, split[part])] == run.graph.split.ids(role).tolist()
    found = rows(folder, edge["files"], "source, target")
    given = {(a, b) for a, b in run.graph.edges.T.tolist() if a != b}
    assert len(found) == len(set(found))
    assert set(found) == given | {(b, a) for a, b in given}
    assert json.loads((folder / "classes.json").read_text()) == run.class_names
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gs"]


@pytest.mark.parametrize("ids", [np.arange(6) * 10, Texts.from_strings(["a", "b'", "ç", "d", "e f", "7"])])
def test_directed_edges_and_the_users_ids(small_graph, tmp_path, ids):
    graph = replace(small_graph, ids=ids, edges=np.array([[0, 1, 2, 3, 3, 1], [1, 2, 3, 4, 4, 1]]))
    folder = write_graphstorm(graph, X, False, tmp_path / "gs")
    config, name = checked(folder), list(ids)
    found = rows(folder, config["edges"][0]["files"], "source, target")
    assert sorted(found) == sorted((name[i], name[i + 1]) for i in range(4))
    assert [row[0] for row in rows(folder, "nodes-00000.parquet", "id")] == name
    assert [row[0] for row in rows(folder, "valid.parquet")] == [name[3], name[4]]


def test_labels_that_are_missing(small_graph, tmp_path):
    """Of classes -1, outside of the split as before; of several labels the node leaves the split."""
    classes = replace(small_graph, labels=np.array([0, 1, 2, 0, 1, -1]), split=Split(np.array([0, 0, 0, 1, 1, -1])))
    folder = write_graphstorm(classes, X, True, tmp_path / "classes")
    assert checked(folder)["nodes"][0]["labels"][0]["custom_split_filenames"].keys() == {"train", "valid", "column"}
    assert rows(folder, "nodes-00000.parquet", "label")[5] == (-1,)
    many = np.eye(3, dtype=np.int8)[[0, 1, 2, 0, 1, 2]]
    many[1, 2] = -1
    folder = write_graphstorm(replace(small_graph, labels=many), X, True, tmp_path / "labels")
    checked(folder)
    assert [row[0] for row in rows(folder, "train.parquet")] == [0, 2]
    np.testing.assert_array_equal([row[0] for row in rows(folder, "nodes-00000.parquet", "label")], many)


@pytest.mark.parametrize("targets", [1, 2])
def test_numbers(small_graph, tmp_path, targets):
    values = np.arange(6.0 * targets).reshape(6, targets) / 3
    if targets == 2:
        values[0, 1] = np.nan
    graph = replace(small_graph, labels=values, class_names=["height", "weight"][:targets])
    folder = write_graphstorm(graph, X, True, tmp_path / "gs")
    told = checked(folder)["nodes"][0]["labels"]
    names = ["label"] if targets == 1 else ["label_0", "label_1"]
    assert [(label["label_col"], label["task_type"]) for label in told] == [(name, "regression") for name in names]
    found = np.array(rows(folder, "nodes-00000.parquet", ", ".join(names)), float)
    np.testing.assert_array_equal(found, values.astype(np.float32))
    assert [row[0] for row in rows(folder, "train.parquet")] == ([0, 1, 2] if targets == 1 else [1, 2])
    assert ("--label-field label_1" in (folder / "README.md").read_text()) == (targets == 2)


@pytest.mark.parametrize(
    ("task", "wanted"),
    [
        ("multiclass", {"multilabel": False, "num_classes": 10, "eval_metric": ["accuracy"]}),
        ("multilabel", {"multilabel": True, "num_classes": 10, "eval_metric": ["roc_auc"]}),
        ("regression", {"eval_metric": ["rmse"]}),
    ],
)
def test_training_and_its_commands(tmp_path, task, wanted):
    graph = planted(40, task).graph
    folder = write_graphstorm(replace(graph, name="my graph: 2"), np.zeros((40, 3)), True, tmp_path / "gs")
    config, gsf = checked(folder), yaml.safe_load((folder / "train.yaml").read_text())["gsf"]
    kind = "node_regression" if task == "regression" else "node_classification"
    (node,) = config["nodes"]
    assert gsf[kind] == {"target_ntype": node["node_type"], "label_field": node["labels"][0]["label_col"], **wanted}
    assert gsf["gnn"]["node_feat_name"] == [f"{node['node_type']}:{node['features'][0]['feature_name']}"]
    assert len(gsf["gnn"]["fanout"].split(",")) == len(gsf["gnn"]["eval_fanout"].split(",")) == gsf["gnn"]["num_layers"]
    assert {"lr", "batch_size", "num_epochs"} <= gsf["hyperparam"].keys()
    assert gsf["gnn"]["hidden_size"]
    assert gsf["basic"]["model_encoder_type"] == "sage"
    readme = (folder / "README.md").read_text()
    (name,) = set(re.findall(r"--graph-name (\S+)|constructed/(\S+)\.json", readme)[0]) - {""}
    assert name.isidentifier()
    assert f'--part-config "$PWD/constructed/{name}.json"' in readme
    assert "--conf-file gconstruct.json" in readme
    assert f"graphstorm.run.gs_{kind} " in readme


def test_what_cannot_be_written(small_graph, tmp_path):
    with pytest.raises(DataError, match="edges between two nodes expected by GraphStorm, got none"):
        write_graphstorm(replace(small_graph, edges=np.array([[1], [1]])), X, True, tmp_path / "gs")
    none = np.full((6, 3), -1, np.int8)
    with pytest.raises(DataError, match="no train node has all its 3 labels"):
        write_graphstorm(replace(small_graph, labels=none), X, True, tmp_path / "gs")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(DataError, match="an empty folder or none expected"):
        write_graphstorm(small_graph, X, True, tmp_path / "full")
    assert [p.name for p in tmp_path.iterdir()] == ["full"]


def test_graphstorm_is_never_imported():
    assert not re.search(r"^\s*(from|import) (graphstorm|dgl)\b", Path(module.__file__).read_text(), re.M)
