"""open_data: every graph is converted once, under a key of all that it is made of, and opened with its own keys."""

import json
from dataclasses import replace

import numpy as np
import pytest

from labeldeconv.data import opening
from labeldeconv.data.opening import open_data
from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import PARTS, AttributedGraph
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.stage import session
from tests.data.table_writing import NODES, changed, write

RING = [{"source": i, "target": (i + 1) % 40} for i in range(40)]


def unsplit(labels="ab"):
    """Forty nodes of two classes, without a split."""
    return [{"id": i, "text": "x", "label": labels[i % 2]} for i in range(40)]


def test_converted_once_and_memory_mapped(tmp_path, monkeypatch):
    folder = write(tmp_path / "toy", unsplit(), RING)
    first = open_data(str(folder))
    monkeypatch.setattr(opening.graph, "function", None)  # whoever converts again fails
    again = open_data(str(folder))
    assert again.graph.name == "toy"
    assert first.warnings == again.warnings
    assert "a stratified split was made with seed 0" in again.warnings[0]
    assert isinstance(again.graph.labels.base, np.memmap) or isinstance(again.graph.labels, np.memmap)
    with pytest.raises(TypeError):
        open_data(str(folder), seed=1)


def test_stages_are_kept_where_the_session_says(tmp_path):
    with session(Cache(tmp_path / "elsewhere")) as used:
        open_data("planted:60#40")
    assert [use.label for use in used.used] == ["graph", "part"]
    assert {kept.stage for kept in Cache(tmp_path / "elsewhere").stages()} == {"graph", "part"}
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    "name", ["planted:60", "planted-multilabel:60", "planted-protein:60", "planted-regression:60", "planted:60#40"]
)
def test_keys_are_those_of_the_arrays(name):
    graph = open_data(name).graph
    assert set(graph._keys) == set(PARTS)
    fresh = replace(graph)
    assert [graph.key_of(part) for part in PARTS] == [fresh.key_of(part) for part in PARTS]


def test_planted_by_name():
    assert open_data("planted:80").graph.content_key == open_data("planted:80", 0).graph.content_key
    assert open_data("planted:80", 1).graph.content_key != open_data("planted:80").graph.content_key
    assert open_data("planted-multilabel:80").graph.name == "planted-multilabel"
    assert open_data("planted").graph.content_key == open_data("planted:3000").graph.content_key


def test_parts_by_name():
    assert open_data("planted:400#90").graph.num_nodes == 90
    assert open_data("planted:400#90").graph.name.endswith("-90")
    whole = open_data("planted:60")
    assert open_data("planted:60#60").graph.name == open_data("planted:60#999").graph.name == whole.graph.name
    with pytest.raises(DataError, match=r"max-nodes: at least 4"):
        open_data("planted:60#2")


def test_a_part_keeps_the_warnings_of_the_whole(tmp_path):
    folder = write(tmp_path / "toy", unsplit(), RING)
    assert open_data(f"{folder}#30").warnings == open_data(str(folder)).warnings != []


def test_a_part_has_its_own_class_names(tmp_path):
    one, two = (write(tmp_path / c / "toy", unsplit(labels), RING) for c, labels in (("1", "ab"), ("2", "yz")))
    assert open_data(f"{one}#30").graph.class_names == ["a", "b"]
    assert open_data(f"{two}#30").graph.class_names == ["y", "z"]


@pytest.mark.parametrize("size", ["", "#30"])
def test_folders_of_equal_content_keep_their_names(tmp_path, size):
    one, two = (write(tmp_path / name, unsplit(), RING) for name in ("one", "two"))
    first, second = open_data(f"{one}{size}").graph, open_data(f"{two}{size}").graph
    assert (first.name, second.name) == (f"one{size.replace('#', '-')}", f"two{size.replace('#', '-')}")
    assert first.content_key == second.content_key  # so all that is computed from them is shared
    (two / "graph.toml").write_text('name = "three"')
    assert open_data(f"{two}{size}").graph.name.startswith("three")


def test_features_in_a_subfolder_are_noticed(tmp_path):
    folder = write(tmp_path / "toy", toml='features = "sub/f.npy"')
    (folder / "sub").mkdir()
    for value in (1.0, 2.0):
        np.save(folder / "sub" / "f.npy", np.full((6, 3), value))
        assert open_data(str(folder)).graph.features.tolist() == [[value] * 3] * 6


def test_a_changed_table_is_noticed(tmp_path):
    folder = write(tmp_path / "toy")
    first = open_data(str(folder)).graph
    write(folder, changed(NODES, 0, text="other"))
    second = open_data(str(folder)).graph
    assert second.texts[0] == "other"
    assert first.key_of("texts") != second.key_of("texts")
    assert first.key_of("edges") == second.key_of("edges")


def test_saved_graphs_are_opened_as_they_are(tmp_path, small_graph):
    folder = small_graph.save(tmp_path / "saved")
    loaded = open_data(str(folder))
    assert loaded.graph.name == "small"
    assert loaded.warnings == ["texts.bin and text_offsets.npy: 1 of 6 texts are empty: node 3"]
    assert loaded.graph.content_key == small_graph.content_key
    assert not (tmp_path / "cache").exists()


def test_arrays_edited_beside_graph_json_are_noticed(tmp_path, small_graph):
    folder = small_graph.save(tmp_path / "saved")
    card = json.loads((folder / "graph.json").read_text())
    keys = {part: small_graph.key_of(part) for part in PARTS}
    (folder / "graph.json").write_text(json.dumps({**card, "fingerprints": keys, "keys": keys}))
    first = open_data(str(folder)).graph.content_key
    labels = np.load(folder / "labels.npy")
    labels[5] = 0
    np.save(folder / "labels.npy", labels)
    edited = open_data(str(folder)).graph
    assert edited.content_key != first
    assert edited.key_of("labels") != small_graph.key_of("labels")
    assert edited.key_of("edges") == small_graph.key_of("edges")


def test_wrong_names_are_answered(tmp_path):
    with pytest.raises(DataError, match="data 'plantde': no such folder, and not a name; did you mean 'planted'"):
        open_data("plantde")
    with pytest.raises(DataError, match="data 'plantde:80': no such folder, and not a name; did you mean 'planted'"):
        open_data("plantde:80")
    with pytest.raises(DataError, match="a number of nodes, 4 to"):
        open_data("planted:2")
    with pytest.raises(DataError, match=r"no nodes table; one of nodes.parquet, nodes.csv, nodes.jsonl expected"):
        open_data(str(tmp_path))


def test_a_source_gives_the_same_graph_as_its_load(tmp_path):
    folder = write(tmp_path / "toy")
    source = opening.tables_source(folder)
    saved = opening.graph(source)
    assert saved.content_key == opening.graph.key(source)
    assert isinstance(saved.open().graph, AttributedGraph)
    assert saved.open().graph.content_key == source.load().graph.content_key
