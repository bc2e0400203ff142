"""Own tables: three formats give one graph, every problem is told with its place, real graphs have known counts."""

import uuid
from pathlib import Path

import duckdb
import numpy as np
import pytest
from table_writing import EDGES, FORMATS, NODES, changed, problems, write

from labeldeconv.adjacency import Adjacency
from labeldeconv.data import table_arrays
from labeldeconv.data.tables import Loaded, fingerprint, is_tables, load_tables
from labeldeconv.errors import DataError
from labeldeconv.texts import Texts

SHARED = Path(__file__).parents[3] / "shared" / "data"


def same(a: Loaded, b: Loaded) -> None:
    for x, y in zip(
        (a.graph.labels, a.graph.edges, a.graph.split.roles),
        (b.graph.labels, b.graph.edges, b.graph.split.roles),
        strict=True,
    ):
        np.testing.assert_array_equal(x, y)
    assert list(a.graph.texts) == list(b.graph.texts)
    assert a.graph.class_names == b.graph.class_names
    assert list(a.graph.ids) == list(b.graph.ids)


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


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "ids",
    [
        [f"paper {i}" for i in range(6)],
        [str(uuid.UUID(int=i)) for i in range(6)],
        ["007", "7", "8", "9", "10", "é"],
        [-1, 2**62, 0, 5, 6, 7],
    ],
)
def test_ids_of_any_type(tmp_path, ids, kind):
    nodes = [{**row, "id": i} for row, i in zip(NODES, ids, strict=True)]
    edges = [{"source": ids[i], "target": ids[(i + 1) % 6]} for i in range(6)]
    graph = load_tables(write(tmp_path, nodes, edges, kind)).graph
    assert graph.edges.tolist() == [[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]]
    assert list(graph.ids) == ids
    assert isinstance(graph.ids, Texts) == isinstance(ids[0], str)


def test_float_endpoints_join_integer_ids(tmp_path):
    write(tmp_path, kind="parquet")
    duckdb.sql(f"COPY (SELECT 10.0::DOUBLE AS source, '11' AS target) TO '{tmp_path}/edges.parquet'")
    assert load_tables(tmp_path).graph.edges.tolist() == [[0], [1]]


@pytest.mark.parametrize(("n", "e"), [(500, 3000), (3000, 200)])
def test_order_of_rows_survives_chunks(tmp_path, monkeypatch, n, e):
    monkeypatch.setattr(table_arrays, "TEXT_ROWS", 64)
    monkeypatch.setattr(table_arrays, "EDGE_ROWS", 128)
    rng = np.random.default_rng(0)
    ids = rng.permutation(10 * n)[:n]
    nodes = [{"id": int(i), "text": f"é{i}", "label": int(i) % 12} for i in ids]
    ends = rng.integers(0, n, (2, e))
    edges = [{"source": int(ids[s]), "target": int(ids[t])} for s, t in ends.T]
    for kind in FORMATS:
        graph = load_tables(write(tmp_path / kind, nodes, edges, kind)).graph
        np.testing.assert_array_equal(graph.edges, ends)
        np.testing.assert_array_equal(graph.ids, ids)
        assert list(graph.texts) == [f"é{i}" for i in ids]
        assert graph.class_names == [str(c) for c in range(12)]  # in the order of numbers, not 0, 1, 10, 11, 2
        np.testing.assert_array_equal(graph.labels, ids % 12)


def test_missing_split_is_made_with_the_seed_and_said(tmp_path):
    nodes = [{"id": i, "text": "x", "label": i % 2} for i in range(40)]
    edges = [{"source": i, "target": (i + 1) % 40} for i in range(40)]
    write(tmp_path, nodes, edges)
    first, again, other = (load_tables(tmp_path, seed) for seed in (1, 1, 2))
    assert first.warnings == [
        "nodes.csv: no split column; a stratified split was made with seed 1: 60% train (24), 20% val (8), 20% test (8)"
    ]
    np.testing.assert_array_equal(first.graph.split.roles, again.graph.split.roles)
    assert (first.graph.split.roles != other.graph.split.roles).any()


def test_split_values(tmp_path):
    words = ["Training", " TRAIN", "Dev", "valid", "TEST", None]
    nodes = [{**row, "split": word} for row, word in zip(NODES, words, strict=True)]
    assert load_tables(write(tmp_path / "a", nodes)).graph.split.roles.tolist() == [0, 0, 1, 1, 2, -1]
    nodes = [{**row, "split": value} for row, value in zip(NODES, (0, 0, 1, 1, 2, 3), strict=True)]
    write(tmp_path / "b", nodes, toml='[split_values]\ntrain = 0\nval = 1\ntest = ["2", "3"]')
    assert load_tables(tmp_path / "b").graph.split.roles.tolist() == [0, 0, 1, 1, 2, 2]
    told = problems(write(tmp_path / "c", changed(NODES, 1, split="trian")))[0]
    assert "nodes.csv, column 'split': 1 cells name no part of the split: line 3 ('trian')" in told
    assert "val, valid, validation, dev for val" in told


