"""Validation: each problem of the issue, by the words of its message, and all of them at once."""

import duckdb
import numpy as np
import pytest
from table_writing import EDGES, NODES, changed, problems, write

from labeldeconv.data.tables import load_tables
from labeldeconv.data.validation import duplicate_edges

EDGE_LINE = {"csv": 2, "jsonl": 1, "parquet": 1}


def place(kind, row):
    return f"{'row' if kind == 'parquet' else 'line'} {row + EDGE_LINE[kind]}"


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_everything_wrong_is_told_at_once(tmp_path, kind):
    nodes = changed(changed(changed(NODES, 1, id=10), 2, id=None), 3, text=None)
    nodes = changed(nodes, 4, split="somewhere")
    edges = [*EDGES, {"source": 99, "target": 98}, {"source": 13, "target": 13}, {"source": None, "target": 10}]
    edges += [{"source": 13, "target": 14}]
    told = problems(write(tmp_path, nodes, edges, kind))
    n, e = f"nodes.{kind}", f"edges.{kind}"
    assert f"{n}, column 'id': 1 ids are missing: {place(kind, 2)}" in told
    assert f"{n}, column 'id': 1 ids occur more than once: '10' 2 times ({place(kind, 0)}, {place(kind, 1)})" in told
    unknown = f"{e}, column 'source': 3 of 10 edges name a node unknown to {n}: "
    assert unknown + ", ".join(f"{place(kind, r)} ('{i}')" for r, i in ((1, 11), (2, 12), (6, 99))) in told
    assert f"{e}, column 'source': 1 ids are missing: {place(kind, 8)}" in told
    assert any(t.startswith(f"{e}, column 'target': 3 of 10 edges") for t in told)
    assert any("1 cells name no part of the split" in t and f"{place(kind, 4)} ('somewhere')" in t for t in told)
    assert f"warning: {n}, column 'text': 1 texts are empty or missing: {place(kind, 3)} ('13')" in told
    assert f"warning: {e}: 1 self-loops: {place(kind, 7)} ('13'); A-hat drops them" in told
    assert f"warning: {e}: 1 duplicate edges: {place(kind, 9)}; A-hat takes each once" in told
    assert any("isolated nodes" in t for t in told)


def test_only_five_are_named(tmp_path):
    edges = [{"source": 10, "target": 1000 + i} for i in range(7)]
    (told, *_) = problems(write(tmp_path, edges=edges))
    assert "7 of 7 edges" in told
    assert told.endswith("line 6 ('1004'), ...")
    assert "1005" not in told


@pytest.mark.parametrize("end", ["010", " 10", "10.0", "1e1", "ten"])
def test_ids_join_only_if_written_alike(tmp_path, end):
    told = problems(write(tmp_path, edges=changed(EDGES, 0, source=end)))
    assert f"1 of 6 edges name a node unknown to nodes.csv: line 2 ('{end}')" in told[0]


def test_oddities_only_warn(tmp_path):
    edges = [*EDGES[:3], EDGES[0], EDGES[0], {"source": 12, "target": 12}, {"source": 15, "target": 15}]
    loaded = load_tables(write(tmp_path, edges=edges))
    assert loaded.graph.num_edges == 7  # kept as given
    assert loaded.warnings == [
        "edges.csv: 2 self-loops: line 7 ('12'), line 8 ('15'); A-hat drops them",
        "edges.csv: 2 duplicate edges: line 5, ...; A-hat takes each once",
        "nodes.csv: 2 isolated nodes, without an edge: line 6 ('14'), line 7 ('15')",
    ]


def test_no_edges(tmp_path):
    write(tmp_path)
    (tmp_path / "edges.csv").write_text("source,target\n")
    loaded = load_tables(tmp_path)
    assert loaded.graph.num_edges == 0
    assert "6 isolated nodes" in loaded.warnings[0]


def test_no_nodes(tmp_path):
    write(tmp_path)
    (tmp_path / "nodes.csv").write_text("id,text,label\n")
    assert problems(tmp_path) == ["nodes.csv: no rows"]


def test_duplicate_edges_match_brute_force():
    edges = np.random.default_rng(0).integers(-1, 6, (2, 60))
    seen, repeats = set(), []
    for row, pair in enumerate(map(tuple, edges.T.tolist())):
        if min(pair) >= 0 and pair in seen:
            repeats.append(row)
        seen.add(pair)
    count, rows = duplicate_edges(edges, 6)
    assert count == len(repeats)
    assert set(rows) <= set(repeats)
    assert len(rows) == 5


def test_texts_all_empty(tmp_path):
    told = problems(write(tmp_path, [{**row, "text": " \t" if row["id"] % 2 else None} for row in NODES]))
    assert told == ["nodes.csv, column 'text': all 6 texts are empty or missing"]


def test_one_class_only(tmp_path):
    told = problems(write(tmp_path / "a", [{**row, "label": "a"} for row in NODES]))
    assert told == ["nodes.csv, column 'label': labels of one class only, 'a'; at least two expected"]
    told = problems(write(tmp_path / "b", [{**row, "label": None} for row in NODES]))
    assert "nodes.csv, column 'label': no node has a label" in told
    nodes = [{**row, "x": 1, "y": row["id"] % 2} for row in NODES]
    told = problems(write(tmp_path / "c", nodes, toml='label = ["x"]'))
    assert "labels of one class only: none is both present and absent: 'x'" in told[0]
    loaded = load_tables(write(tmp_path / "d", nodes, toml='label = ["x", "y"]'))
    assert "1 labels are the same on every node and cannot be scored: 'x'" in loaded.warnings[0]


