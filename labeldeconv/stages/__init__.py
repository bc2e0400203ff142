"""The stages of a run, each cached by content key and resumable: tokens, encode, gnn, pseudo, hops, train, features.

A stage's key holds only what its result depends on, so methods and seeds share what they can: X_PNE is encoded once.
"""

from labeldeconv.stages.encoding import encode, features, tokens
from labeldeconv.stages.gnns import first_gnn, gnn
from labeldeconv.stages.labels import choice, hops, pseudo, soften
from labeldeconv.stages.training import predict, psi_logits, train

__all__ = [
    "choice",
    "encode",
    "features",
    "first_gnn",
    "gnn",
    "hops",
    "predict",
    "pseudo",
    "psi_logits",
    "soften",
    "tokens",
    "train",
]
