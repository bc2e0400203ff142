"""X_GIANT: self-supervised neighbourhood prediction, coarse to fine; labels of nodes are never used."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from labeldeconv import stages
from labeldeconv.adjacency import Adjacency
from labeldeconv.job import Job
from labeldeconv.labels.neighbors import NeighborClusters, balanced_tree, pifa_features
from labeldeconv.record import Stage


def giant(job: Job) -> Stage:
    """Features of an encoder that learned to predict which clusters of nodes its node links to."""
    graph, config = job.graph, job.config.giant
    tree = _tree(job)
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes, job.config.labels.adjacency)
    degree = np.diff(adj.indptr)
    linked = adj.indices[adj.indptr[:-1]] != np.arange(graph.num_nodes)  # an isolated node has only itself
    nodes = np.flatnonzero((degree < config.max_degree) & (linked | (degree > 1)))
    trained: Stage | None = None
    for level in range(config.coarsest - 1, tree.info["levels"], config.step):
        clusters = 2 ** (level + 1)

        def targets(level: int = level) -> NeighborClusters:
            return NeighborClusters(adj, np.load(tree.path / "tree.npy", mmap_mode="r")[level])

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
    return stages.features(job, trained)


def _tree(job: Job) -> Stage:
    """Clusters of all nodes at every level, from tokens and edges alone."""
    graph, config = job.graph, job.config.giant
    store = stages.tokens(job)
    smallest = max(1, graph.num_nodes // config.cluster_size)
    levels = max(config.coarsest, min(int(np.log2(smallest)) if smallest > 1 else 1, config.finest))
    adjacency = job.config.labels.adjacency
    parts = {
        "tokens": store.key,
        "edges": graph.fingerprint("edges"),
        "adjacency": adjacency.model_dump(),
        "levels": levels,
        "seed": job.config.seed,
    }

    def build(folder: Path) -> dict[str, int]:
        adj = Adjacency.from_edges(graph.edges, graph.num_nodes, adjacency)
        tokens, offsets = (np.load(store.path / name) for name in ("tokens.npy", "offsets.npy"))
        features = pifa_features(tokens, offsets, adj, seed=job.config.seed)
        np.save(folder / "tree.npy", balanced_tree(features, levels, seed=job.config.seed))
        return {"levels": levels}

    return job.stage("tree", "tree", parts, build)
