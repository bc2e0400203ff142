"""Data with anything in them: every file is a graph that passes its own checks, or is refused in words."""

import csv
import gzip
import io
import json
import pickle
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import tomli_w
import torch
from hypothesis import given
from hypothesis import strategies as st

from labeldeconv.data.catalog import folder_source
from labeldeconv.data.origin import Files
from labeldeconv.data.sets.conllu import load_treebank, treebank_files
from labeldeconv.data.sets.debian import debian_files, load_debian
from labeldeconv.data.sets.fasta import read_fasta
from labeldeconv.data.sets.ogb.layout import ARXIV
from labeldeconv.data.sets.ogb.raw_graph import load_ogb, ogb_files
from labeldeconv.data.sets.pyg_files import load_pyg
from labeldeconv.data.tables.folder import load_tables
from labeldeconv.data.tables.graph_toml import TablesConfig
from labeldeconv.graph.attributed import FILES, AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.texts import Texts
from tests.data.sets.pyg_writing import cora
from tests.data.table_writing import EDGES, NODES, write
from tests.fuzz.cases import fuzzed, json_value, text, told, value


def place():
    return tempfile.TemporaryDirectory(prefix="labeldeconv-fuzz-")


def sound(loaded) -> None:
    """What was accepted is a graph that can be saved, and that is the same when it is opened again."""
    if loaded is None:
        return
    loaded.graph.check()
    with place() as folder:
        again = AttributedGraph.load(loaded.graph.save(folder))
    assert again.content_key == loaded.graph.content_key


columns = st.sampled_from(["id", "text", "label", "split", "x", "source", "target", "Label", ""])
node = st.fixed_dictionaries({"id": value, "text": text, "label": value}, optional={"split": value, "x": value})
edge = st.fixed_dictionaries({"source": value, "target": value}, optional={"x": value})
settings = st.fixed_dictionaries(
    {},
    optional={
        "name": text, "label": columns | st.lists(columns, max_size=2), "label_separator": text, "join": text,
        "features": columns, "edge_features": columns, "delimiter": text,
        "attributes": st.sampled_from(["record", "text", "x"]),
    },
)  # fmt: skip
shaped = st.sampled_from(["plain", "bom", "crlf", "utf16", "cut", "gz", "latin"])


