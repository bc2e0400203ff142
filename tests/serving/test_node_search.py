"""Nodes by id and by words."""

from dataclasses import replace

import numpy as np
import pytest

from labeldeconv.graph.texts import Texts
from labeldeconv.prediction.numbering import Numbers
from labeldeconv.serving import node_search
from labeldeconv.serving.node_search import SHOWN, find_nodes, shown


@pytest.fixture
def known(small_graph):
    """Texts: red apple, green pear, blau büßt, '', gold 日本, alone."""
    return Numbers(small_graph)


@pytest.mark.parametrize(
    ("query", "nodes"),
    [
        ("apple", [0]), ("APPLE red", [0]), ("apple green", []), ("e", [0, 1, 5]), ("日本", [4]), ("büßt", [2]),
        ("3", [3]), ("", [0, 1, 2, 3, 4, 5]), ("  ", [0, 1, 2, 3, 4, 5]), (".*", []), ("leg", []), ("\x00", []),
    ],
)  # fmt: skip
def test_words_and_ids(known, query, nodes):
    assert find_nodes(known, query, 50) == (nodes, True)


def test_a_match_across_two_texts_is_none(known):
    assert find_nodes(known, "applegreen", 50) == ([], True)


def test_ids_that_are_texts(small_graph):
    ids = Texts.from_strings(["libc6", "pear", "perl", "bash", "sed", "gawk"])
    known = Numbers(replace(small_graph, ids=ids))
    assert find_nodes(known, "pear", 50)[0] == [1]
    assert find_nodes(known, "PE", 50)[0] == [1, 2]
    assert find_nodes(known, "a", 3)[0] == [1, 3, 5]


def test_blocks_and_bounds(small_graph, monkeypatch):
    texts = [f"node {i} of many" for i in range(1000)]
    many = replace(
        small_graph,
        texts=Texts.from_strings(texts),
        edges=np.empty((2, 0), int),
        labels=np.zeros(1000, int),
        split=type(small_graph.split)(np.zeros(1000, np.int8)),
    )
    known = Numbers(many)
    monkeypatch.setattr(node_search, "BLOCK", 100)
    assert find_nodes(known, "77 node", 50)[0] == [77, 177, 277, 377, 477, 577, 677, *range(770, 780), 877, 977]
    assert find_nodes(known, "many", 4) == ([0, 1, 2, 3], True)
    monkeypatch.setattr(node_search, "SEARCHED", 2000)
    assert find_nodes(known, "977 node", 50) == ([], False)


def test_long_texts_are_cut():
    assert shown("short") == "short"
    assert len(shown("x" * 1000)) == SHOWN