def test_nan_labels(tmp_path):
    told = problems(write(tmp_path / "text", changed(NODES, 2, label="NaN")))
    assert "nodes.csv, column 'label': 1 labels are NaN: line 4; leave the cell of an unlabelled node empty" in told
    lines = write(
        tmp_path / "json",
        changed([{**r, "label": i % 2} for i, r in enumerate(NODES)], 2, label=float("nan")),
        kind="jsonl",
    )
    assert "nodes.jsonl, column 'label': 1 labels are NaN: line 3" in problems(lines)[0]
    nodes = changed(changed([{**row, "x": row["id"] % 2} for row in NODES], 1, x="nan"), 3, x=2)
    told = problems(write(tmp_path / "binary", nodes, toml='label = ["x"]'))
    assert "nodes.csv, column 'x': 2 cells are not 0, 1 or empty: line 3, line 5" in told


def test_classes_absent_from_train(tmp_path):
    loaded = load_tables(write(tmp_path, changed(NODES, 5, label="c")))
    assert loaded.warnings == ["nodes.csv, column 'split': 1 classes of val or test are absent from train: 'c'"]


def test_parts_without_nodes(tmp_path):
    told = problems(write(tmp_path, [{**row, "split": "test"} for row in NODES]))
    assert told == [
        f"nodes.csv, column 'split': no labelled '{part}' nodes; train, val and test all need some"
        for part in ("train", "val")
    ]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_not_utf8_is_told_with_the_line_and_the_rest_is_checked(tmp_path, kind):
    write(tmp_path, changed(changed(NODES, 1, text="CAFE"), 4, id=10), kind=kind)
    path = tmp_path / f"nodes.{kind}"
    path.write_bytes(path.read_bytes().replace(b"CAFE", b"caf\xe9"))
    told = problems(tmp_path)
    assert told[0] == f"nodes.{kind}: 1 lines are not UTF-8: {place(kind, 1)}; save the file as UTF-8"
    assert f"'10' 2 times ({place(kind, 0)}, {place(kind, 4)})" in told[1]


def test_utf16_is_no_traceback(tmp_path):
    write(tmp_path)
    (tmp_path / "nodes.csv").write_text("id,text,label\n1,a,b\n", encoding="utf-16")
    assert problems(tmp_path) == ["nodes.csv: 1 lines are not UTF-8: line 1; save the file as UTF-8"]


def test_broken_parquet(tmp_path):
    write(tmp_path / "a", kind="parquet")
    (tmp_path / "a" / "nodes.parquet").write_bytes(b"not parquet")
    assert problems(tmp_path / "a")[0].startswith("nodes.parquet: ")
    path = write(tmp_path / "b", kind="parquet") / "nodes.parquet"
    rows = "SELECT i AS id, 'marker' || i AS text, i % 2 AS label FROM range(9) t(i)"
    duckdb.sql(f"COPY ({rows}) TO '{path}' (COMPRESSION uncompressed)")
    path.write_bytes(path.read_bytes().replace(b"marker1", b"mark\xff\xfe1"))
    (told,) = problems(tmp_path / "b")
    assert told.startswith("nodes.parquet, column 'text': ")
    assert "not valid UTF8" in told


def test_csv_rows_that_do_not_fit_the_header(tmp_path):
    write(tmp_path)
    (tmp_path / "edges.csv").write_text("source,target\n10,11\n11\n12,13,14\n13,14\n14,77\n")
    told = problems(tmp_path)
    assert told[0] == (
        "edges.csv: 2 rows cannot be read; line 3: expected number of columns: 2 found: 1;"
        " line 4: expected number of columns: 2 found: 3"
    )
    assert "line 6 ('77')" in told[1]  # lines count the rows left out


def test_csv_lines_are_those_of_an_editor(tmp_path):
    write(tmp_path)
    (tmp_path / "nodes.csv").write_text('id,text,label\n1,"a\nb",x\n2,c\n')
    assert "line 4: expected number of columns: 3 found: 2" in problems(tmp_path)[0]


def test_csv_header_and_delimiter(tmp_path):
    write(tmp_path)
    path = tmp_path / "edges.csv"
    text = path.read_text()
    path.write_text(text.replace("source,target", "source,Source"))
    assert problems(tmp_path)[0] == "edges.csv: more than one column is called 'source'"
    for name in ("nodes.csv", "edges.csv"):
        lines = (text if name == "edges.csv" else (tmp_path / name).read_text()).replace(",", ";").replace("\n", "\r\n")
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + lines.encode())
    (tmp_path / "graph.toml").write_text('delimiter = ";"')
    assert load_tables(tmp_path).graph.num_edges == 6


def test_text_without_columns(tmp_path):
    write(tmp_path)
    (tmp_path / "nodes.csv").unlink()
    (tmp_path / "nodes.jsonl").write_text("no json\n")
    (tmp_path / "edges.csv").write_text("\n")
    assert [told.split(";")[0] for told in problems(tmp_path)] == ["nodes.jsonl: no columns", "edges.csv: no columns"]


def test_malformed_json_lines(tmp_path):
    path = write(tmp_path, kind="jsonl") / "nodes.jsonl"
    lines = path.read_text().splitlines()
    lines[1], lines[3], lines[4] = '{"id": 11, "text":', "[1]", lines[4].replace("14", "10", 1)
    path.write_text("\n".join(lines) + "\n")
    told = problems(tmp_path)
    assert told[0] == "nodes.jsonl: 2 lines are not a JSON object: line 2, line 4"
    assert "'10' 2 times (line 1, line 5)" in told[1]
