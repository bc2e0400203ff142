"""The split of a node table: read, or made with the seed and said."""

import numpy as np

from labeldeconv.data.tables.folder import load_tables
from tests.data.table_writing import NODES, changed, problems, write


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