def encoded(content: str, shape: str) -> bytes:
    plain = content.encode("utf-8", "surrogatepass")
    if shape == "crlf":
        return plain.replace(b"\n", b"\r\n")
    if shape == "utf16":
        return content.encode("utf-16", "surrogatepass")
    if shape == "latin":
        return content.encode("latin-1", "replace") + b"\xe9"
    return {"bom": b"\xef\xbb\xbf" + plain, "cut": plain[: len(plain) // 2], "gz": gzip.compress(plain)}.get(
        shape, plain
    )


def as_csv(rows, delimiter: str) -> str:
    out = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(out, names, delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


@fuzzed("tables")
@given(
    st.lists(node, max_size=4), st.lists(edge, max_size=3), st.sampled_from(["csv", "tsv", "jsonl"]), shaped, settings
)
def test_tables(nodes, edges, kind, shape, toml):
    with place() as folder:
        for name, rows in (("nodes", [*NODES, *nodes]), ("edges", [*EDGES, *edges])):
            if kind == "jsonl":
                content = "".join(json.dumps(row) + "\n" for row in rows)
            else:
                content = as_csv(rows, "\t" if kind == "tsv" else ",")
            path = Path(folder) / f"{name}.{'jsonl' if kind == 'jsonl' else 'csv'}"
            path.write_bytes(encoded(content, shape if name == "nodes" else "plain"))
        if kind == "tsv":
            toml = {**toml, "delimiter": "\t"}
        if toml:
            (Path(folder) / "graph.toml").write_bytes(encoded(tomli_w.dumps(toml), "plain"))
        sound(told("tables", lambda: load_tables(folder)))


types = st.sampled_from(
    ["i::HUGEINT", "[i]", "{'a': i}", "map([i], [i])", "i::UBIGINT", "(i / 0.0)", "i::DECIMAL(38, 2)", "NULL",
     "DATE '2020-01-01'", "'\\x00'::BLOB", "[[i]]", "i % 2 = 0", "'nan'::DOUBLE", "i::VARCHAR", "uuid()",
     "'1e400'::VARCHAR", "i::DOUBLE"]
)  # fmt: skip


@fuzzed("parquet")
@given(types, types, types, types)
def test_parquet(node_id, label, feature, end):
    with place() as folder:
        write(Path(folder), kind="csv", toml='features = ["x"]')
        (Path(folder) / "nodes.csv").unlink()
        cells = f"{node_id} AS id, 'text' AS text, {label} AS label, {feature} AS x"
        duckdb.sql(f"COPY (SELECT {cells} FROM range(8) t(i)) TO '{folder}/nodes.parquet'")
        (Path(folder) / "edges.csv").unlink()
        duckdb.sql(f"COPY (SELECT {end} AS source, i AS target FROM range(4) t(i)) TO '{folder}/edges.parquet'")
        sound(told("parquet", lambda: load_tables(folder)))


@fuzzed("toml")
@given(
    st.dictionaries(st.sampled_from([*TablesConfig.model_fields, "x"]), json_value, max_size=3), st.binary(max_size=30)
)
def test_graph_toml(values, raw):
    def without_none(held):
        if isinstance(held, dict):
            return {k: without_none(v) for k, v in held.items() if v is not None}
        return [without_none(v) for v in held if v is not None] if isinstance(held, list) else held

    with place() as folder:
        write(Path(folder))
        for content in (tomli_w.dumps(without_none(values)).encode("utf-8", "surrogatepass"), raw):
            (Path(folder) / "graph.toml").write_bytes(content)
            sound(told("toml", lambda: load_tables(folder)))


lines = st.lists(
    st.binary(max_size=12) | st.sampled_from([b">a", b">b x", b">", b"ACDEFG", b"acj*", b"", b" ", b"\xff", b"1"])
)


@fuzzed("fasta")
@given(lines, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.booleans())
def test_fasta(rows, end, packed):
    with place() as folder:
        path = Path(folder) / "x.fa"
        content = end.join(rows)
        path.write_bytes(gzip.compress(content)[: None if len(rows) % 2 else -3] if packed else content)
        found = told("fasta", lambda: read_fasta(path))
        if found is not None:
            assert all(name and sequence.isascii() for name, sequence in found.by_name.items())


fields = st.sampled_from(
    [b"Package: a", b"Package: b", b"Package:", b"Section: x/net", b"Section: y", b"Depends: b, c | a (>= 1)",
     b"Tag: x::y, z", b"Description: a", b"Description-md5: 1", b"Description-en: long", b" more", b" .", b"", b"",
     b"Source: s (1)", b"nothing"]
)  # fmt: skip


@fuzzed("debian")
@given(st.lists(fields | st.binary(max_size=10), max_size=14), st.lists(fields, max_size=6), st.booleans())
def test_debian_packages(index, translation, tags):
    with place() as folder:
        (Path(folder) / "Packages").write_bytes(b"\n".join(index))
        (Path(folder) / "Translation-en").write_bytes(b"\n".join(translation))
        loaded = told("debian", lambda: load_debian(debian_files(Path(folder)), tags))
        if loaded is not None:
            told("debian", lambda: loaded.graph.check() or sound(loaded))


cell = st.sampled_from(
    ["_", "", "1", "2", "3", "0", "-1", "1-2", "2.1", "-", ".", "x", "9" * 30, "9" * 5000, "nsubj", "a:b", ":", "root",
     "²", "\x00", "\ufeff", "word"]
) | st.text(max_size=6)  # fmt: skip
row = st.lists(cell, min_size=9, max_size=11).map("\t".join)
good = st.builds(
    lambda number, head, relation: f"{number}\tword{number}" + "\t_" * 4 + f"\t{head}\t{relation}\t_\t_",
    st.integers(1, 3) | cell, st.integers(0, 3) | cell, st.sampled_from(["root", "nsubj", "obj:x", "_"]),
)  # fmt: skip


@fuzzed("conllu")
@given(st.lists(good | row | st.sampled_from(["", "# text = x", " ", "#"]), max_size=12), shaped, st.booleans())
def test_conllu(rows, shape, twice):
    with place() as folder:
        name = "a.conllu.gz" if shape == "gz" else "a.conllu"
        content = encoded("\n".join(rows), shape)
        (Path(folder) / name).write_bytes(content)
        if twice:
            (Path(folder) / "b.conllu").write_bytes(encoded("\n".join(rows), "plain"))
        loaded = told("conllu", lambda: load_treebank(treebank_files(Path(folder))))
        if loaded is not None:
            told("conllu", lambda: loaded.graph.check() or sound(loaded))


OGB = {
    "raw/edge.csv": b"0,1\n1,2\n2,3\n",
    "raw/node-label.csv": b"0\n1\n2\n3\n",
    "raw/node-feat.csv": b"\n".join([b",".join([b"0.5"] * 128)] * 4),
    "split/time/train.csv": b"0\n1\n",
    "split/time/valid.csv": b"2\n",
    "split/time/test.csv": b"3\n",
    "mapping/nodeidx2paperid.csv": b"node idx,paper id\n0,10\n1,11\n2,12\n3,13\n",
    "titleabs.tsv": b"".join(b"%d\ttitle\tabstract\n" % i for i in range(10, 14)),
}
SPLICES = [
    b"",
    b"nan",
    b"inf",
    b"-1",
    b"9" * 30,
    b"1e300",
    b"0.5",
    b",",
    b"\n",
    b"\t",
    b'"',
    b"\x00",
    b"\xff",
    b"x",
    b"\r\n",
]


@fuzzed("ogb")
@given(st.sampled_from(sorted(OGB)), st.integers(0, 10**6), st.sampled_from(SPLICES), st.integers(0, 9))
def test_ogb_raw_files(name, at, splice, cut):
    with place() as folder:
        for other, content in OGB.items():
            path = Path(folder) / other
            path.parent.mkdir(parents=True, exist_ok=True)
            at_byte = at % (len(content) + 1)
            path.write_bytes(content if other != name else content[:at_byte] + splice + content[at_byte + cut :])
        sound(told("ogb", lambda: load_ogb(ARXIV, ogb_files(ARXIV, Path(folder)))))


PICKLED = pickle.dumps(
    {name: v.numpy() if hasattr(v, "numpy") else v for name, v in cora().to_dict().items()}, protocol=4
)
TORCH = io.BytesIO()
torch.save(cora(), TORCH)


@fuzzed("pickled")
@given(st.booleans(), st.integers(0, 10**6), st.binary(max_size=6) | st.sampled_from(SPLICES), st.integers(0, 9))
def test_pickled_graphs(zipped, at, splice, cut):
    content = TORCH.getvalue() if zipped else PICKLED
    at_byte = at % (len(content) + 1)
    with place() as folder:
        path = Path(folder) / f"cora.{'pt' if zipped else 'pkl'}"
        path.write_bytes(content[:at_byte] + splice + content[at_byte + cut :])
        sound(told("pickled", lambda: checked(load_pyg(Files(path.parent, {"graph": path})))))


SINGLE = {
    "a.csv": b"category,text,label,node_id,neighbour\n"
    + b"".join(b'x%d,t,%d,%d,"[1, 2]"\n' % (i % 2, i % 2, i) for i in range(6)),
    "a.graphml": b'<graphml><key id="t" for="node" attr.name="text"/><key id="l" for="node" attr.name="label"/><graph>'
    + b"".join(b'<node id="%d"><data key="t">t</data><data key="l">%d</data></node>' % (i, i % 2) for i in range(6))
    + b'<edge source="1" target="2"/></graph></graphml>',
    "a.json": json.dumps(
        {"nodes": [{"id": i, "text": "t", "label": i % 2} for i in range(6)], "links": [{"source": 1, "target": 2}]}
    ).encode(),
}


@fuzzed("single")
@given(st.sampled_from(sorted(SINGLE)), st.integers(0, 10**6), st.sampled_from(SPLICES), st.integers(0, 9))
def test_graphs_of_one_file(name, at, splice, cut):
    content = SINGLE[name]
    at_byte = at % (len(content) + 1)
    with place() as folder:
        path = Path(folder) / name
        path.write_bytes(content[:at_byte] + splice + content[at_byte + cut :])
        source = folder_source(path)
        if source is not None:  # without its own marks a file is of no known format
            sound(told("single", source.load))


def checked(loaded):
    """What `open_data` does with every graph that a source has made."""
    loaded.graph.check()
    return loaded


def saved(folder) -> Path:
    AttributedGraph(
        Texts.from_strings(["a", "é", "", "d"]),
        np.array([[0, 1], [1, 3]]),
        np.array([0, 1, 0, 1]),
        Split(np.array([0, 0, 1, 2], np.int8)),
        ["x", "y"],
        features=np.ones((4, 2), np.float32),
        ids=Texts.from_strings("wxyz"),
    ).save(folder)
    return Path(folder)


arrays = st.sampled_from(
    [np.zeros(0), np.zeros((4, 2)), np.full((4, 2), np.nan), np.arange(5), np.arange(4), np.array(3),
     np.array(["a"] * 4), np.zeros((2, 2), np.uint64), np.full((2, 2), 2**63, np.uint64), np.zeros((4, 2), complex),
     np.array([True] * 4),
     np.array([-(2**62)] * 4), np.zeros((2, 0)), np.zeros((0, 2)), np.array([0, 1, 7, -1], np.int8), np.arange(5)[::-1]]
)  # fmt: skip


@fuzzed("saved")
@given(
    st.sampled_from([f for f in FILES if "edge_features" not in f]),
    arrays,
    st.binary(max_size=200),
    st.integers(0, 300),
)
def test_saved_graphs(name, array, raw, cut):
    with place() as folder:
        path = saved(folder) / name
        held = path.read_bytes() if path.exists() else b""
        contents = [raw, held[:cut], held[:cut] + raw + held[cut + len(raw) :]]
        if name.endswith(".npy"):
            out = io.BytesIO()
            np.save(out, array)
            contents.append(out.getvalue())
        for content in contents:
            path.write_bytes(content)
            graph = told("saved", lambda: AttributedGraph.load(folder))
            if graph is not None:
                list(graph.texts), [graph.node_id(i) for i in range(graph.num_nodes)]


def test_a_text_of_10_mb_and_a_hub_of_a_million_edges(tmp_path):
    start = time.process_time()
    n = 1_000_001
    text = "CASE i WHEN 0 THEN repeat('word ', 2000000) ELSE 't' END AS text"
    nodes = f"SELECT i AS id, {text}, i % 2 AS label FROM range({n}) t(i)"
    duckdb.sql(f"COPY ({nodes}) TO '{tmp_path}/nodes.parquet'")
    duckdb.sql(f"COPY (SELECT 0 AS source, i + 1 AS target FROM range({n - 1}) t(i)) TO '{tmp_path}/edges.parquet'")
    graph = load_tables(tmp_path).graph
    assert len(graph.texts[0]) == 10_000_000
    assert graph.num_edges == n - 1
    graph.check()
    assert time.process_time() - start < 30


def test_small_graphs_at_the_edge(tmp_path):
    """One class, one node, no train nodes: refused; a class only in test, no edges, self-loops only: told."""
    rows = [{**row, "label": "a"} for row in NODES]
    for name, nodes, edges, refused in (
        ("one class", rows, EDGES, "labels of one class only"),
        ("one node", NODES[:1], [{"source": 10, "target": 10}], "one class only"),
        ("no train", [{**row, "split": "val"} for row in NODES], EDGES, "no labelled 'train' nodes"),
    ):
        error = io.StringIO()
        try:
            load_tables(write(tmp_path / name, nodes, edges))
        except Exception as refusal:
            error.write(str(refusal))
        assert refused in error.getvalue(), error.getvalue()
    only = [{**row, "label": "c" if row["split"] == "test" else row["label"]} for row in NODES]
    assert any("absent from train: 'c'" in w for w in load_tables(write(tmp_path / "only", only)).warnings)
    loops = [{"source": i, "target": i} for i in range(10, 16)]
    assert any("6 self-loops" in w for w in load_tables(write(tmp_path / "loops", edges=loops)).warnings)
    folder = write(tmp_path / "no edges")
    (folder / "edges.csv").write_text("source,target\n")
    assert load_tables(folder).graph.num_edges == 0
