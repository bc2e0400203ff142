"""Graph sampling: encoder and GNN trained together on sampled subgraphs, with GAS histories or SAGE sampling."""

from __future__ import annotations

from math import ceil

from labeldeconv.errors import ConfigError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.methods.base import Complexity, Learned, Run, Work, method
from labeldeconv.propagation.sampling import metis
from labeldeconv.settings.models import Config
from labeldeconv.training.encoder import TrainedEncoder
from labeldeconv.training.features import Features, features
from labeldeconv.training.joint import Kind, TrainedHead, convolutions, joint, joint_gnn, joint_head

COMPLEXITY = Complexity("O(|V| |G(B)|/|B|)", "O(|G(B)|)", "Y & A")


def _sage_work(graph: AttributedGraph, settings: Config, hops: int) -> Work:
    config, train = settings.joint, len(graph.split.train)
    drawn = config.batch_nodes * sum(config.fanout**k for k in range(hops + 1))  # every target draws a tree
    trained = config.epochs * ceil(train / config.batch_nodes) * min(graph.num_nodes, drawn)
    exports = 1 + _exports_inside(settings)
    return Work(0, 1 + exports, 0) if settings.train.lr == 0 else Work(trained, exports, 0)


def _gas_work(graph: AttributedGraph, settings: Config, hops: int) -> Work:
    config = settings.joint
    trained = config.epochs * graph.num_nodes * (1 + config.max_neighbors / config.batch_nodes)
    return Work(0 if settings.train.lr == 0 else trained, 2 + _exports_inside(settings), 0)


def _exports_inside(settings: Config) -> int:
    """Further exports for epochs of the GNN alone: in the inductive setting its nodes are encoded on their own."""
    config = settings.joint
    return int(settings.setting == "inductive" and config.gnn == "joint" and config.gnn_epochs > 0)


def _needs_metis(run: Run) -> None:
    _needs_convolutions(run)
    metis()


def _needs_convolutions(run: Run) -> None:
    if run.settings.encoder.train_layers is not None:
        raise ConfigError(
            "encoder.train_layers: joint training trains the whole encoder, and every step encodes halo nodes anew; "
            f"leave it unset, got {run.settings.encoder.train_layers}"
        )
    convolutions(run.architecture.sample)


@method(
    "joint-gas",
    title="joint",
    trained_on="true labels, together with the GNN, METIS parts and histories",
    nodes="train",
    work=_gas_work,
    epochs=lambda settings: settings.joint.epochs,
    complexity=COMPLEXITY,
    needs=_needs_metis,
    color=7,
)
def joint_gas(run: Run) -> Learned:
    """Features of an encoder trained jointly with the GNN on METIS parts with historical embeddings (GAS)."""
    return _joint(run, "gas")


@method(
    "joint-sage",
    title="joint",
    trained_on="true labels, together with the GNN, sampled neighbours",
    nodes="train",
    work=_sage_work,
    epochs=lambda settings: settings.joint.epochs,
    complexity=COMPLEXITY,
    needs=_needs_convolutions,
    color=6,
)
def joint_sage(run: Run) -> Learned:
    """Features of an encoder trained jointly with the GNN on sampled neighbourhoods (SAGE)."""
    return _joint(run, "sage")


def _joint(run: Run, kind: Kind) -> Learned:
    settings = run.settings
    adjacency = settings.gnn.adjacency
    reads_edges = run.architecture.edge_dim > 0
    edges = run.graph if reads_edges else None
    convolutions(run.architecture.sample)
    # GAS histories start from X_PNE, and a fixed encoder gives nothing else.
    start = run.encode() if kind == "gas" or settings.train.lr == 0 else None
    trained = joint.called("train")(
        kind,
        run.tokens(),
        run.encoder,
        start,
        run.graph,
        run.architecture,
        run.output_bias,
        adjacency,
        settings.joint,
        run.training,
        settings.seed,
        edges,
        run.device,
        run.class_weights,
        settings.regression_loss,
    )
    X = run.features(trained)
    if settings.joint.gnn == "fresh":
        return Learned(X, run.last_gnn(X, trained), encoder=trained, psi=trained)
    head: TrainedEncoder | TrainedHead = trained
    if settings.joint.gnn_epochs > 0:
        inside = _training_features(run, trained) if run.inductive else X
        rates, seed = run.training, settings.seed
        arguments = (run.graph, run.architecture, adjacency, settings.joint, rates, seed, edges, run.device)
        losses = run.class_weights, settings.regression_loss
        head = joint_head.called("gnn epochs")(kind, trained, inside, *arguments, *losses)
    whole, batching = run.whole, settings.gnn.batching
    last = joint_gnn.called("gnn")(
        head,
        X,
        whole,
        run.architecture,
        adjacency,
        batching,
        whole if reads_edges else None,
        run.device,
        settings.metric,
    )
    return Learned(X, last, encoder=trained, psi=trained)


def _training_features(run: Run, trained: TrainedEncoder) -> Features:
    """Features of the nodes that training may see, in the inductive setting."""
    weights = run.encoder.with_trained(trained)
    return features.called("features inside")(run.tokens(), weights, run.training.precision, run.device)
