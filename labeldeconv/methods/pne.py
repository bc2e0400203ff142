"""X_PNE: features of the pre-trained encoder as it is."""

from __future__ import annotations

from labeldeconv.methods.base import Learned, Run, method


@method("pne", title="X_PNE", color=3)
def pretrained(run: Run) -> Learned:
    """Features of the untouched encoder."""
    X = run.features(None, "encode")
    return Learned(X, run.gnn(X))
