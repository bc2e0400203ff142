"""Own tables: three formats give one graph, every problem is told with its place, real graphs have known counts."""

import numpy as np
import pytest

from labeldeconv.data.tables.folder import is_tables, load_tables, tables_source
from labeldeconv.errors import DataError
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.stages.keys import digest, token
from tests.data.table_writing import FORMATS, NODES, changed, problems, same, write
from tests.samples import real_data


@pytest.mark.parametrize("kind", FORMATS)
def test_small_graph(tmp_path, kind):
    loaded = load_tables(write(tmp_path / "toy", kind=kind))
    graph = loaded.graph
    assert loaded.warnings == []
    assert graph.name == "toy"
    assert list(graph.texts) == [f"text {i}" for i in range(6)]
    assert graph.ids.dtype == np.int64
    assert graph.ids.tolist() == [10, 11, 12, 13, 14, 15]
    assert graph.edges.tolist() == [[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]]
    assert graph.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert graph.class_names == ["a", "b"]
    assert graph.split.roles.tolist() == [0, 0, 1, 1, 2, 2]


def test_formats_are_equal_for_awkward_text(tmp_path):
    texts = ['comma, "quote"', "line\nbreak", "näïve ☃ 𝄞", "", None, "tab\tend"]
    nodes = [{**row, "text": text} for row, text in zip(NODES, texts, strict=True)]
    parquet, lines, commas = (
        load_tables(write(tmp_path / kind, nodes, kind=kind)) for kind in ("parquet", "jsonl", "csv")
    )
    assert list(parquet.graph.texts) == [text or "" for text in texts]
    same(parquet, lines)
    same(parquet, commas)
    assert "2 texts are empty or missing: row 4 ('13'), row 5 ('14')" in parquet.warnings[0]
    assert "line 4 ('13'), line 5 ('14')" in lines.warnings[0]
    assert "row 4 ('13')" in commas.warnings[0]  # a text has a line break: rows are not lines


def test_files(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        load_tables(tmp_path / "nowhere")
    told = problems(tmp_path)
    assert "no nodes table; one of nodes.parquet, nodes.csv, nodes.jsonl expected" in told[0]
    assert "no edges table" in told[1]
    assert not is_tables(tmp_path)
    write(tmp_path)
    assert is_tables(tmp_path)
    write(tmp_path, kind="parquet")
    (tmp_path / "edges.csv").write_text("")
    (tmp_path / "edges.parquet").unlink()
    told = problems(tmp_path)
    assert "nodes.parquet and nodes.csv are both there; keep one" in told[0]
    assert told[1] == "edges.csv: the file is empty"


def test_folder_with_special_characters(tmp_path):
    for kind in FORMATS:
        assert load_tables(write(tmp_path / f"it's [1]* {kind}", kind="csv")).graph.num_nodes == 6


def key(folder, seed=0):
    return digest(token(tables_source(folder, seed)))


def test_key_follows_content_and_seed(tmp_path):
    write(tmp_path)
    first = key(tmp_path)
    assert key(tmp_path) == first
    assert key(tmp_path, seed=1) != first
    (tmp_path / "notes.txt").write_text("x")
    assert key(tmp_path) == first
    (tmp_path / "graph.toml").write_text('name = "x"')
    second = key(tmp_path)
    write(tmp_path, changed(NODES, 0, text="other"))
    assert len({first, second, key(tmp_path)}) == 3


def test_key_holds_a_features_file_in_a_subfolder(tmp_path):
    write(tmp_path, toml='features = "sub/f.npy"')
    keys = {key(tmp_path)}
    (tmp_path / "sub").mkdir()
    for value in (0.0, 1.0):
        np.save(tmp_path / "sub" / "f.npy", np.full((6, 2), value, np.float32))
        keys.add(key(tmp_path))
        assert load_tables(tmp_path).graph.features[0, 0] == value
    assert len(keys) == 3


def test_key_holds_no_features_that_are_not_read(tmp_path):
    write(tmp_path, [{**row, "u": 1} for row in NODES], toml='features = "u"')
    first = key(tmp_path)
    np.save(tmp_path / "features.npy", np.ones((6, 2)))
    assert key(tmp_path) == first
    (tmp_path / "graph.toml").unlink()
    second = key(tmp_path)
    np.save(tmp_path / "features.npy", np.zeros((6, 2)))
    assert len({first, second, key(tmp_path)}) == 3


def test_key_holds_the_name(tmp_path):
    one, two = (write(tmp_path / name) for name in ("one", "two"))
    assert key(one) != key(two)
    assert tables_source(one).files.content_key == tables_source(two).files.content_key
    for folder in (one, two):
        (folder / "graph.toml").write_text('name = "same"')
    assert key(one) == key(two)


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "classes", "isolated", "first"),
    [("citeseer", 3186, 4225, 6, 86, "norman00argument"), ("stacks", 16860, 43243, 111, 1508, "06Z4")],
)
def test_real_graphs(name, nodes, edges, classes, isolated, first):
    loaded = load_tables(real_data(name))
    graph = loaded.graph
    assert (graph.num_nodes, graph.num_classes) == (nodes, classes)
    assert len(Adjacency.from_edges(graph.edges, nodes).indices) - isolated == 2 * edges
    assert [f"{isolated:d} isolated nodes" in warning for warning in loaded.warnings].count(True) == 1
    assert graph.ids.take(np.array([0]))[0] == first
    assert all(graph.texts.take(np.arange(5)))
