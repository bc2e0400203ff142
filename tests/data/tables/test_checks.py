"""Checks: each problem by the words of its message, and all of them at once."""

import numpy as np
import pytest

from labeldeconv.data.tables.checks import duplicate_edges
from labeldeconv.data.tables.folder import load_tables
from tests.data.table_writing import EDGES, NODES, changed, place, problems, write


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


def test_classes_absent_from_train(tmp_path):
    loaded = load_tables(write(tmp_path, changed(NODES, 5, label="c")))
    assert loaded.warnings == ["nodes.csv, column 'split': 1 classes of val or test are absent from train: 'c'"]


def test_parts_without_nodes(tmp_path):
    told = problems(write(tmp_path, [{**row, "split": "test"} for row in NODES]))
    assert told == [
        f"nodes.csv, column 'split': no labelled '{part}' nodes; train, val and test all need some"
        for part in ("train", "val")
    ]
