"""Nothing is ever served stale: change one input, use the same cache, and the answer is that of an empty cache."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labeldeconv import AttributedGraph, fit, planted
from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.settings.models import EncoderConfig
from tests.data.table_writing import NODES, changed, write

QUICK = {"train__epochs": 1, "gnn__epochs": 2, "gnn__hidden": 8}


def same_as_fresh(make, change, tmp_path, **settings):
    """Run, change the input, run again in the same cache and in an empty one; these two agree, and differ from before.

    `make` gives what is passed to `fit` as data.
    """
    used = {"encoder": "tiny", **QUICK, **settings}
    before = fit(make(), out=tmp_path / "before", cache=tmp_path / "shared", **used)
    change()
    after = fit(make(), out=tmp_path / "after", cache=tmp_path / "shared", **used)
    fresh = fit(make(), out=tmp_path / "fresh", cache=tmp_path / "new", **used)
    assert after.stages == fresh.stages
    np.testing.assert_array_equal(after.features, fresh.features)
    np.testing.assert_array_equal(after.logits, fresh.logits)
    return before, after


@pytest.fixture
def encoder(tmp_path):
    load_encoder(EncoderConfig(name="tiny")).save(tmp_path / "encoder")
    return tmp_path / "encoder"


def edit(path: Path, change) -> None:
    held = json.loads(path.read_text())
    change(held)
    path.write_text(json.dumps(held))


@pytest.mark.parametrize("change", [{"hidden_act": "relu"}, {"num_attention_heads": 4}])
def test_the_encoder_s_config(encoder, tmp_path, change):
    before, after = same_as_fresh(
        lambda: "planted:40",
        lambda: edit(encoder / "config.json", lambda held: held.update(change)),
        tmp_path,
        method="pne",
        encoder=str(encoder),
    )
    assert not np.array_equal(before.features, after.features)
    assert before.stages["tokens"] == after.stages["tokens"]


def test_the_encoder_s_tokenizer(encoder, tmp_path):
    def lower(held):
        held["normalizer"] = {"type": "Replace", "pattern": {"String": "a"}, "content": "e"}

    before, after = same_as_fresh(
        lambda: "planted:40",
        lambda: edit(encoder / "tokenizer.json", lower),
        tmp_path,
        method="pne",
        encoder=str(encoder),
    )
    assert not np.array_equal(before.features, after.features)


def test_features_in_a_subfolder(tmp_path):
    folder = write(tmp_path / "toy", toml='features = "sub/f.npy"')
    (folder / "sub").mkdir()
    rng = np.random.default_rng(0)
    np.save(folder / "sub" / "f.npy", rng.normal(size=(6, 3)))
    before, after = same_as_fresh(
        lambda: str(folder),
        lambda: np.save(folder / "sub" / "f.npy", rng.normal(size=(6, 3))),
        tmp_path,
        method="given",
    )
    assert not np.array_equal(before.features, after.features)


def test_class_names_of_a_part(tmp_path):
    nodes = [{"id": i, "text": f"text {i % 7}", "label": "ab"[i % 2]} for i in range(60)]
    edges = [{"source": i, "target": (i + 1) % 60} for i in range(60)]
    folder = write(tmp_path / "toy", nodes, edges)

    def rename():
        write(folder, [{**row, "label": {"a": "y", "b": "z"}[row["label"]]} for row in nodes], edges)

    same_as_fresh(lambda: f"{folder}#40", rename, tmp_path, method="pne")
    assert AttributedGraph.load(tmp_path / "after" / "graph").class_names == ["y", "z"]


def test_the_number_of_classes(tmp_path):
    """A class that no node has yet changes the GNN's outputs, although no label differs."""
    graphs = [planted(40, seed=0, num_classes=4).graph]
    before, after = same_as_fresh(
        lambda: graphs[0],
        lambda: graphs.insert(0, replace(graphs[0], class_names=[*graphs[0].class_names, "none yet"])),
        tmp_path,
        method="pne",
    )
    assert (before.logits.shape[1], after.logits.shape[1]) == (4, 5)


@pytest.mark.parametrize("name", ["labels", "edges", "split"])
def test_arrays_of_a_saved_graph(tmp_path, name):
    folder = planted(40, seed=0).graph.save(tmp_path / "saved")

    def spoil():
        array = np.load(folder / f"{name}.npy")
        np.save(folder / f"{name}.npy", array[..., ::-1].copy())

    before, after = same_as_fresh(lambda: str(folder), spoil, tmp_path, method="fne")
    assert before.stages != after.stages


def test_a_text_of_a_table(tmp_path):
    folder = write(tmp_path / "toy")
    before, after = same_as_fresh(
        lambda: str(folder), lambda: write(folder, changed(NODES, 0, text="other")), tmp_path, method="pne"
    )
    assert not np.array_equal(before.features[0], after.features[0])


@pytest.mark.parametrize("part", ["labels", "edges"])
def test_evaluation_nodes_in_inductive_joint_training(tmp_path, part):
    """The key of the jointly trained GNN's predictions lacked the whole graph."""
    graphs = [planted(60, seed=0).graph]

    def spoil():
        graph = graphs[0]
        evaluated = graph.split.roles > 0
        if part == "labels":
            labels = graph.labels.copy()
            labels[evaluated] = (labels[evaluated] + 1) % 10
            graphs.insert(0, replace(graph, labels=labels))
        else:
            kept = ~evaluated[graph.edges].any(0)
            graphs.insert(0, replace(graph, edges=graph.edges[:, kept]))

    before, after = same_as_fresh(
        lambda: graphs[0], spoil, tmp_path, method="joint-sage", setting="inductive", joint__epochs=1
    )
    assert before.stages["train"] == after.stages["train"]  # which sees train nodes only
    assert before.stages["gnn"] != after.stages["gnn"]


@pytest.mark.parametrize("kind", ["no manifest", "empty manifest", "no files", "truncated array"])
def test_broken_stages_are_made_again(tmp_path, kind, caplog):
    used = {"encoder": "tiny", "method": "pne", "cache": tmp_path / "cache", **QUICK}
    first = fit("planted:40", out=tmp_path / "a", **used)
    folder = tmp_path / "cache" / first.stages["encode"]
    for path in sorted(folder.rglob("*")):
        path.chmod(0o644)
    if kind == "no manifest":
        (folder / "stage.json").unlink()
    elif kind == "empty manifest":
        (folder / "stage.json").write_text("")
    elif kind == "no files":
        (folder / "values.npy").unlink()
    else:
        content = (folder / "values.npy").read_bytes()
        (folder / "values.npy").write_bytes(content[:-10])
    again = fit("planted:40", out=tmp_path / "b", **used)
    assert "is broken" in caplog.text
    assert "encode" not in again.cached
    np.testing.assert_array_equal(again.features, first.features)
