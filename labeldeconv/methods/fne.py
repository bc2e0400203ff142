"""X_FNE: the encoder fine-tuned on the true labels of the train nodes, min L(psi(F), Y).

psi is one linear layer, as in the paper, or psi of the GNN (`train.head`).
"""

from __future__ import annotations

from labeldeconv.labels.targets import TrueTargets
from labeldeconv.methods.base import Complexity, Learned, Run, Work, method
from labeldeconv.training.encoder import TrainedEncoder


@method(
    "fne",
    title="X_FNE",
    trained_on="true labels",
    nodes="train",
    work=lambda graph, settings, hops: Work(settings.train.epochs * len(graph.split.train)),
    complexity=Complexity("O(|V_train|)", "O(|B|)", "Y"),
    color=2,
)
def finetuned(run: Run) -> Learned:
    """Features of an encoder trained on the true labels of the train nodes."""
    return learn_true_labels(run)


def learn_true_labels(run: Run, smoothing: float = 0.0, epochs: int | None = None) -> Learned:
    """X_FNE and the GNN on it; GLEM, where it is FNE, may smooth the labels and count its own epochs."""
    trained = train_on_true_labels(run, smoothing, epochs)
    X = run.features(trained)
    psi = trained if run.settings.train.head == "psi" else None  # a linear layer cannot be a GNN's start
    return Learned(X, run.last_gnn(X, psi), encoder=trained, psi=trained)


def train_on_true_labels(run: Run, smoothing: float = 0.0, epochs: int | None = None) -> TrainedEncoder:
    """The encoder phase on true labels, train nodes only; `epochs` instead of `train.epochs`."""
    targets = TrueTargets(run.graph.train_labels, run.weighted_task, smoothing)
    return run.train(targets, run.graph.split.train, head=run.label_head(), epochs=epochs)
