"""X_GIANT: self-supervised neighbourhood prediction, coarse to fine; labels of nodes are never used.

The encoder that comes out can also take the place of the pre-trained one, for any method (`encoder.adapt`).
"""

from __future__ import annotations

import numpy as np

from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.labels.neighbours import NeighbourTargets, tree
from labeldeconv.methods.base import Complexity, Learned, Run, Work, method
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import Config, GiantConfig
from labeldeconv.training.encoder import ClusterHead, TrainedEncoder

WORD = 3  # residues of a protein's word; single ones tell too little


def neighbourhood_nodes(graph: AttributedGraph, settings: Config) -> int:
    """Nodes that go through the encoder in neighbourhood prediction, all levels and epochs counted, at most."""
    levels = trained_levels(graph.num_nodes, settings.giant)
    return settings.giant.epochs * graph.num_nodes * len(levels)


@method(
    "giant",
    title="X_GIANT",
    trained_on="clusters of the neighbours, coarse to fine; no labels",
    nodes="all of moderate degree",
    work=lambda graph, settings, hops: Work(neighbourhood_nodes(graph, settings)),
    epochs=lambda settings: settings.giant.epochs,
    complexity=Complexity("O(||A||_0)", "O(|B|)", "A"),
    adapts=False,
    color=5,
)
def giant(run: Run) -> Learned:
    """Features of an encoder that learned to predict which clusters of nodes its node links to."""
    trained = predict_neighbourhoods(run)
    X = run.features(trained)
    return Learned(X, run.last_gnn(X), encoder=trained)


def predict_neighbourhoods(run: Run) -> TrainedEncoder:
    """The encoder phases on neighbourhoods, from the coarsest clusters to the finest; the last one of them."""
    graph, config, adjacency = run.graph, run.settings.giant, run.settings.labels.adjacency
    ngram = config.ngram or (WORD if graph.attributes == "sequence" else 1)
    clusters = tree(run.tokens(), graph, adjacency, ngram, _depth(graph.num_nodes, config), run.settings.seed)
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes, adjacency)
    degree = np.diff(adj.indptr)
    linked = adj.indices[adj.indptr[:-1]] != np.arange(graph.num_nodes)  # an isolated node has only itself
    nodes = np.flatnonzero((degree < config.max_degree) & (linked | (degree > 1)))
    trained: TrainedEncoder | None = None
    for level in trained_levels(graph.num_nodes, config):
        targets = NeighbourTargets(clusters, level, adj)
        head = ClusterHead(targets.clusters)
        label = f"train {targets.clusters}"
        trained = run.train(targets, nodes, head=head, start=trained, epochs=config.epochs, label=label)
    assert trained is not None
    return trained


def trained_levels(num_nodes: int, config: GiantConfig) -> range:
    """Levels of the tree that the encoder is trained on; level k has 2^(k + 1) clusters."""
    return range(config.coarsest - 1, _depth(num_nodes, config), config.step)


def _depth(num_nodes: int, config: GiantConfig) -> int:
    """Levels of the whole tree."""
    smallest = max(2, num_nodes // config.cluster_size)
    return max(config.coarsest, min(int(np.log2(smallest)), config.finest))
