"""graph.toml: columns that are named, guessed or missing, and settings that are wrong."""

import pytest

from labeldeconv.data.tables.folder import load_tables
from tests.data.table_writing import EDGES, FORMATS, NODES, changed, problems, same, write


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
