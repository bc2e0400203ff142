"""What is asked of a run: names, and what data sets and GNNs suggest where nothing is said."""

import numpy as np
import pytest
from torch_geometric.nn import GraphSAGE

from labeldeconv import planted
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.gnns.sagn import SAGN
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.runs.asked import Parts, name_of, resolve
from labeldeconv.settings.reading import load_config


def test_what_data_and_gnn_suggest_stands_under_what_is_said():
    assert resolve(load_config(None, {"data": "planted"})).gnn.layers == 1
    assert resolve(load_config(None, {"data": "planted", "gnn.name": "gamlp"})).gnn.layers == 1
    assert resolve(load_config(None, {"data": "planted", "gnn.layers": 4})).gnn.layers == 4
    graph = planted(40, seed=0).graph
    assert resolve(load_config(None, {"data": "planted"}), Parts(graph)).gnn.layers == 2  # a graph, not the data set
    twice = resolve(load_config(None, {"data": "planted"}))
    assert resolve(twice) == twice


def defaults(gnn, data=".", **said):
    return resolve(load_config(None, {"data": data, "gnn.name": gnn, **said})).gnn


@pytest.mark.parametrize("data", [".", "planted"])
def test_revgat_has_a_reversible_block_unless_said_otherwise(data):
    """Whatever a data set suggests; and who says 2 layers gets 2."""
    assert len(Architecture.of(defaults("revgat", data)).sample.blocks) == 1
    assert len(Architecture.of(defaults("revgat", data, **{"gnn.layers": 2})).sample.blocks) == 0
    found = defaults("revgat", data, **{"gnn.lr": 0.5})
    assert (found.hidden, found.dropout, found.optimizer, found.weight_decay) == (256, 0.75, "rmsprop", 0.0)
    assert found.lr == 0.5


@pytest.mark.parametrize("gnn", ["gat", "gamlp", "sagn"])
def test_the_a_hat_of_appendix_a_unless_said_otherwise(gnn):
    """A-hat = D^-1 A: rows sum to 1, no node is its own neighbour; each part can be said on its own."""
    edges = np.array([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
    A = np.zeros((4, 4))
    A[edges[0], edges[1]] = A[edges[1], edges[0]] = 1
    found = Adjacency.from_edges(edges, 4, defaults(gnn).adjacency).dense()
    np.testing.assert_allclose(found, A / A.sum(1, keepdims=True), rtol=1e-6)
    said = defaults(gnn, **{"gnn.adjacency.self_loops": True}).adjacency
    assert (said.normalization, said.self_loops) == ("row", True)
    said = defaults(gnn, **{"gnn.adjacency.normalization": "symmetric"}).adjacency
    assert (said.normalization, said.self_loops) == ("symmetric", False)


def test_the_defaults_of_gcn_are_those_of_the_settings():
    assert defaults("gcn") == load_config(None, {"gnn.name": "gcn", "gnn.layers": 2}).gnn
    assert (defaults("gcn").adjacency.normalization, defaults("gcn").adjacency.self_loops) == ("symmetric", True)


def test_a_gnn_given_as_class_or_object_suggests_too():
    config = load_config(None, {"data": "."})
    for gnn in (SAGN, SAGN(4, 2)):
        assert not resolve(config, Parts(gnn=gnn)).gnn.adjacency.self_loops


def test_names_of_objects():
    assert name_of("ld") == "ld"
    assert name_of(GraphSAGE) == name_of(GraphSAGE(2, 2, 1)) == "GraphSAGE"
    assert name_of((GraphSAGE(2, 2, 1), None)) == "GraphSAGE"
