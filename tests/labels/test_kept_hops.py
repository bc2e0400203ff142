"""Hop labels of an earlier run: found by what they were made of, taken row by row, under the key of a fresh K."""

import json
import logging
from dataclasses import replace

import numpy as np
import pytest

from labeldeconv import AttributedGraph, Split, Texts, planted
from labeldeconv.labels.hops import hops
from labeldeconv.labels.kept_hops import KeptHops, places_of
from labeldeconv.labels.pseudo import pseudo
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.stage import session

n = 120
WHOLE = planted(n, mean_degree=2.0).graph
GRAPH = WHOLE.with_split(Split(np.zeros(n, np.int8)))  # so that Y is of labels alone
ROW, SYMMETRIC = AdjacencyConfig(), AdjacencyConfig(normalization="symmetric", undirected=False)


def made(graph, kept=None, adjacency=ROW, number=2, store="uint16", backward=False):
    """K of a graph whose labels are all known."""
    return hops(pseudo(None, graph), graph, adjacency, number, store, backward, kept)


def other(graph=GRAPH, new=False):
    """The graph with another label, an edge less, and perhaps a node more, which stands first."""
    labels = graph.labels.copy()
    labels[7] = (labels[7] + 1) % graph.num_classes
    changed = replace(graph, labels=labels, edges=graph.edges[:, 1:])
    if not new:
        return changed
    return AttributedGraph(
        Texts.from_strings(["new", *graph.texts]),
        np.concatenate([changed.edges + 1, [[0], [4]]], 1),
        np.concatenate([[0], labels]),
        Split(np.zeros(n + 1, np.int8)),
        graph.class_names,
        ids=np.arange(-1, n),
    )


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize(("adjacency", "backward"), [(ROW, False), (SYMMETRIC, False), (SYMMETRIC, True)])
def test_rows_are_taken_and_the_stage_is_that_of_a_fresh_computation(tmp_path, caplog, new, adjacency, backward):
    graph = other(new=new)
    with session(Cache(tmp_path / "fresh")):
        fresh = made(graph, adjacency=adjacency, backward=backward)
    with session(Cache(tmp_path / "cache")), caplog.at_level(logging.INFO, logger="labeldeconv"):
        earlier = made(GRAPH, adjacency=adjacency, backward=backward)
        kept = KeptHops("runs/first", (earlier.content_key,), lambda: GRAPH, graph)
        K = made(graph, kept, adjacency, backward=backward)
        assert made(graph, adjacency=adjacency, backward=backward).made.path == K.made.path
    assert K.content_key == fresh.content_key
    assert not np.array_equal(K.values[-n:], earlier.values)
    manifests = [json.loads((each.made.path / "stage.json").read_text()) for each in (K, fresh)]
    same = ("arguments", "arrays", "files", "key", "paths", "values", "version")
    assert [manifests[0][name] for name in same] == [manifests[1][name] for name in same]
    (told,) = [line for line in caplog.messages if "computed anew" in line]
    count, total = int(told.split()[1]), 3 * graph.num_nodes
    assert told == f"hops: {count} of {total} rows of hop labels computed anew, the others from runs/first"
    assert 3 < count < total / 2


def test_only_results_of_the_run_with_the_same_settings_and_its_edges_are_found(tmp_path):
    with session(Cache(tmp_path / "cache")):
        K = made(GRAPH)
        asked = {"adjacency": ROW, "number": 2, "store": "uint16"}

        def found(kept, backward=False, **changes):
            return list(kept.found(hops, backward, **{**asked, **changes}))

        kept = KeptHops("run", (K.content_key,), lambda: GRAPH, other())
        (earlier,) = found(kept)
        np.testing.assert_array_equal(earlier.values, K.values)
        assert not found(kept, number=1)
        assert not found(kept, store="float32")
        assert not found(kept, adjacency=SYMMETRIC)
        assert not found(kept, backward=True)
        assert not found(KeptHops("run", ("another",), lambda: GRAPH, other()))
        assert not found(KeptHops("run", (K.content_key,), other, other()))  # other edges than K was made of
    with session(Cache(tmp_path / "empty")):
        assert not found(kept)


def test_labels_that_all_differ_are_computed_whole(tmp_path, caplog):
    graph = replace(GRAPH, labels=(GRAPH.labels + 1) % GRAPH.num_classes)
    with session(Cache(tmp_path)), caplog.at_level(logging.INFO, logger="labeldeconv"):
        kept = KeptHops("runs/first", (made(GRAPH).content_key,), lambda: GRAPH, graph)
        K = made(graph, kept)
    assert "hops: all hop labels are computed, since half or more may differ from runs/first" in caplog.messages
    with session(Cache(tmp_path / "fresh")):
        np.testing.assert_array_equal(K.values, made(graph).values)


def test_nodes_by_id():
    """Numbers, texts, and numbers as texts; edges of nodes that are gone lead to one more than the last."""
    numbers = np.array([5, 3, 9])
    assert places_of(np.array([9, 4, 5, 10]), numbers).tolist() == [2, -1, 0, -1]
    assert places_of(Texts.from_strings(["3", "a"]), numbers).tolist() == [1, -1]
    assert places_of(np.array(["a", "9"]), Texts.from_strings(["9"])).tolist() == [-1, 0]
    assert places_of(numbers, np.empty(0, np.int64)).tolist() == [-1, -1, -1]
    nodes = np.delete(np.arange(n), 2)
    kept = KeptHops("run", (), lambda: GRAPH, GRAPH.induced(nodes, "part"))
    assert kept.rows.tolist() == nodes.tolist()
    told = {2: n - 1, **{int(node): place for place, node in enumerate(nodes)}}
    assert kept.edges.tolist() == [[told[int(end)] for end in row] for row in GRAPH.edges]
    assert KeptHops("run", (), lambda: GRAPH, GRAPH).edges is GRAPH.edges
