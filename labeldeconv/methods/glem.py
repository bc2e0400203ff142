"""X_GLEM: EM rounds. The E-step trains the encoder on gold and the GNN's pseudo labels, the M-step the GNN on the
encoder's features with gold and the encoder's pseudo labels. The round with the best validation score decides.

With `glem.first = "encoder"` the encoder is first trained on gold alone, whose GNN then teaches the first E-step. As
published GLEM also smooths gold labels (`glem.label_smoothing`), lets the GNN read the encoder's own predictions beside
its features (`glem.label_input`) and pools the first token (`encoder.pooling = "first"`).
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch

from labeldeconv.errors import ConfigError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import task_of_kind
from labeldeconv.labels.pseudo import HasLogits, Labels, pseudo
from labeldeconv.labels.targets import SoftTargets
from labeldeconv.methods.base import Complexity, Learned, Run, Work, method
from labeldeconv.methods.fne import learn_true_labels, train_on_true_labels
from labeldeconv.settings.models import Config
from labeldeconv.stages.files import map_array
from labeldeconv.stages.keys import Reads
from labeldeconv.stages.stage import Folder, stage
from labeldeconv.training.encoder import HasValues, TrainedEncoder, predict
from labeldeconv.training.features import Features
from labeldeconv.training.gnn import Taught

ROWS = 1 << 14  # nodes in a block


def _work(graph: AttributedGraph, settings: Config, hops: int) -> Work:
    config, train = settings.glem, len(graph.split.train)
    trained = config.rounds * _epochs(settings) * min(graph.num_nodes, train * (1 + config.encoder_ratio))
    trained += _pretrain_epochs(settings) * train if config.first == "encoder" else 0
    return Work(trained, config.rounds + 1, config.rounds + 1)


def _epochs(settings: Config) -> int:
    """Passes of an E-step."""
    return settings.train.epochs if settings.glem.epochs is None else settings.glem.epochs


def _pretrain_epochs(settings: Config) -> int:
    """Passes over the train nodes before the first round."""
    return settings.train.epochs if settings.glem.pretrain_epochs is None else settings.glem.pretrain_epochs


@method(
    "glem",
    title="X_GLEM",
    trained_on="true and pseudo labels, EM rounds",
    nodes="train and some others",
    work=_work,
    epochs=_epochs,
    complexity=Complexity("O(|V|)", "O(|B|)", "Y"),
    needs=lambda run: _check(run),
    color=4,
)
def glem(run: Run) -> Learned:
    """Features of the best of several EM rounds; encoder, psi and GNN are of that round too."""
    config = run.settings.glem
    if not (run.graph.split.roles > 0).any():
        # The inductive setting: no evaluation node to label, so GLEM is FNE (Section 5.8), as it is trained first.
        return learn_true_labels(run, config.label_smoothing, _pretrain_epochs(run.settings))
    trained: TrainedEncoder | None = None
    teacher: HasLogits
    if config.first == "gnn":
        teacher = run.first_gnn()
    else:
        trained = train_on_true_labels(run, config.label_smoothing, _pretrain_epochs(run.settings))
        teacher = _m_step(run, trained, None, 0).gnn
    best: Learned | None = None
    for number in range(1, config.rounds + 1):
        trained, Y = _e_step(run, teacher, None if config.restart else trained, number)
        learned = _m_step(run, trained, Y, number)
        teacher = learned.gnn
        if best is None or run.task.rank(learned.gnn.val) > run.task.rank(best.gnn.val):
            best = learned
    assert best is not None
    return best


def _check(run: Run) -> None:
    """Refuse settings that mean nothing where labels are numbers."""
    config = run.settings.glem
    for name, value, meaning in (
        ("label_smoothing", config.label_smoothing, 0.0),
        ("confident", config.confident, 1.0),
    ):
        if run.task.kind == "regression" and value != meaning:
            raise ConfigError(f"glem.{name}: the labels are numbers, without classes; {meaning} expected, got {value}")


def _e_step(run: Run, teacher: HasLogits, start: TrainedEncoder | None, number: int) -> tuple[TrainedEncoder, Labels]:
    """Train the encoder on gold and on the teacher's pseudo labels."""
    config, split = run.settings.glem, run.graph.split
    Y = pseudo.called(f"pseudo {number}")(teacher, run.graph, config.temperature)
    chosen = choose(run, Y, config.encoder_ratio)
    gold = split.train if config.label_smoothing > 0 else None
    trained = run.train(
        SoftTargets(Y, run.weighted_task, config.label_smoothing, gold),
        np.sort(np.concatenate([split.train, chosen])),
        head=run.label_head(),
        start=start,
        epochs=_epochs(run.settings),
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
    read = X
    if config.label_input:
        read = label_input.called(f"label input {number}")(X, predicted, run.graph, config.temperature)
    return Learned(X, run.gnn(read, taught=taught, label=f"gnn {number}"), trained, trained, Y)


@stage(version=1)
def label_input(
    out: Folder,
    features: HasValues,
    predicted: HasLogits,
    graph: Annotated[AttributedGraph, Reads("task", "num_classes")],
    temperature: float,
) -> Features:
    """The encoder's features and the distribution it predicts, side by side: (n, d + c) float16.

    It is predicted for train nodes too: with their true labels among its inputs a GNN would only copy them.
    """
    x, task = features.values, task_of_kind(graph.task, graph.num_classes)
    n, d = x.shape
    shape = (n, d + task.num_classes)
    values = map_array(out.path / "values.npy", shape, np.float16)
    for rows in (slice(lo, lo + ROWS) for lo in range(0, n, ROWS)):
        values[rows, :d] = x[rows]
        logits = torch.from_numpy(np.array(predicted.logits[rows], dtype=np.float32))
        values[rows, d:] = task.probabilities(logits, temperature).numpy()
    return Features(values, 0, 0.0)


def choose(run: Run, Y: Labels, ratio: float) -> np.ndarray:
    """Evaluation nodes (m,) to be taught by pseudo labels: the most confident share, then a seeded sample."""
    split = run.graph.split
    others = np.flatnonzero(split.roles > 0)
    labels = Y.values[others]
    if run.task.kind == "regression":
        sure = np.zeros(len(others))  # a number says nothing of its doubt: all may be chosen (`_check`)
    else:
        sure = labels.max(1) if run.task.kind == "multiclass" else np.abs(labels - 0.5).mean(1)
    kept = others[np.argsort(-sure, kind="stable")[: round(run.settings.glem.confident * len(others))]]
    count = min(len(kept), round(ratio * len(split.train)))
    return np.sort(np.random.default_rng(run.settings.seed).choice(kept, count, replace=False))
