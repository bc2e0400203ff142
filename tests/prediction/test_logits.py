"""New nodes get the logits that the whole grown graph would give them, for every GNN and every kind of A-hat."""

import numpy as np
import pytest
import torch
from torch_geometric.nn import GraphSAGE

from labeldeconv.errors import ConfigError
from labeldeconv.gnns.adapter import PyGModule
from labeldeconv.gnns.base import GNNS
from labeldeconv.prediction.incremental import chain
from labeldeconv.prediction.logits import GraphModel
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import AdjacencyConfig
from tests.samples import random_edges

N, M, D, C = 60, 5, 6, 3
# To the hub 0, to 1 and 2, new to new, a duplicate, a self-loop, the isolated old node 59; new node 64 stays alone.
NEW = np.array([[60, 60, 1, 61, 61, 62, 62, 63], [0, 2, 60, 60, 59, 61, 62, 62]])
OLD = np.concatenate([random_edges(N - 1, 90), [[0] * 30, range(20, 50)]], axis=1)
VARIANTS = {
    **{name: (name, {}) for name in GNNS},
    "gat-edges": ("gat", {"edge_dim": 2}),
    "sagn-labels": ("sagn", {"label_hops": 3}),
    "gamlp-labels": ("gamlp", {"label_hops": 2}),
    "spegnn-deep": ("spegnn", {"convolutions": 4}),
}


def model(variant, layers=2, key="k", edges=OLD, **adjacency):
    name, options = VARIANTS[variant]
    config = AdjacencyConfig(**adjacency)
    torch.manual_seed(0)
    gnn = GNNS[name](D, C, layers=max(layers, GNNS[name].least_layers), hidden=8, dropout=0.5, **options)
    for module in gnn.modules():  # as if it had been trained
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return graph_model(gnn.eval(), config, edges, key)


def graph_model(gnn, config, edges=OLD, key="k"):
    rng = np.random.default_rng(0)
    adj = Adjacency.from_edges(edges, N, config)
    if gnn.edge_dim:
        adj = adj.with_edge_features(edges, rng.random((edges.shape[1], gnn.edge_dim)).astype(np.float32))
    labels = None
    if gnn.label_hops:
        labels = np.eye(C, dtype=np.float32)[rng.integers(0, C, N)] * (rng.random((N, 1)) < 0.5)
    x = rng.normal(size=(N, D)).astype(np.float16)
    return GraphModel(gnn, x, adj, config, edges, None if labels is None else labels.astype(np.float32), key)


def grown_by(made, edges=NEW, count=M):
    rng = np.random.default_rng(1)
    values = rng.random((edges.shape[1], made.gnn.edge_dim)).astype(np.float32) if made.gnn.edge_dim else None
    return made.grow(count, edges, values), rng.normal(size=(count, D)).astype(np.float16)


def near(found, expected):
    np.testing.assert_allclose(found, expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("normalization", ["row", "symmetric"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_exact_is_the_whole_graph(variant, normalization, undirected):
    made = model(
        variant, 3, normalization=normalization, self_loops=normalization == "symmetric", undirected=undirected
    )
    grown, x = grown_by(made)
    seeds = grown.new_nodes
    whole = made.on_the_whole(grown, x, NEW, seeds)
    near(made.logits(grown, x, NEW, seeds), whole)
    near(made.logits(grown, x, NEW, seeds[[1, 4]]), whole[[1, 4]])


@pytest.mark.parametrize("variant", VARIANTS)
def test_fast_is_exact_where_old_nodes_do_not_change(variant):
    """On a directed graph new nodes that only read others change no old row."""
    made = model(variant, undirected=False)
    edges = np.array([[0, 5, 60, 7], [60, 60, 61, 61]])
    grown, x = grown_by(made, edges, 2)
    whole = made.on_the_whole(grown, x, edges, grown.new_nodes)
    tolerance = 2e-2 if made.gnn.edge_dim else 2e-5  # the fill of self-loops is the mean of all edges
    np.testing.assert_allclose(made.logits(grown, x, edges, grown.new_nodes, "fast"), whole, atol=tolerance, rtol=1e-3)


@pytest.mark.parametrize("variant", ["gcn", "sagn"])
def test_fast_leaves_old_nodes_as_they_are(variant):
    """Undirected, its first convolution is exact and the second reads neighbours as they were: near, not equal."""
    made = model(variant, normalization="symmetric", self_loops=True)
    grown, x = grown_by(made)
    whole = made.on_the_whole(grown, x, NEW, grown.new_nodes)
    fast = made.logits(grown, x, NEW, grown.new_nodes, "fast")
    assert not np.allclose(fast, whole, atol=1e-4)
    assert np.abs(fast - whole).max() < 0.5 * np.abs(whole).max()
    near(fast[4], whole[4])  # it has no neighbours that could have changed


def test_only_what_leads_to_the_new_nodes_is_read():
    made = model("gcn")
    read = []

    class Watched(np.ndarray):
        def __getitem__(self, ids):
            read.extend(np.atleast_1d(np.asarray(ids)).tolist())
            return np.asarray(self)[ids]

    object.__setattr__(made, "features", np.asarray(made.features, np.float32).view(Watched))
    grown, x = grown_by(made, np.array([[60], [59]]), 1)
    made.logits(grown, x, np.array([[60], [59]]), grown.new_nodes)
    assert set(read) == {59}


def test_large_neighbourhoods_are_cut_into_blocks(monkeypatch):
    made = model("gat", normalization="symmetric", self_loops=True)
    grown, x = grown_by(made)
    whole = made.logits(grown, x, NEW, grown.new_nodes)
    monkeypatch.setattr("labeldeconv.prediction.incremental.BLOCK_ENTRIES", 7)
    near(made.logits(grown, x, NEW, grown.new_nodes), whole)


def test_a_module_of_pyg_takes_the_whole_graph():
    torch.manual_seed(0)
    made = graph_model(PyGModule(GraphSAGE(D, 8, 2, C), D, C).eval(), AdjacencyConfig())
    assert chain(made.gnn) is None
    grown, x = grown_by(made)
    exact = made.logits(grown, x, NEW, grown.new_nodes)
    adj = Adjacency.from_edges(np.concatenate([OLD, NEW], axis=1), N + M, made.config)
    with torch.no_grad():
        whole = made.gnn(torch.from_numpy(np.concatenate([made.features, x]).astype(np.float32)), adj)
    near(exact, whole[N:].numpy())


def test_activations_are_kept_under_the_models_key(tmp_path):
    made, other = model("gcn", 3, key="a"), model("gcn", 3, key="b")
    grown, x = grown_by(made)
    for one in (made, other, model("gcn", 3, key="a")):
        one.logits(grown, x, NEW, grown.new_nodes, "fast")
    folders = [p for p in (tmp_path / "cache" / "activations").iterdir() if p.is_dir()]
    assert len(folders) == 2


def test_nothing_to_predict_and_a_wrong_mode():
    made = model("gcn")
    grown, x = grown_by(made)
    assert made.logits(grown, x, NEW, np.empty(0, np.int64)).shape == (0, C)
    with pytest.raises(ConfigError, match="mode 'quick': 'exact' or 'fast' expected"):
        made.logits(grown, x, NEW, grown.new_nodes, "quick")