def test_unlabelled_nodes(tmp_path):
    loaded = load_tables(write(tmp_path, changed(NODES, 1, label=None)))
    assert loaded.graph.labels.tolist() == [0, -1, 0, 1, 0, 1]
    assert loaded.graph.split.roles.tolist() == [0, -1, 1, 1, 2, 2]
    assert "nodes.csv, column 'split': 1 nodes have no label and are left out: line 3 ('11')" in loaded.warnings[0]
    assert "1 classes of val or test are absent from train: 'b'" in loaded.warnings[1]


@pytest.mark.parametrize("kind", FORMATS)
def test_texts_of_several_columns(tmp_path, kind):
    nodes = [{**{k: v for k, v in row.items() if k != "text"}, "title": "T'", "abstract": "A"} for row in NODES]
    nodes = changed(changed(nodes, 1, title=None), 2, title=None, abstract=None)
    guessed = load_tables(write(tmp_path / "guess", nodes, kind=kind))
    assert list(guessed.graph.texts)[:3] == ["T' A", "A", ""]
    assert "text is made of the columns title, abstract" in guessed.warnings[0]
    write(tmp_path / "join", nodes, kind=kind, toml='text = ["abstract", "title"]\njoin = " | "')
    assert list(load_tables(tmp_path / "join").graph.texts)[:3] == ["A | T'", "A", ""]
    write(tmp_path / "template", nodes, kind=kind, toml='join = "Title: {title} {{it\'s}} Abstract: {abstract}"')
    assert list(load_tables(tmp_path / "template").graph.texts)[:3] == [
        "Title: T' {it's} Abstract: A",
        "Title:  {it's} Abstract: A",
        "",
    ]


@pytest.mark.parametrize("kind", FORMATS)
def test_multilabel_forms_are_equal(tmp_path, kind):
    tags = [["x", "y"], ["y"], ["x"], None, ["y", "x"], ["x"]]
    base = [{k: v for k, v in row.items() if k != "label"} for row in NODES]
    expected = [[1, 1], [0, 1], [1, 0], [-1, -1], [1, 1], [1, 0]]
    columns = [
        {**row, "x": x if x >= 0 else None, "y": y if y >= 0 else None}
        for row, (x, y) in zip(base, expected, strict=True)
    ]
    joined = [{**row, "tags": t and "; ".join(t)} for row, t in zip(base, tags, strict=True)]
    write(tmp_path / "columns", columns, kind=kind, toml='label = ["x", "y"]')
    write(tmp_path / "joined", joined, kind=kind, toml='label = "tags"\nlabel_separator = ";"')
    folders = [tmp_path / "columns", tmp_path / "joined"]
    if kind != "csv":
        lists = [{**row, "tags": t} for row, t in zip(base, tags, strict=True)]
        folders.append(write(tmp_path / "lists", lists, kind=kind, toml='label = "tags"'))
    for folder in folders:
        graph = load_tables(folder).graph
        assert graph.task == "multilabel"
        assert graph.class_names == ["x", "y"]
        assert graph.labels.tolist() == expected
        assert graph.split.roles.tolist() == [0, 0, 1, -1, 2, 2]


