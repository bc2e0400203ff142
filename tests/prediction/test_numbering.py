"""Ids and edges of new nodes: found whatever their type, and every mistake is told with its row."""

from dataclasses import replace

import numpy as np
import pytest

from labeldeconv.data.sets.planted import planted
from labeldeconv.errors import DataError
from labeldeconv.graph.texts import Texts
from labeldeconv.prediction.numbering import Numbers, Places, numbered


@pytest.fixture(params=["none", "integers", "texts"])
def known(request, small_graph):
    """Six nodes whose ids are 0..5, 50, 40 .. 0, or 'p0' .. 'p5'."""
    ids = {"none": None, "integers": np.arange(50, -10, -10), "texts": Texts.from_strings(f"p{i}" for i in range(6))}
    return Numbers(replace(small_graph, ids=ids[request.param]))


def name_of(known, node):
    return known.graph.node_id(node)


def test_ids_are_found_as_text_or_number(known):
    for node in range(6):
        assert known.find(name_of(known, node)) == node
    for wrong in ("p9", "61", "-1", "007", "1.0", "", "99999999999999999999"):
        assert known.find(wrong) is None
    a, b = name_of(known, 2), name_of(known, 4)
    names, edges = numbered(known, ["x", 77.0], [("x", a), (b, 77), ("77", "x")])
    assert names == ["x", "77"]
    assert edges.tolist() == [[6, 4, 7], [2, 7, 6]]


def test_no_edges(known):
    names, edges = numbered(known, ["x"], [])
    assert (names, edges.shape) == (["x"], (2, 0))


def test_everything_wrong_is_told_at_once(known):
    a, b = name_of(known, 0), name_of(known, 1)
    places = Places("new.csv", "edges.csv", lambda row: f"line {row + 2}", lambda row: f"line {row + 2}")
    with pytest.raises(DataError) as error:
        numbered(known, ["x", None, "x", a], [("x", "nobody"), (a, b), ("x", b)], places)
    message = str(error.value)
    assert "new.csv: 1 ids are missing: line 3" in message
    assert "new.csv: 1 ids occur more than once: line 4 ('x')" in message
    assert "new.csv: 1 ids are in the run's graph already" in message
    assert f"line 5 ('{a}')" in message
    assert "edges.csv: 1 edges name a node that is neither new nor in the graph: line 2 ('nobody')" in message
    assert "edges.csv: 1 edges join two nodes of the graph; one end of a new edge is new: line 3" in message


def test_the_nearest_id_is_named(small_graph):
    known = Numbers(replace(small_graph, ids=Texts.from_strings(["libc6", "zlib1g", "perl", "bash", "sed", "gawk"])))
    with pytest.raises(DataError, match="did you mean 'zlib1g'"):
        numbered(known, ["x"], [("x", "zlib1")])
    with pytest.raises(DataError, match="the graph has 6 nodes, such as 'libc6'"):
        numbered(known, ["x"], [("x", "@")])


def test_a_number_is_found_however_it_is_written():
    known = Numbers(planted(30, seed=0).graph)
    assert [known.number(name) for name in (7, "7", 7.0)] == [7, 7, 7]
    with pytest.raises(DataError, match="no node '30' in the run's graph"):
        known.number(30)
