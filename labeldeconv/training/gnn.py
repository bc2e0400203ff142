"""The training phase of the GNN: Algorithm 1, lines 13-17. Weights and predictions are of the best validation epoch.

Labels of test nodes cannot be read here: the stage gets those of train and validation nodes only.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from labeldeconv.errors import ConfigError
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.gnns.base import GNN
from labeldeconv.gnns.workload import Size, sampled_mib, training_mib
from labeldeconv.graph.attributed import AttributedGraph, edges_among
from labeldeconv.graph.split import Split
from labeldeconv.graph.task import Task
from labeldeconv.labels.pseudo import Labels
from labeldeconv.progress import bar, logger
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.hop_blocks import RowBlock, adjacencies_fit, blocks_fit
from labeldeconv.propagation.outofcore import block_bytes
from labeldeconv.propagation.sampling import METIS_BYTES
from labeldeconv.settings.models import GNNConfig, MetricName, RegressionLoss
from labeldeconv.stages import ranks
from labeldeconv.stages.files import write_array, write_text
from labeldeconv.stages.keys import Idle, Reads, Younger
from labeldeconv.stages.memory import MIB, free_memory_mib, freed_memory_kept
from labeldeconv.stages.memory_limit import check_room
from labeldeconv.stages.stage import Artefact, Folder, stage
from labeldeconv.training.checkpoint import Checkpoint
from labeldeconv.training.consistency import Consistency
from labeldeconv.training.encoder import HasValues, TrainedEncoder, start_outputs
from labeldeconv.training.feed import Batch, Feed, InductiveFeed, edge_values, make_feed, neighbor_fanouts
from labeldeconv.training.finite import check_loss, check_rows, check_weights
from labeldeconv.training.global_batch import mixed_seed, sum_gradients
from labeldeconv.training.label_reuse import LabelReuse
from labeldeconv.training.layerwise import FIXED, inference_bytes
from labeldeconv.training.row_shares import SharedRowFeed, share_norms
from labeldeconv.training.seed_shares import SharedNeighborFeed
from labeldeconv.training.supervision import SoftLabels, Supervision, confident, node_losses

GRAPH = ("edges", "num_nodes", "train_labels", "known_labels", "split", "task", "num_classes")  # read of the graph
READS = (  # of the settings; name, layers, hidden, dropout and options are the architecture's
    "output_bias", "optimizer", "lr", "weight_decay", "warmup_epochs", "schedule", "epochs", "patience", "eval_every",
    "batching", "batch_nodes", "fanouts", "clusters", "clusters_per_batch", "batch_rows", "self_training",
    "consistency", "checkpoint_minutes", "adjacency", "loss", "choose", "label_reuse",
)  # fmt: skip
LESS = "gnn.batching=neighbors, a smaller gnn.batch_nodes or gnn.fanouts, or a GNN fed by rows (sagn)"
LOG = "epochs.jsonl"  # one line per evaluation: epoch, loss, val, and stage where there are several
WEIGHT_DECAY = 5e-4  # of all but multi-label GNNs, unless set
OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop}


@dataclass(frozen=True, eq=False)
class TrainedGNN(Artefact):
    """A trained GNN: logits (n, c) of all nodes, weights, log, validation score, and how long it took.

    Args:
        log: loss and validation score by epoch.
        val: the score at `best_epoch`; the test score is for whoever may see test labels.
        epochs: epochs trained, of all stages of self-training.
        taught_labels: labels (n, c) that feed the label branch, where there are others among them than the train
            nodes' own; None elsewhere.
    """

    logits: np.ndarray
    weights: Path
    log: Path
    val: float
    best_epoch: int
    epochs: int
    seconds: float
    taught_labels: Path | None = None


@dataclass(frozen=True, eq=False)
class Taught:
    """Nodes `ids` (m,) that a GNN is taught with (pseudo) labels Y beside the true ones; the weight of their loss."""

    Y: Labels
    ids: np.ndarray
    weight: float


@dataclass(frozen=True, eq=False)
class KeptGNN:
    """Weights of a GNN that an earlier run has trained, a file, and what stands for them in keys."""

    weights: Path
    content_key: str


def by_ranks(arguments: Mapping[str, Any]) -> bool:
    """Whether ranks share the training of a GNN: one fed by rows, or by neighbours with room for every A-hat."""
    graph, settings = arguments["graph"], arguments["settings"]
    if arguments["architecture"].sample.feed == "rows":
        return True
    size = (graph.num_nodes, graph.edges.shape[1], settings.adjacency)
    return bool(settings.batching == "neighbors" and adjacencies_fit(*size))


@stage(version=7, parallel=by_ranks)  # 7: hop features are propagated in float16
def gnn(
    out: Folder,
    features: HasValues,
    graph: Annotated[AttributedGraph, Reads(*GRAPH)],
    architecture: Architecture,
    settings: Annotated[GNNConfig, Reads(*READS)],
    seed: int,
    inductive: bool = False,
    edges: Annotated[AttributedGraph | None, Reads("edge_features")] = None,
    taught: Taught | None = None,
    start: TrainedEncoder | KeptGNN | None = None,
    device: Annotated[torch.device, Idle] = torch.device("cpu"),
    metric: MetricName | None = None,
    weights: tuple[float, ...] | None = None,
    loss: Annotated[RegressionLoss, Younger] = "mse",
) -> TrainedGNN:
    """A GNN trained on fixed features (n, d).

    All ranks train one that is fed by rows (training/row_shares.py) or by sampled neighbours (training/seed_shares.py).

    Args:
        inductive: train on the graph of the train nodes, predict on the whole one.
        edges: the graph again, where the GNN reads edge features.
        taught: more nodes to learn from, with soft labels.
        start: an encoder phase whose psi the GNN begins as, or a GNN of which it takes all weights that fit.
        metric: the score that chooses the epoch; None: the task's own.
        weights: of the classes (c,) in the loss; None: all equal.
        loss: of a regression.
    """
    x = features.values
    task = Task.of(graph, metric, weights, loss)
    torch.manual_seed(seed)
    model = architecture.build(x.shape[1], graph.num_classes).to(device)
    bias = output_start(task, graph.train_labels, settings.output_bias)
    if bias is not None:
        start_outputs(model, bias)
    if isinstance(start, KeptGNN):
        take_fitting(model, start.weights, out.label)
    elif start is not None:
        model.load_state_dict(load_file(start.head))
    needed = gnn_bytes(model, graph, settings)
    check_room(out.label, needed, LESS)
    if ranks.world() > 1:
        share_norms(model)
    values = edge_values(edges, model.edge_dim) if model.edge_dim else None
    feed = _feed(model, x, graph.edges, graph.num_nodes, values, settings, out.path, device)
    if inductive:
        feed = _inductive_feed(model, x, graph, values, feed, settings, out.path, device)
    soft = None if taught is None else SoftLabels(taught.Y.values, taught.ids, taught.weight)
    roomy = needed / MIB < (free_memory_mib() or 0.0) / 4  # what is freed and kept may not fit what is asked for next
    with freed_memory_kept() if roomy else nullcontext():
        return train_gnn(model, feed, task, graph.known_labels, graph.split, settings, seed, out, soft)


def take_fitting(model: GNN, weights: Path, label: str) -> None:
    """Load the weights of a file whose names and shapes the GNN has too, and say how many."""
    own = model.state_dict()
    fitting = {name: w for name, w in load_file(weights).items() if name in own and own[name].shape == w.shape}
    model.load_state_dict({**own, **fitting})
    logger.info("%s: starts from %d of %d tensors of %s", label, len(fitting), len(own), weights)


def gnn_bytes(model: GNN, graph: AttributedGraph, settings: GNNConfig) -> float:
    """Memory that training and predicting take at their peak: A-hat while it is built, or with the batches it feeds."""
    n, size = graph.num_nodes, (graph.num_nodes, graph.edges.shape[1], settings.adjacency)
    held = Adjacency.held_bytes(*size)
    logits = 12 * n * graph.num_classes  # of all nodes: of this evaluation, of the best one, and joined from parts
    if model.feed == "rows":
        width = (model.hops + 1) * (model.in_dim + 4 * max(p.shape[0] for p in model.parameters() if p.ndim == 2))
        working: float = max(
            block_bytes(n), 12 * min(settings.batch_rows, n) * width
        )  # a batch, its gradients, the next one
    elif settings.batching == "full":
        entries = held // 4
        working = FIXED + 1.5 * training_mib(model, Size(n, entries, n, 0)) * MIB  # what is freed is kept and torn
    elif settings.batching == "neighbors":
        step = sampled_mib(model, n, settings.batch_nodes, neighbor_fanouts(model, settings)) * MIB
        working = max(step, inference_bytes(model, n, held // 4))
    else:
        share, entries = min(1.0, settings.clusters_per_batch / settings.clusters), held // 4
        step = training_mib(model, Size(int(share * n), int(share * entries), n, 0)) * MIB
        working = max(step, METIS_BYTES * entries, inference_bytes(model, n, entries))
    return max(Adjacency.building_bytes(*size), held + working + logits)


def output_start(task: Task, train_labels: np.ndarray, kind: str) -> np.ndarray | None:
    """Where a multi-label GNN's outputs start (c,): at the labels' frequencies; None leaves the layer's own start.

    At even odds training first spends hundreds of steps on making rare labels rare (docs/gnns.md).
    """
    if task.kind != "multilabel" or kind != "frequency":
        return None
    return task.frequency(train_labels).logit().numpy()


def _feed(
    model: GNN,
    x: np.ndarray,
    edges: np.ndarray,
    num_nodes: int,
    values: np.ndarray | None,
    settings: GNNConfig,
    folder: Path,
    device: torch.device,
) -> Feed:
    if ranks.world() > 1 and model.feed == "rows":
        fits = blocks_fit(num_nodes, edges.shape[1], settings.adjacency)
        together = bool(ranks.of_first({"together": fits})["together"])
        block = RowBlock.from_edges(edges, num_nodes, settings.adjacency) if together else None
        if model.label_hops or (ranks.leads() and not together):
            adj = Adjacency.from_edges(edges, num_nodes, settings.adjacency)
        else:
            adj = Adjacency.identity(num_nodes)  # nothing reads it: hop features are made by blocks, or by rank 0
        return SharedRowFeed(x, adj, model.hops, settings.batch_rows, folder, device, block)
    adj = Adjacency.from_edges(edges, num_nodes, settings.adjacency)
    if values is not None:
        adj = adj.with_edge_features(edges, values)
    if ranks.world() > 1:
        fanouts = neighbor_fanouts(model, settings)
        return SharedNeighborFeed(x, adj, settings.batch_nodes, fanouts, folder, device)
    return make_feed(model, x, adj, settings, folder, device)


def _inductive_feed(
    model: GNN,
    x: np.ndarray,
    graph: AttributedGraph,
    values: np.ndarray | None,
    whole: Feed,
    settings: GNNConfig,
    folder: Path,
    device: torch.device,
) -> Feed:
    """Training batches from the graph of the train nodes alone, predictions from the whole graph."""
    if model.label_hops or model.reads_labels or settings.consistency.weight or settings.self_training.stages > 1:
        raise ConfigError(
            f"setting 'inductive': {type(model).__name__} with label inputs, consistency or self-training uses others"
        )
    nodes = graph.split.train
    inside, kept = edges_among(graph.edges, nodes, graph.num_nodes)
    inner = folder / "view"
    inner.mkdir(exist_ok=True)
    part = None if values is None else np.asarray(values[kept])
    view = _feed(model, x[nodes], inside, len(nodes), part, settings, inner, device)
    return InductiveFeed(view, whole, nodes)


def train_gnn(
    gnn: GNN,
    feed: Feed,
    task: Task,
    labels: np.ndarray,
    split: Split,
    config: GNNConfig,
    seed: int,
    out: Folder,
    soft: SoftLabels | None = None,
) -> TrainedGNN:
    """Train `gnn` on the true labels of the train nodes, and on `soft` ones; it ends with its best weights."""
    training = _Training(gnn, feed, task, labels, split, config, seed, out, soft)
    state, stages = training.state, config.self_training.stages
    with bar(out.label, total=stages * config.epochs, unit="epochs", done=state["total"]) as advance:
        for number in range(state["stage"], stages):
            taught = training.supervise(number)
            for epoch in range(state["epoch"] + 1, config.epochs + 1):
                loss = training.epoch(taught, number, epoch)
                note = ""
                if epoch % config.eval_every == 0 or epoch == config.epochs:
                    score = training.evaluate(number, epoch, loss)
                    note = f"loss {loss:.3f} val {score:.4f} best {state['best_score']:.4f}"
                advance(1, note)
                if config.patience and epoch - state["stage_epoch"] >= config.patience * config.eval_every:
                    break
                if training.checkpoint.due:
                    training.save()
            if number + 1 < stages:
                training.hand_over(number)
    return training.finish()


class _Training:
    """A training under way: what a checkpoint keeps, and the parts of the loop."""

    def __init__(
        self,
        gnn: GNN,
        feed: Feed,
        task: Task,
        labels: np.ndarray,
        split: Split,
        config: GNNConfig,
        seed: int,
        out: Folder,
        soft: SoftLabels | None,
    ) -> None:
        _check(config, task)
        self.gnn, self.feed, self.task, self.labels, self.split = gnn, feed, task, labels, split
        self.config, self.seed, self.folder, self.soft = config, seed, out.path, soft
        self.watch, self.label = out.watch, out.label
        self.advice = f"lower gnn.lr (now {config.lr:g}); the last good checkpoint is kept"
        torch.manual_seed(seed)
        self.initial, self.best = _copy(gnn), _copy(gnn)
        used = config.consistency.weight > 0
        self.consistency = Consistency(gnn, config.consistency, task) if used else None
        reads = gnn.reads_labels
        self.reuse = LabelReuse(task, labels, split.train, config.label_reuse) if reads else None
        kind = OPTIMIZERS[config.optimizer]
        self.optimizer = kind(gnn.parameters(), lr=config.lr, weight_decay=_weight_decay(config, task))
        path = out.path / "checkpoint.safetensors"
        self.checkpoint = Checkpoint(path, gnn, self.optimizer, config.checkpoint_minutes)
        self.state: dict[str, Any] = {"stage": 0, "epoch": 0, "total": 0, "rows": 0}
        self.state |= {
            "best": None,
            "best_score": 0.0,
            "best_epoch": 0,
            "best_stage": 0,
            "stage_best": None,
            "stage_epoch": 0,
        }
        if restored := self.checkpoint.load():
            self.state, self.best = restored[0], _named(restored[1], "best")
            if self.consistency:
                self.consistency.teacher.load_state_dict(_named(restored[1], "teacher"))
        if ranks.world() > 1:
            ranks.agree(out.label, {"weights at the start": self.checkpoint.fingerprint(self.state)})
        log = out.path / LOG
        self.rows = log.read_text().splitlines()[: self.state["rows"]] if log.exists() else []
        out.watch.replay(self.rows)

    def supervise(self, number: int) -> Supervision:
        """What stage `number` of self-training is taught; sets the label inputs that go with it."""
        soft = self.soft
        if number > 0:
            logits = np.load(self._logits_of(number - 1), allow_pickle=False)
            soft = confident(self.task, logits, self.split, self.config.self_training)
        taught = Supervision(self.task, self.labels, self.split.train, soft, self.config.loss)
        self.feed.label_inputs = taught.label_inputs(self.feed.adj, self.gnn.label_hops)
        return taught

    def epoch(self, taught: Supervision, number: int, epoch: int) -> float:
        """One epoch; returns the mean loss."""
        _set_rate(self.optimizer, self.config, epoch)
        if ranks.world() > 1:  # dropout of other rows on every rank, and the same after a restart
            torch.manual_seed(mixed_seed(self.seed, number, epoch, ranks.rank()))
        generator = np.random.default_rng([self.seed, number, epoch])
        progress = epoch / self.config.epochs
        arguments = (generator, self.consistency, epoch, progress, self.reuse)
        place = (self.label, f"epoch {epoch}", self.advice)
        loss = _epoch(self.gnn, self.feed, taught, self.optimizer, *arguments, place)
        self.state |= {"epoch": epoch, "total": self.state["total"] + 1}
        return loss

    def evaluate(self, number: int, epoch: int, loss: float) -> float:
        """Score on the validation nodes; keeps the best weights of the stage and of all stages."""
        score, val_loss = self._validate()
        rank = self.task.rank(score)
        mark = [rank, -val_loss] if self.config.choose == "score" else [-val_loss, rank]  # the second where equal
        if self.state["stage_best"] is None or mark > self.state["stage_best"]:
            self.state |= {"stage_best": mark, "stage_epoch": epoch}
        if self.state["best"] is None or mark > self.state["best"]:
            self.state |= {"best": mark, "best_score": score, "best_epoch": epoch, "best_stage": number}
            self.best = _copy(self.gnn)
        row = {"epoch": epoch, "loss": loss, "val": score}
        if self.config.self_training.stages > 1:
            row = {"stage": number, **row}
        self.rows.append(json.dumps(row))
        self.watch(row)
        return score

    def hand_over(self, number: int) -> None:
        """The best GNN so far teaches a fresh one in the next stage."""
        logits = self._best_logits()
        if ranks.leads():
            write_array(self._logits_of(number), logits)
        self.gnn.load_state_dict(self.initial)
        if self.consistency:
            self.consistency.teacher.load_state_dict(self.initial)
        self.optimizer.state.clear()
        self.state |= {"stage": number + 1, "epoch": 0, "stage_best": None, "stage_epoch": 0}
        self.save()
        ranks.meet(f"{self.label}, stage {number + 2} of self-training")  # which reads these logits

    def save(self) -> None:
        """Write log and checkpoint; the one before stays where a weight is not finite."""
        check_weights(self.gnn, self.label, self.advice)
        if not ranks.leads():
            return
        self._write_log()
        teacher = self.consistency.teacher.state_dict() if self.consistency else {}
        extra = {f"best.{k}": v for k, v in self.best.items()} | {f"teacher.{k}": v for k, v in teacher.items()}
        taught = [self._logits_of(number) for number in range(self.state["stage"])]
        self.checkpoint.save({**self.state, "rows": len(self.rows)}, extra, [self.folder / LOG, *taught])

    def finish(self) -> TrainedGNN:
        """What the best weights give. The cache deletes what only a resumed attempt needs, once all is written."""
        self._write_log()
        logits = self._best_logits()
        taught_labels = None
        if self.gnn.label_hops and (taught := self.supervise(self.state["best_stage"])).soft is not None:
            taught_labels = self.folder / "taught_labels.npy"
            if ranks.leads():
                np.save(taught_labels, taught.taught_labels())
        val = self.task.score(logits[self.split.val], self.labels[self.split.val])
        weights, log = self.folder / "gnn.safetensors", self.folder / LOG
        if ranks.leads():
            save_file(self.gnn.state_dict(), weights)
        epochs = self.state["best_epoch"], self.state["total"]
        return TrainedGNN(logits, weights, log, val, *epochs, self.checkpoint.seconds, taught_labels)

    def _best_logits(self) -> np.ndarray:
        self.gnn.load_state_dict(self.best)
        self.supervise(self.state["best_stage"])
        return self._predict(np.arange(len(self.labels)))

    def _validate(self) -> tuple[float, float]:
        """Score and mean loss on the validation nodes; a NaN score, without a known label, counts as the worst."""
        val = self.split.val
        logits, labels = self._predict(val), self.labels[val]
        score = self.task.score(logits, labels)
        targets = torch.from_numpy(self.task.targets(labels))
        loss = node_losses(self.task, torch.from_numpy(logits), targets, self.config.loss).nanmean()
        worst = -math.inf if self.task.higher_is_better else math.inf
        return (worst if math.isnan(score) else score), float(loss)

    def _predict(self, nodes: np.ndarray) -> np.ndarray:
        """Logits (m, c) of `nodes` (m,), all finite; a GNN that reads labels is shown all of the train nodes."""
        self.gnn.eval()
        if self.reuse:
            self.reuse.show(self.gnn, self.feed, self.split.train)
        with torch.inference_mode():
            logits = self.feed.predict(self.gnn, nodes).float().cpu().numpy()
        check_rows(logits, self.label, "logits", self.advice, nodes)
        return logits

    def _logits_of(self, number: int) -> Path:
        return self.folder / f"stage-{number}.npy"

    def _write_log(self) -> None:
        if ranks.leads():
            write_text(self.folder / LOG, "".join(f"{row}\n" for row in self.rows))


def _epoch(
    gnn: GNN,
    feed: Feed,
    taught: Supervision,
    optimizer: torch.optim.Optimizer,
    generator: np.random.Generator,
    consistency: Consistency | None,
    epoch: int,
    progress: float,
    reuse: LabelReuse | None,
    place: tuple[str, str, str],
) -> float:
    """One pass over the taught nodes; returns the mean loss on them.

    A loss that is not finite changes no weight; `place` is the stage, the epoch and the advice that are told then.
    """
    gnn.train()
    nodes = taught.nodes if reuse is None else reuse.hide(gnn, feed, taught.nodes, generator)
    total, count = 0.0, 0
    others: Iterator[Batch | None] = itertools.repeat(None)
    if consistency:
        unlabelled = np.setdiff1d(np.arange(len(taught.labels)), taught.train)
        others = itertools.chain.from_iterable(feed.batches(unlabelled, generator) for _ in itertools.count())
    for batch, other in zip(feed.batches(nodes, generator), others, strict=False):
        optimizer.zero_grad(set_to_none=True)
        whole = batch.ids if batch.whole is None else batch.whole
        loss = taught.loss(batch.logits(gnn), batch.ids, whole)
        told = loss.detach().clone()
        ranks.add_up(told)  # of the shares of all ranks, where there are several
        value = float(told)
        check_loss(value, whole, *place)
        total, count = total + value * len(whole), count + len(whole)
        if consistency and other is not None:
            loss = loss + consistency.loss(gnn, other, epoch, progress)
        loss.backward()
        if batch.whole is not None:
            sum_gradients(gnn)
        optimizer.step()
        if consistency:
            consistency.follow(gnn)
    return total / max(count, 1)


def _set_rate(optimizer: torch.optim.Optimizer, config: GNNConfig, epoch: int) -> None:
    """Linear rise over `warmup_epochs`, then constant or linear fall to 0 after the last epoch."""
    scale = min(1.0, epoch / config.warmup_epochs) if config.warmup_epochs else 1.0
    if config.schedule == "linear":
        scale *= 1 - (epoch - 1) / config.epochs
    for group in optimizer.param_groups:
        group["lr"] = config.lr * scale


def _weight_decay(config: GNNConfig, task: Task) -> float:
    default = 0.0 if task.kind == "multilabel" else WEIGHT_DECAY
    return default if config.weight_decay is None else config.weight_decay


def _check(config: GNNConfig, task: Task) -> None:
    for name, used in (("self_training", config.self_training.stages > 1), ("consistency", config.consistency.weight)):
        if used and task.kind != "multiclass":
            raise ConfigError(f"gnn.{name}: confident predictions are defined for multi-class tasks only")


def _copy(gnn: GNN) -> dict[str, Tensor]:
    return {k: v.clone() for k, v in gnn.state_dict().items()}


def _named(tensors: dict[str, Tensor], group: str) -> dict[str, Tensor]:
    return {k.removeprefix(f"{group}."): v for k, v in tensors.items() if k.startswith(f"{group}.")}
