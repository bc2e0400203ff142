"""X_OGB: the features that came with the data, no encoder at all."""

from __future__ import annotations

import numpy as np

from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.methods.base import Learned, Run, Work, method
from labeldeconv.training.features import given


def own_features(graph: AttributedGraph) -> np.ndarray:
    """Features (n, d) that came with the data."""
    if graph.features is None:
        raise DataError(f"method 'given': graph '{graph.name}' has no features of its own")
    return graph.features


@method(
    "given",
    title="X_OGB",
    work=lambda graph, settings, hops: Work(exports=0),
    needs=lambda run: own_features(run.whole),
    adapts=False,
    color=8,
)
def given_features(run: Run) -> Learned:
    """The graph's own features, as they are."""
    X = given(own_features(run.whole))
    return Learned(X, run.last_gnn(X))
