"""X_GIANT: self-supervised neighbourhood prediction, coarse to fine; labels of nodes are never used.

The encoder that comes out can also take the place of the pre-trained one, for any method (`encoder.adapt`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from labeldeconv import stages
from labeldeconv.adjacency import Adjacency
from labeldeconv.config import GiantConfig
from labeldeconv.job import Job
from labeldeconv.labels.neighbors import NeighborClusters, balanced_tree, pifa_features
from labeldeconv.record import Stage

WORD = 3  # residues of a protein's word; single ones tell too little


def giant(job: Job) -> Stage:
    """Features of an encoder that learned to predict which clusters of nodes its node links to."""
    return stages.features(job, predict_neighborhoods(job))


def adapt(job: Job) -> None:
    """Let everything after this start from an encoder that has learned to predict neighbourhoods."""
    job.adapted = predict_neighborhoods(job)


def predict_neighborhoods(job: Job) -> Stage:
    """The encoder phases on neighbourhoods, from the coarsest clusters to the finest; the last one of them."""
    graph, config = job.graph, job.config.giant
    tree = _tree(job)
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes, job.config.labels.adjacency)
    degree = np.diff(adj.indptr)
    linked = adj.indices[adj.indptr[:-1]] != np.arange(graph.num_nodes)  # an isolated node has only itself
    nodes = np.flatnonzero((degree < config.max_degree) & (linked | (degree > 1)))
    trained: Stage | None = None
    for level in trained_levels(graph.num_nodes, config):
        clusters = 2 ** (level + 1)

        def targets(level: int = level) -> NeighborClusters:
            return NeighborClusters(adj, tree.array("tree")[level])

        trained = stages.train(
            job,
            targets,
            nodes,
            target_key={"tree": tree.key, "level": level, "max_degree": config.max_degree},
            label=f"train {clusters}",
            start=trained,
            clusters=clusters,
            epochs=config.epochs,
        )
    assert trained is not None
    return trained


def trained_levels(num_nodes: int, config: GiantConfig) -> range:
    """Levels of the tree that the encoder is trained on; level k has 2^(k + 1) clusters."""
    return range(config.coarsest - 1, _depth(num_nodes, config), config.step)


def _depth(num_nodes: int, config: GiantConfig) -> int:
    """Levels of the whole tree."""
    smallest = max(2, num_nodes // config.cluster_size)
    return max(config.coarsest, min(int(np.log2(smallest)), config.finest))


def _tree(job: Job) -> Stage:
    """Clusters of all nodes at every level, from tokens and edges alone."""
    graph, config = job.graph, job.config.giant
    store = stages.tokens(job)
    levels = _depth(graph.num_nodes, config)
    adjacency = job.config.labels.adjacency
    ngram = config.ngram or (WORD if graph.attributes == "sequence" else 1)
    parts = {
        "tokens": store.key,
        "ngram": ngram,
        "edges": graph.fingerprint("edges"),
        "adjacency": adjacency.model_dump(),
        "levels": levels,
        "seed": job.config.seed,
    }

    def build(folder: Path) -> None:
        adj = Adjacency.from_edges(graph.edges, graph.num_nodes, adjacency)
        tokens, offsets = (np.load(store.path / name) for name in ("tokens.npy", "offsets.npy"))
        features = pifa_features(tokens, offsets, adj, ngram, seed=job.config.seed)
        np.save(folder / "tree.npy", balanced_tree(features, levels, seed=job.config.seed))

    return job.stage("tree", "tree", parts, build)
