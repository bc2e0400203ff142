"""Tables of new nodes: the columns and the joining of the run's own tables, in every format, with rows in messages."""

import json
from dataclasses import replace

import duckdb
import numpy as np
import pytest

from labeldeconv import AttributedGraph
from labeldeconv.data.tables.folder import load_tables
from labeldeconv.errors import DataError
from labeldeconv.prediction.new_tables import read_new_nodes
from labeldeconv.prediction.numbering import Numbers

NODES = (
    "paper,title,abstract,venue,split\n1,Red,apples,a,train\n2,Blue,,b,train\n3,Green,pears,a,val\n4,Gold,x,b,test\n"
)
EDGES = "citing,cited,year,weight\n1,2,3,0.5\n2,3,4,1\n"
GRAPH = 'id = "paper"\ntext = ["title", "abstract"]\njoin = "{title}: {abstract}"\nlabel = "venue"\n'
GRAPH += 'source = "citing"\ntarget = "cited"\nedge_features = ["year", "weight"]\n'


@pytest.fixture
def known(tmp_path):
    """Four papers from tables, saved and opened again, as a run keeps them."""
    folder = tmp_path / "tables"
    folder.mkdir()
    for name, text in (("nodes.csv", NODES), ("edges.csv", EDGES), ("graph.toml", GRAPH)):
        (folder / name).write_text(text)
    load_tables(folder).graph.save(tmp_path / "graph")
    return Numbers(AttributedGraph.load(tmp_path / "graph"))


def written(path, rows):
    """Rows (dictionaries) in the format of a file's ending."""
    names = list(rows[0])
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        some = path.with_suffix(".jsonl")
        written(some, rows)
        duckdb.sql(f"COPY (SELECT * FROM read_json('{some}')) TO '{path}'")
    else:
        sign = "\t" if path.suffix == ".tsv" else ","
        lines = [names, *[["" if row[name] is None else str(row[name]) for name in names] for row in rows]]
        path.write_text("".join(sign.join(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "jsonl"])
def test_formats(known, tmp_path, ending):
    nodes = [{"paper": 10, "title": "New", "abstract": "things"}, {"paper": 11, "title": None, "abstract": None}]
    edges = [{"citing": 10, "cited": 1, "year": 5, "weight": 0.25}, {"citing": 11, "cited": 10, "year": 6, "weight": 1}]
    paths = written(tmp_path / f"n.{ending}", nodes), written(tmp_path / f"e.{ending}", edges)
    new = read_new_nodes(*paths, known, edge_dim=2)
    assert new.ids == ["10", "11"]
    assert new.texts == ["New: things", ""]
    assert new.edges.tolist() == [[4, 5], [0, 4]]
    np.testing.assert_array_equal(new.edge_values, [[5, 0.25], [6, 1]])
    alone = read_new_nodes(paths[0], None, known)
    assert (alone.edges.shape, alone.edge_values) == ((2, 0), None)
    assert read_new_nodes(*paths, known).edge_values is None  # a GNN that reads none asks for none


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ("paper,title\n9,x\n", None, r"n.csv: no column 'abstract'"),
        ("id,title,abstract\n9,x,y\n", None, r"n.csv: no column 'paper'"),
        ("paper,title,abstract\n", None, r"n.csv: no rows"),
        ("", None, r"n.csv: the file is empty"),
        ("paper,title,abstract\n1,x,y\n", None, r"n.csv: 1 ids are in the run's graph already; .*: line 2 \('1'\)"),
        ("paper,title,abstract\n8,x,y\n8,z,z\n", None, r"n.csv: 1 ids occur more than once: line 3 \('8'\)"),
        ("paper,title,abstract\n8,x,y\n", "citing,cited,year,weight\n8,1,1,1\n8,77,1,1\n", r"line 3 \('77'\)"),
        ("paper,title,abstract\n8,x,y\n", "citing,cited,year,weight\n8,1,1,nan\n", r"'weight': 1 cells .*: line 2"),
        ("paper,title,abstract\n8,x,y\n", "citing,cited,year\n8,1,1\n", r"e.csv: no column 'weight'"),
        ("paper,title,abstract\n8,x,y\n", "from,cited,year,weight\n8,1,1,1\n", r"e.csv: no column 'citing'"),
    ],
)  # fmt: skip
def test_mistakes(known, tmp_path, nodes, edges, message):
    (tmp_path / "n.csv").write_text(nodes)
    if edges is not None:
        (tmp_path / "e.csv").write_text(edges)
    with pytest.raises(DataError, match=message):
        read_new_nodes(tmp_path / "n.csv", None if edges is None else tmp_path / "e.csv", known, edge_dim=2)


def test_files_that_are_not_there(known, tmp_path):
    with pytest.raises(DataError, match=r"n\.xlsx: a file that ends in .parquet, .csv, .tsv, .jsonl expected"):
        read_new_nodes(tmp_path / "n.xlsx", None, known)
    with pytest.raises(DataError, match=r"n\.csv: no such file"):
        read_new_nodes(tmp_path / "n.csv", None, known)


def test_a_graph_without_tables_guesses(small_graph, tmp_path):
    (tmp_path / "n.csv").write_text("node,title,body\na,x,y\n")
    (tmp_path / "e.csv").write_text("src,dst\na,5\n")
    new = read_new_nodes(tmp_path / "n.csv", tmp_path / "e.csv", Numbers(small_graph))
    assert (new.ids, new.texts, new.edges.tolist()) == (["a"], ["x y"], [[6], [5]])


def test_records(small_graph, tmp_path):
    from labeldeconv import record_texts

    texts = record_texts({"title": list("abcdef"), "price": [1, 2, 3, 4, 5, None]})
    (tmp_path / "n.csv").write_text("id,price,title\nx,7,new\ny,,\n")
    new = read_new_nodes(tmp_path / "n.csv", None, Numbers(replace(small_graph, texts=texts, attributes="record")))
    assert [json.loads(text) for text in new.texts] == [{"title": "new", "price": "7"}, {"title": None, "price": None}]


def test_given_features(small_graph, tmp_path):
    columns = {"features": ["a", "b"]}
    known = Numbers(replace(small_graph, columns=columns))
    (tmp_path / "n.csv").write_text("id,a,b\nx,1,2\n")
    new = read_new_nodes(tmp_path / "n.csv", None, known, reads_features=True)
    assert new.texts is None
    np.testing.assert_array_equal(new.features, [[1, 2]])
    (tmp_path / "n.csv").write_text("id,a,b\nx,1,inf\n")
    with pytest.raises(DataError, match="column 'b': 1 cells are not finite"):
        read_new_nodes(tmp_path / "n.csv", None, known, reads_features=True)
    np.save(tmp_path / "f.npy", np.ones((1, 3)))
    new = read_new_nodes(tmp_path / "n.csv", None, known, reads_features=True, features=tmp_path / "f.npy")
    assert new.features.shape == (1, 3)
    np.save(tmp_path / "f.npy", np.ones((2, 3)))
    with pytest.raises(DataError, match=r"shape \(1, d\) expected"):
        read_new_nodes(tmp_path / "n.csv", None, known, reads_features=True, features=tmp_path / "f.npy")
    with pytest.raises(DataError, match=r"give those of the new nodes as a .npy file"):
        read_new_nodes(tmp_path / "n.csv", None, Numbers(small_graph), reads_features=True)
