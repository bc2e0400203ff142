"""X_GLEM: EM rounds. The E-step trains the encoder on gold and the GNN's pseudo labels, the M-step the GNN on the
encoder's features with gold and the encoder's pseudo labels. The round with the best validation score decides.
"""

from __future__ import annotations

import numpy as np

from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.labels.pseudo import HasLogits, Labels, pseudo
from labeldeconv.labels.targets import SoftTargets
from labeldeconv.methods.base import Complexity, Learned, Run, Work, method
from labeldeconv.methods.fne import finetuned, train_on_true_labels
from labeldeconv.settings.models import Config
from labeldeconv.training.encoder import TrainedEncoder, predict
from labeldeconv.training.gnn import Taught


def _work(graph: AttributedGraph, settings: Config, hops: int) -> Work:
    config, epochs, train = settings.glem, settings.train.epochs, len(graph.split.train)
    trained = config.rounds * epochs * min(graph.num_nodes, train * (1 + config.encoder_ratio))
    trained += epochs * train if config.first == "encoder" else 0
    return Work(trained, config.rounds + 1, config.rounds + 1)


@method(
    "glem",
    title="X_GLEM",
    trained_on="true and pseudo labels, EM rounds",
    nodes="train and some others",
    work=_work,
    complexity=Complexity("O(|V|)", "O(|B|)", "Y"),
    color=4,
)
def glem(run: Run) -> Learned:
    """Features of the best of several EM rounds; encoder, psi and GNN are of that round too."""
    config = run.settings.glem
    if not (run.graph.split.roles > 0).any():
        return finetuned(run)  # the inductive setting: no evaluation node to label, so GLEM is FNE (Section 5.8)
    trained: TrainedEncoder | None = None
    teacher: HasLogits
    if config.first == "gnn":
        teacher = run.first_gnn()
    else:
        trained = train_on_true_labels(run)
        teacher = _m_step(run, trained, None, 0).gnn
    best: Learned | None = None
    for number in range(1, config.rounds + 1):
        trained, Y = _e_step(run, teacher, None if config.restart else trained, number)
        learned = _m_step(run, trained, Y, number)
        teacher = learned.gnn
        if best is None or learned.gnn.val > best.gnn.val:
            best = learned
    assert best is not None
    return best


def _e_step(run: Run, teacher: HasLogits, start: TrainedEncoder | None, number: int) -> tuple[TrainedEncoder, Labels]:
    """Train the encoder on gold and on the teacher's pseudo labels."""
    config = run.settings.glem
    Y = pseudo.called(f"pseudo {number}")(teacher, run.graph, config.temperature)
    chosen = choose(run, Y, config.encoder_ratio)
    trained = run.train(
        SoftTargets(Y, run.task),
        np.sort(np.concatenate([run.graph.split.train, chosen])),
        head=run.label_head(),
        start=start,
        pseudo_weight=config.encoder_weight if len(chosen) else None,
        label=f"train {number}",
    )
    return trained, Y


def _m_step(run: Run, trained: TrainedEncoder, Y: Labels | None, number: int) -> Learned:
    """Features of the encoder, and a GNN on them taught by gold and by the encoder's pseudo labels."""
    config = run.settings.glem
    X = run.features(trained, f"features {number}")
    predicted = predict.called(f"predict {number}")(trained, X, run.label_head())
    of_encoder = pseudo.called(f"encoder pseudo {number}")(predicted, run.graph, config.temperature)
    chosen = choose(run, of_encoder, config.gnn_ratio)
    w = min(config.gnn_weight, 1 - 1e-6)
    taught = Taught(of_encoder, chosen, w / (1 - w)) if len(chosen) and w > 0 else None  # gold has weight 1 there
    return Learned(X, run.gnn(X, taught=taught, label=f"gnn {number}"), trained, trained, Y)


def choose(run: Run, Y: Labels, ratio: float) -> np.ndarray:
    """Evaluation nodes (m,) to be taught by pseudo labels: the most confident share, then a seeded sample."""
    split = run.graph.split
    others = np.flatnonzero(split.roles > 0)
    labels = Y.values[others]
    sure = labels.max(1) if run.task.kind == "multiclass" else np.abs(labels - 0.5).mean(1)
    kept = others[np.argsort(-sure, kind="stable")[: round(run.settings.glem.confident * len(others))]]
    count = min(len(kept), round(ratio * len(split.train)))
    return np.sort(np.random.default_rng(run.settings.seed).choice(kept, count, replace=False))