def test_labels_of_floats_are_whole_numbers(tmp_path):
    write(tmp_path, kind="parquet")
    rows = f"SELECT id, text, if(label = 'a', 10, 9)::DOUBLE AS label, split FROM '{tmp_path}/nodes.parquet'"
    duckdb.sql(f"COPY ({rows}) TO '{tmp_path}/floats.parquet'")
    (tmp_path / "floats.parquet").replace(tmp_path / "nodes.parquet")
    graph = load_tables(tmp_path).graph
    assert graph.class_names == ["9", "10"]
    assert graph.labels.tolist() == [1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize("kind", FORMATS)
def test_features(tmp_path, kind):
    nodes = [{**row, "u": i, "v": i / 2} for i, row in enumerate(NODES)]
    edges = [{**row, "w": 0.5} for row in EDGES]
    write(
        tmp_path,
        nodes,
        edges,
        kind,
        'features = ["u", "v"]\nedge_features = "w"\nname = "n"\nattributes = "sequence"\ntext = "text"',
    )
    graph = load_tables(tmp_path).graph
    np.testing.assert_array_equal(graph.features, [[i, i / 2] for i in range(6)])
    np.testing.assert_array_equal(graph.edge_features, [[0.5]] * 6)
    assert graph.features.dtype == np.float32
    assert (graph.name, graph.attributes) == ("n", "sequence")


def test_features_file(tmp_path):
    write(tmp_path)
    np.save(tmp_path / "features.npy", np.ones((6, 2), np.float32))
    loaded = load_tables(tmp_path)
    assert loaded.graph.features.shape == (6, 2)
    assert "features.npy: taken for the given features" in loaded.warnings[0]
    (tmp_path / "graph.toml").write_text('features = "x.npy"')
    assert "x.npy: cannot be read" in problems(tmp_path)[0]
    np.save(tmp_path / "x.npy", np.ones((5, 2)))
    assert "x.npy: numbers of shape (6, d) expected, one row per node, got float64 (5, 2)" in problems(tmp_path)[0]
    x = np.ones((6, 2))
    x[3, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    assert "x.npy: 1 rows hold values that are not finite numbers: row 4" in problems(tmp_path)[0]


def test_bad_features(tmp_path):
    nodes = [{**row, "u": u} for row, u in zip(NODES, (1, None, "nan", "x", "inf", 6), strict=True)]
    edges = changed([{**row, "w": 1} for row in EDGES], 2, w="?")
    told = problems(write(tmp_path, nodes, edges, toml='features = "u"\nedge_features = "w"'))
    assert "nodes.csv, column 'u': 4 cells are not finite numbers: line 3, line 4, line 5, line 6" in told
    assert "edges.csv, column 'w': 1 cells are not finite numbers: line 4" in told


def test_columns_are_guessed_and_said(tmp_path):
    nodes = [{"node_id": r["id"], "Text": r["text"], "y": r["label"], "split": r["split"]} for r in NODES]
    edges = [{"src": r["source"], "dst": r["target"]} for r in EDGES]
    loaded = load_tables(write(tmp_path, nodes, edges))
    same(loaded, load_tables(write(tmp_path / "plain")))
    told = "\n".join(loaded.warnings)
    for column, role in (("node_id", "id"), ("y", "label"), ("src", "source"), ("dst", "target")):
        assert f"column '{column}' is taken for the {role}" in told


def test_missing_columns_are_told_with_the_nearest(tmp_path):
    told = problems(write(tmp_path, toml='id = "idd"\nlabel = ["lable", "text"]\ntarget = "targt"'))
    assert "nodes.csv: no column 'idd'; did you mean 'id'? known: id, label, split, text" in told
    assert "nodes.csv: no column 'lable'; did you mean 'label'? known: id, label, split, text" in told
    assert "edges.csv: no column 'targt'; did you mean 'target'? known: source, target" in told
    nodes = [{"name": 1, "words": "x", "kind": "a"}]
    told = problems(write(tmp_path / "none", nodes))
    assert [t.split(";")[0] for t in told] == [f"nodes.csv: no column '{c}'" for c in ("id", "text", "label")]


def test_wrong_settings_are_told_at_once(tmp_path):
    toml = 'idd = "x"\ntext = 3.5\nlabel = 3\njoin = "{title"\ndelimiter = "ab"\n[split_values]\ntrian = "x"'
    told = problems(write(tmp_path, toml=toml))
    assert len(told) == len(set(told))
    text = "\n".join(told)
    for part in (
        "graph.toml: idd: unknown setting; did you mean 'id'?",
        "graph.toml: text: input should be a valid string, got 3.5",
        "graph.toml: label: ",
        "graph.toml: join: expected '}' before end of string, got '{title'",
        "graph.toml: delimiter: ",
        "graph.toml: split_values.trian: unknown setting; did you mean 'train'?",
    ):
        assert part in text
    (told,) = problems(write(tmp_path / "toml", toml="id = "))
    assert told.startswith("graph.toml: not valid TOML")
    told = problems(write(tmp_path / "template", toml='text = ["split"]\njoin = "{text}!"'))
    assert "the template in join does not use the text column 'split'" in told[0]


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


def test_fingerprint_follows_content_and_seed(tmp_path):
    write(tmp_path)
    first = fingerprint(tmp_path)
    assert fingerprint(tmp_path) == first
    assert fingerprint(tmp_path, seed=1) != first
    (tmp_path / "notes.txt").write_text("x")
    assert fingerprint(tmp_path) == first
    (tmp_path / "graph.toml").write_text('name = "x"')
    second = fingerprint(tmp_path)
    write(tmp_path, changed(NODES, 0, text="other"))
    assert len({first, second, fingerprint(tmp_path)}) == 3


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "classes", "isolated"),
    [("citeseer", 3186, 4225, 6, None), ("stacks", 16860, 43243, 111, 1508)],
)
def test_real_graphs(name, nodes, edges, classes, isolated):
    if not (SHARED / name).is_dir():
        pytest.skip(f"{SHARED / name} is absent")
    loaded = load_tables(SHARED / name)
    graph = loaded.graph
    assert (graph.num_nodes, graph.num_classes) == (nodes, classes)
    assert len(Adjacency.from_edges(graph.edges, nodes).indices) - (isolated or 86) == 2 * edges
    if isolated:
        assert any(f"{isolated:d} isolated nodes" in warning for warning in loaded.warnings)
    assert graph.ids.take(np.array([0]))[0] in ("norman00argument", "06Z4")
    assert all(graph.texts.take(np.arange(5)))
