"""Label Deconvolution: Algorithm 1 of the paper, line by line; WO/LD, its ablation with alpha = 0; and hop heads.

Read `algorithm_1`. Every step is a stage: computed once, kept, and shared with all runs that need the same.
"""

from __future__ import annotations

import numpy as np

from labeldeconv.errors import ConfigError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.labels.gamma import gamma as choose_gamma
from labeldeconv.labels.hop_heads import shares_of_heads
from labeldeconv.labels.hop_tables import hops_by_spark
from labeldeconv.labels.hops import HopLabels, hops
from labeldeconv.labels.pseudo import Labels, pseudo
from labeldeconv.labels.targets import HopTargets, InverseTargets
from labeldeconv.lake.tables import Cluster
from labeldeconv.methods.base import Complexity, Learned, Run, Work, method
from labeldeconv.progress import logger
from labeldeconv.settings.models import Config
from labeldeconv.training.features import Features


def algorithm_1(run: Run, alpha: float, X: Features | None = None, name: str = "", heads: bool = False) -> Learned:
    """Algorithm 1. Pseudo labels come from a GNN on features X of the training graph, X_PNE if None.

    `name` tells the stages of several rounds apart. With `heads` the encoder learns every K_i behind a head of its own.
    """
    graph, labels = run.graph, run.settings.labels

    # 1  Input: graph A, node attributes {x_i}, (pseudo) labels Y.
    #    True labels are known of train nodes only; a first GNN, on features of the pre-trained encoder, predicts
    #    the others.
    first = None
    if not run.all_labelled:
        X_PNE = X or run.encode()
        first = run.first_gnn(X_PNE, f"first gnn{name}")
    Y = pseudo.called(f"pseudo{name}")(first, graph, labels.temperature)

    # 3  Pre-processing phase
    # 4  compute K_i = A-hat^i Y, i = 0..N
    N = run.hops if alpha > 0 else 0  # without inverse labels only K_0 = Y is read
    K = hop_labels_of(run, f"hops{name}", Y, N)

    # Beyond the paper: gamma chosen on the validation nodes (labels/gamma.py). All of it on K_0 is WO/LD.
    gamma = None
    if labels.gamma == "auto" and alpha > 0 and not heads:
        _need_validation_nodes(graph)
        gamma = choose_gamma.called(f"gamma{name}")(K, run.encode(), graph, run.settings.gnn.adjacency).gamma
        if gamma[0] == 1.0:
            logger.info("gamma: no mix of hop labels is surely better than Y, so alpha is 0")
            alpha, gamma = 0.0, None
            K = hops.called(f"hops of Y{name}")(Y, graph, labels.adjacency, 0, run.label_store)

    # 5  Training phase of NEs (optimise beta, theta, gamma); the loop is training/encoder.py
    # 6  for k = 1..K_1:
    # 7    sample B from V
    # 8    F_B = f(x_B; beta)
    # 9    Y(gamma)_B = sum_i gamma_i [K_i]_B
    # 10   step on L(psi(F_B; theta), Y(gamma)_B)
    targets = _hop_targets(run, Y, K, name) if heads else InverseTargets(K, alpha, run.task, gamma)
    trained = run.train(
        targets,
        np.arange(graph.num_nodes) if labels.nodes == "all" else graph.split.train,
        head=run.psi(first if run.settings.train.psi_init == "gnn" else None, targets.heads),
        pseudo_weight=labels.pseudo_weight,
        label=f"train{name}",
    )

    # 12 infer F across all nodes
    F = run.features(trained, f"features{name}")

    # 13 Training phase of GNNs (optimise theta); the loop is training/gnn.py
    # 14-17 for k = 1..K_2: step on L(GNN(F; A, theta), Y)
    GNN = run.first_gnn(F) if name else run.last_gnn(F, trained)  # that of an earlier round is the next one's first
    return Learned(F, GNN, trained, trained, Y, K, None if heads else alpha)


