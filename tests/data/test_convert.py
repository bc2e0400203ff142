"""Graphs from Python objects: rows, NetworkX, Hugging Face datasets, PyG data sets with texts."""

import json

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from labeldeconv.data.convert import from_datasets, from_networkx, from_rows, from_tag_dataset, record_texts
from labeldeconv.errors import DataError
from tests.data.table_writing import EDGES, NODES


def check(graph):
    assert list(graph.texts) == [f"text {i}" for i in range(6)]
    assert graph.edges.tolist() == [[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]]
    assert graph.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert graph.split.roles.tolist() == [0, 0, 1, 1, 2, 2]


def test_rows():
    check(from_rows(NODES, EDGES).graph)
    rows = [{**row, "body": row["text"], "u": np.float32(i), "text": "x"} for i, row in enumerate(NODES)]
    graph = from_rows(rows, EDGES, text="body", features="u", name="mine").graph
    check(graph)
    assert graph.features[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert graph.name == "mine"
    with pytest.raises(DataError, match=r"'10' 2 times"):
        from_rows([*NODES, NODES[0]], EDGES)
    with pytest.raises(DataError, match=r"unknown setting; did you mean 'text'"):
        from_rows(NODES, EDGES, txt="body")


def test_networkx():
    drawn = nx.DiGraph(name="ring")
    for row in NODES:
        drawn.add_node(("n", row["id"]), text=row["text"], label=row["label"], split=row["split"])
    for row in EDGES:
        drawn.add_edge(("n", row["source"]), ("n", row["target"]), weight=1)
    graph = from_networkx(drawn).graph
    check(graph)
    assert graph.name == "ring"
    assert graph.node_id(0) == "('n', 10)"
    assert nx.is_isomorphic(nx.Graph(graph.edges.T.tolist()), nx.Graph(drawn))


def test_datasets():
    datasets = pytest.importorskip("datasets", reason="needs the package datasets")
    nodes, edges = datasets.Dataset.from_list(NODES), datasets.Dataset.from_list(EDGES)
    graph = from_datasets(nodes, edges).graph
    check(graph)
    assert graph.ids.tolist() == [10, 11, 12, 13, 14, 15]
    with pytest.raises(DataError, match=r"nodes: a datasets.Dataset expected, got list"):
        from_datasets(NODES, edges)


class Tags(list):
    """As PyG's TAGDataset: a list of one graph, with texts and split beside it."""

    name, text = "tags", [f"text {i}" for i in range(6)]
    split_idx = {"train": torch.tensor([0, 1]), "valid": torch.tensor([2, 3]), "test": torch.tensor([4, 5])}


def test_tag_dataset():
    edges = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
    data = Data(x=torch.ones(6, 3), edge_index=edges, y=torch.tensor([[0], [1], [0], [1], [0], [1]]))
    graph = from_tag_dataset(Tags([data]))
    check(graph)
    assert graph.name == "tags"
    with pytest.raises(DataError, match=r"list: no texts"):
        from_tag_dataset([data])
    data.text = Tags.text
    data.train_mask, data.val_mask, data.test_mask = (
        torch.tensor([r == k for r in (0, 0, 1, 1, 2, 2)]) for k in range(3)
    )
    check(from_tag_dataset([data]))


def test_record_texts():
    texts = record_texts({"title": ["a", "ü"], "price": [1.5, None]})
    assert [json.loads(text) for text in texts] == [{"title": "a", "price": "1.5"}, {"title": "ü", "price": None}]
    with pytest.raises(DataError, match=r"columns of equal length expected, got {'a': 1, 'b': 2}"):
        record_texts({"a": [1], "b": [1, 2]})
