"""X_GIANT: self-supervised neighbourhood prediction, coarse to fine; labels of nodes are never used.

As published the finest level is that of single nodes: the encoder learns which nodes its node links to. It is reached
on graphs of at most `giant.single_nodes` nodes, since every one of them has a row of weights in the head. The encoder
that comes out can also take the place of the pre-trained one, for any method (`encoder.adapt`).
"""

from __future__ import annotations

import numpy as np

from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.labels.neighbours import NeighbourTargets, tree
from labeldeconv.methods.base import Complexity, Learned, Run, Work, method
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import Config, GiantConfig
from labeldeconv.training.encoder import TrainedEncoder
from labeldeconv.training.output_rows import RowsHead


def neighbourhood_nodes(graph: AttributedGraph, settings: Config) -> int:
    """Nodes that go through the encoder in neighbourhood prediction, all levels and epochs counted, at most."""
    levels = trained_levels(graph.num_nodes, settings.giant)
    return settings.giant.epochs * graph.num_nodes * len(levels)


@method(
    "giant",
    title="X_GIANT",
    trained_on="neighbours, from clusters of them to single nodes; no labels",
    nodes="all of moderate degree",
    work=lambda graph, settings, hops: Work(neighbourhood_nodes(graph, settings)),
    epochs=lambda settings: settings.giant.epochs,
    complexity=Complexity("O(||A||_0)", "O(|B|)", "A"),
    adapts=False,
    color=5,
)
def giant(run: Run) -> Learned:
    """Features of an encoder that learned to predict which nodes its node links to."""
    trained = predict_neighbourhoods(run)
    X = run.features(trained)
    return Learned(X, run.last_gnn(X), encoder=trained)


def predict_neighbourhoods(run: Run) -> TrainedEncoder:
    """The encoder phases on neighbourhoods, from the coarsest clusters to single nodes; the last one of them.

    Rows of the head start as those of the clusters above them.
    """
    graph, config, adjacency = run.graph, run.settings.giant, run.settings.labels.adjacency
    residues = config.ngram if graph.attributes == "sequence" else None
    clusters = tree(graph, adjacency, residues, _depth(graph.num_nodes, config), run.settings.seed)
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes, adjacency)
    degree = np.diff(adj.indptr)
    linked = adj.indices[adj.indptr[:-1]] != np.arange(graph.num_nodes)  # an isolated node has only itself
    nodes = np.flatnonzero((degree < config.max_degree) & (linked | (degree > 1)))
    trained: TrainedEncoder | None = None
    above = 0
    for level in trained_levels(graph.num_nodes, config):
        outputs = clusters.outputs(level)
        targets = NeighbourTargets(clusters, level, adj, config.negatives if outputs > config.negatives else None)
        head = RowsHead(outputs, trained, None if trained is None else clusters.parents(level, above))
        label = "train nodes" if level == len(clusters.levels) else f"train {outputs}"
        trained = run.train(targets, nodes, head=head, start=trained, epochs=config.epochs, label=label)
        above = level
    assert trained is not None
    return trained


def trained_levels(num_nodes: int, config: GiantConfig) -> list[int]:
    """Levels of the tree that the encoder is trained on: level k has 2^(k + 1) clusters, the one below all is nodes."""
    depth = _depth(num_nodes, config)
    below = [depth] if num_nodes <= config.single_nodes else []
    return [*range(config.coarsest - 1, depth, config.step), *below]


def _depth(num_nodes: int, config: GiantConfig) -> int:
    """Levels of the whole tree."""
    smallest = max(2, num_nodes // config.cluster_size)
    return max(config.coarsest, min(int(np.log2(smallest)), config.finest))