def _hop_targets(run: Run, Y: Labels, K: HopLabels, name: str) -> HopTargets:
    """Every K_i, and against the edges too where they have a direction; K_0 is learned where `labels.own` says."""
    labels, backward = run.settings.labels, None
    if not labels.adjacency.undirected:
        N = K.values.shape[1] - 1
        backward = hop_labels_of(run, f"hops back{name}", Y, N, backward=True)
    own = run.graph.train_labels if labels.own == "known" else None
    return HopTargets(K, run.task, backward, own, labels.hop_weights)


def _rounds(run: Run, alpha: float, heads: bool = False) -> Learned:
    """`labels.rounds` times Algorithm 1, each on pseudo labels of a GNN that has the features of the round before."""
    rounds = 1 if run.all_labelled else run.settings.labels.rounds  # true labels do not change
    X: Features | None = None
    for number in range(1, rounds):
        X = algorithm_1(run, alpha, X, f" {number}", heads).features
    return algorithm_1(run, alpha, X, heads=heads)


def hop_labels_of(run: Run, label: str, Y: Labels, number: int, backward: bool = False) -> HopLabels:
    """K_0 ... K_number of Y on the training graph, by the engine that is set; K_0 alone needs none."""
    labels = run.settings.labels
    asked = Y, run.graph, labels.adjacency, number, run.label_store, backward
    if labels.engine == "local" or number == 0:
        return hops.called(label)(*asked, run.kept_hops if number else None)
    return hops_by_spark.called(label)(*asked, Cluster(labels.master))


def _work(graph: AttributedGraph, settings: Config, hops: int) -> Work:
    labels, epochs = settings.labels, settings.train.epochs
    nodes = graph.num_nodes if labels.nodes == "all" else len(graph.split.train)
    return Work(labels.rounds * epochs * nodes, labels.rounds + 1, labels.rounds + 1)


@method(
    "ld",
    title="X_LD",
    trained_on="inverse labels Y(gamma) = sum gamma_i A-hat^i Y",
    nodes="all",
    work=_work,
    complexity=Complexity("O(|V|)", "O(|B|)", "Y & A"),
    needs=lambda run: _check_heads(run) if run.settings.labels.targets == "hops" else None,
    color=0,
)
def label_deconvolution(run: Run) -> Learned:
    """Features of an encoder trained on inverse labels: Label Deconvolution."""
    return _rounds(run, run.settings.labels.alpha, heads=run.settings.labels.targets == "hops")


@method(
    "ld-heads",
    title="X_LD-heads",
    trained_on="every hop label A-hat^i Y behind a head of its own",
    nodes="all",
    work=_work,
    complexity=Complexity("O(|V|)", "O(|B|)", "Y & A"),
    needs=lambda run: _check_heads(run),
    color=10,
)
def hop_heads(run: Run) -> Learned:
    """Features of an encoder trained on every hop label at once: LD with one head per hop, which needs no gamma."""
    return _rounds(run, 1.0, heads=True)


@method(
    "wo-ld",
    title="X_WO/LD",
    trained_on="true and pseudo labels (alpha = 0)",
    nodes="all",
    work=_work,
    complexity=Complexity("O(|V|)", "O(|B|)", "Y"),
    color=1,
)
def without_deconvolution(run: Run) -> Learned:
    """Features of an encoder trained on the plain pseudo labels: LD with alpha = 0."""
    return _rounds(run, 0.0)


def _check_heads(run: Run) -> None:
    """Refuse settings that hop heads cannot follow."""
    labels, heads = run.settings.labels, run.hops + 1
    if not labels.adjacency.undirected:
        heads += run.hops
    if labels.pseudo_weight is not None:
        raise ConfigError(
            "labels.pseudo_weight: it weighs pseudo labels of the mix; hop heads have labels.own and labels.hop_weights"
        )
    shares_of_heads(labels.hop_weights, heads)
    if run.architecture.finished:
        raise ConfigError(
            f"labels.targets 'hops': psi needs {heads} times as many outputs as there are classes; the GNN was given "
            "as an object, whose outputs are what they are: give its class instead"
        )


def _need_validation_nodes(graph: AttributedGraph) -> None:
    if len(graph.split.val) == 0:
        raise ConfigError("labels.gamma 'auto': validation nodes expected; the inductive setting hides them")
