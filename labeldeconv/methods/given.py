"""X_OGB: the features that came with the data, no encoder at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from labeldeconv.errors import DataError
from labeldeconv.graph import AttributedGraph
from labeldeconv.job import Job
from labeldeconv.record import Stage


def own_features(graph: AttributedGraph) -> np.ndarray:
    """Features (n, d) that came with the data."""
    if graph.features is None:
        raise DataError(f"method 'given': graph '{graph.name}' has no features of its own")
    return graph.features


def given(job: Job) -> Stage:
    """The graph's own features, as they are."""
    features = own_features(job.graph)

    def build(folder: Path) -> None:
        np.save(folder / "features.npy", np.asarray(features))

    return job.stage("given", "features", {"given": job.graph.fingerprint("features")}, build)
