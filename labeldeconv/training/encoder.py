"""The training phase of the encoder: Algorithm 1, lines 5-11, for every method. beta, theta and gamma' train together.

The objective is L(psi(F_B; theta), Y(gamma)_B) (eqn:obj_ld). A method is a choice of targets and of nodes; the head is
psi of the GNN, or a linear layer: in FNE and GLEM, as in the paper; GIANT, whose targets are nodes, has `output_rows`.
"""

from __future__ import annotations

import json
import math
import os
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.pretrained import Weights
from labeldeconv.encoders.tokens import Tokens, ahead, epoch_batches
from labeldeconv.encoders.trunk import TokenStates, split_for
from labeldeconv.encoders.vocabulary import used_vocabulary
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.gnns.base import Psi
from labeldeconv.graph.task import Task
from labeldeconv.labels.hop_heads import HopHeads
from labeldeconv.labels.neighbours import NeighbourOutputs
from labeldeconv.labels.targets import Targets
from labeldeconv.progress import bar, logger
from labeldeconv.settings.models import TrainConfig
from labeldeconv.stages import ranks
from labeldeconv.stages.keys import Idle, Reads
from labeldeconv.stages.memory_limit import check_room, room
from labeldeconv.stages.stage import Artefact, Folder, stage
from labeldeconv.training.checkpoint import Checkpoint
from labeldeconv.training.finite import check_loss, check_rows, check_weights
from labeldeconv.training.global_batch import Share, share_of, sum_gradients
from labeldeconv.training.moments import CompactAdamW, moment_bytes
from labeldeconv.training.output_rows import OutputRows, RowAdamW
from labeldeconv.training.recomputation import activations, widest_rows
from labeldeconv.training.sharding import clip_shards, cut, whole_encoder
from labeldeconv.training.steps import encoder_autocast, fused_optimizer, open_log, parameter_groups, set_learning_rates

LESS = "lower train.batch_nodes and train.batch_tokens, or set train.gradient_checkpointing=true"
LOG = "steps.jsonl"  # one line per optimiser step: step, epoch, loss, lr, gamma
READS = (  # of the settings; psi_init and psi_norm are the head's
    "epochs", "lr", "psi_lr", "gamma_lr", "weight_decay", "warmup", "clip", "dropout", "batch_nodes", "batch_tokens",
    "accumulate", "precision", "gradient_checkpointing", "optimizer_states", "checkpoint_minutes", "parallel",
)  # fmt: skip
ROWS = 1 << 14  # features that go through a head at a time


class Clock:
    """Seconds by part of a step: `lap(part)` books the time since the last lap.

    On a GPU, where work is queued, waiting for it is booked on the part that waits: 'backward' for a training step.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def start(self) -> None:
        """Forget the time since the last lap."""
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """Book the time since the last lap on `part`."""
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
        self._last = now


class Objective(nn.Module):
    """Encoder, head and targets, and the loss between them.

    Args:
        encoder: tokens to features, beta.
        head: features (b, d) to logits (b, c), theta: psi of the GNN or a linear layer.
        targets: node ids (b,) to soft labels (b, c); may own parameters (gamma').
        task: the loss l.
        dropout: on the features.
        pseudo_weight: None for one mean over the batch; else (1 - w) mean over gold + w mean over the others.
        gold: (n,) bool, the train nodes; needed for `pseudo_weight` only.
    """

    def __init__(
        self,
        encoder: Encoder,
        head: nn.Module,
        targets: nn.Module,
        task: Task,
        dropout: float = 0.0,
        pseudo_weight: float | None = None,
        gold: np.ndarray | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.targets = targets
        self.task = task
        self.dropout = nn.Dropout(dropout)
        self.pseudo_weight = pseudo_weight
        self.gold = gold
        self.clock = Clock()  # seconds by part of the step, booked by the training loop too

    def forward(
        self, ids: np.ndarray, *inputs: Tensor, same: Tensor | None = None, share: Share | None = None
    ) -> Tensor:
        """Loss of the nodes `ids` (b,).

        Args:
            inputs: of the encoder: tokens and mask (b, t), as a rule.
            same: (b,) places among the inputs, where nodes with equal attributes share one; None: each has its own.
            share: what this rank encodes of the batch, where several ranks do; None: all of it.
        """
        features = self.encoder(*inputs) if share is None else share.features(self.encoder, inputs)  # (b, d), line 8
        if same is not None:
            features = features[same]
        self.clock.lap("encoder")
        if isinstance(self.targets, NeighbourOutputs):  # GIANT: some of very many outputs, which the head is told
            some = self.targets(ids)
            self.clock.lap("targets")
            return some.loss(self.head(self.dropout(features), some.outputs).float()).mean()
        logits = self.head(self.dropout(features)).float()  # (b, c)
        self.clock.lap("psi")
        if isinstance(self.targets, HopHeads):  # one head per hop label
            return self.targets(logits, ids).mean()
        targets = self.targets(ids).to(logits.device)  # (b, c), line 9
        self.clock.lap("targets")
        losses = self.task.loss(logits, targets)  # (b,)
        if self.pseudo_weight is None or self.gold is None:
            return losses.mean()
        gold = torch.from_numpy(self.gold[ids]).to(losses.device)
        w = self.pseudo_weight
        return (1 - w) * _mean(losses, gold) + w * _mean(losses, ~gold)


class Head(Protocol):
    """What is put behind the encoder, as a stage's argument: a frozen dataclass that can make the module."""

    def build(self, dim: int, targets: nn.Module, nodes: np.ndarray) -> nn.Module:
        """The module for features of width `dim`."""
        ...


class HasGNN(Protocol):
    """An artefact with a trained GNN's weights."""

    @property
    def weights(self) -> Path:
        """The file of the weights."""
        ...

    @property
    def content_key(self) -> str:
        """The key of the stage that trained it."""
        ...


@dataclass(frozen=True, eq=False)
class PsiHead:
    """psi of the GNN.

    Args:
        architecture: of the GNN.
        num_classes: c.
        norm: what becomes of BatchNorm in psi (`train.psi_norm`).
        bias: where outputs start (c,), for multi-label tasks; None leaves the GNN's own start.
        start: a trained GNN whose weights psi starts from; None starts fresh.
        heads: how many times c outputs it has: one per hop label. All start as the GNN's one; head 0, for the node's
            own label, is the one that is kept.
    """

    architecture: Architecture
    num_classes: int
    norm: str = "batch"
    bias: np.ndarray | None = None
    start: HasGNN | None = None
    heads: int = 1

    def build(self, dim: int, targets: nn.Module, nodes: np.ndarray) -> Psi:
        """psi for features of width `dim`."""
        gnn = self.architecture.build(dim, self.heads * self.num_classes)
        if self.bias is not None:
            start_outputs(gnn, np.tile(self.bias, self.heads))
        if self.start is not None:
            gnn.load_state_dict(resized(load_file(self.start.weights), gnn.state_dict()))
        return Psi(gnn, self.norm)  # type: ignore[arg-type]

    def kept(self, psi: Psi) -> dict[str, Tensor]:
        """Weights of psi as those of the GNN with c outputs, which have head 0 alone."""
        if self.heads == 1:
            return psi.gnn.state_dict()
        with torch.random.fork_rng():
            small = Psi(self.architecture.build(psi.gnn.in_dim, self.num_classes), self.norm)  # type: ignore[arg-type]
        return resized(psi.gnn.state_dict(), small.gnn.state_dict())


@dataclass(frozen=True, eq=False)
class LinearHead:
    """One linear layer to `num_classes` logits, whose bias starts at `bias` (c,) for multi-label tasks."""

    num_classes: int
    bias: np.ndarray | None = None

    def build(self, dim: int, targets: nn.Module, nodes: np.ndarray) -> nn.Linear:
        """The layer for features of width `dim`."""
        head = nn.Linear(dim, self.num_classes)
        if self.bias is not None:
            with torch.no_grad():
                head.bias.copy_(torch.from_numpy(np.array(self.bias)))
        return head


@dataclass(frozen=True, eq=False)
class TrainedEncoder(Artefact):
    """A trained encoder and its head.

    Args:
        encoder: folder with the encoder, as its own library opens it.
        head: weights of the head: of the GNN whose psi it was, or of a linear layer.
        log: loss, learning rate and gamma by step.
        gamma: at the end; None where no inverse labels were learned.
        steps: optimiser steps.
        loss: the last one.
        encoder_nodes: nodes that went through the encoder, epochs counted.
        batch, subgraph: mean |B| and |G(B)| of a step; they differ in joint training only.
        seconds: of all attempts; `step_seconds` by part of the step, of the last attempt.
        trunk: key of the token states that the last layers were trained on; None where all layers were.
    """

    encoder: Path
    head: Path
    log: Path
    gamma: list[float] | None
    steps: int
    loss: float
    encoder_nodes: int
    batch: float
    subgraph: float
    seconds: float
    step_seconds: dict[str, float]
    trunk: str | None = None


@stage(version=3, parallel=True)
def train(
    out: Folder,
    tokens: Tokens,
    encoder: Weights,
    head: Head,
    targets: Targets,
    nodes: np.ndarray,
    settings: Annotated[TrainConfig, Reads(*READS)],
    seed: int,
    pseudo_weight: float | None = None,
    gold: np.ndarray | None = None,
    device: Annotated[torch.device, Idle] = torch.device("cpu"),
) -> TrainedEncoder:
    """Train the encoder and its head on the targets of `nodes` (m,).

    Given `TokenStates` in place of tokens, only the encoder's last layers train; its first ones gave the states.

    Args:
        pseudo_weight: share of the nodes that are not `gold` (n,) in the loss; None is one plain mean.
    """
    torch.manual_seed(seed)
    model = split_for(encoder.load(), tokens)
    goal = targets.build()
    behind = head.build(model.dim, goal, nodes)
    objective = Objective(model, behind, goal, targets.task, settings.dropout, pseudo_weight, gold)
    if not in_shards(settings):  # else a device may not hold it
        objective.to(device)
    with used_vocabulary(model, tokens):
        recomputed = layers_to_recompute(out.label, objective, tokens, settings)
        run = train_encoder(objective, tokens, nodes, settings, seed, out, device, recomputed)
    if in_shards(settings):
        model = whole_encoder(model, lambda: split_for(encoder.load(), tokens))
    if ranks.leads():
        model.save(out.path / "encoder")
        kept = head.kept(behind) if isinstance(head, PsiHead) and isinstance(behind, Psi) else behind.state_dict()
        save_file(kept, out.path / "head.safetensors")
    count = settings.epochs * len(nodes)
    batch = round(count / max(1, run.steps), 1)
    return TrainedEncoder(
        encoder=out.path / "encoder",
        head=out.path / "head.safetensors",
        log=out.path / LOG,
        gamma=run.gamma,
        steps=run.steps,
        loss=run.loss,
        encoder_nodes=count,
        batch=batch,
        subgraph=batch,
        seconds=run.seconds,
        step_seconds={part: round(seconds, 3) for part, seconds in run.parts.items()},
        trunk=tokens.content_key if isinstance(tokens, TokenStates) else None,
    )


@dataclass(frozen=True, eq=False)
class Predictions(Artefact):
    """Logits (n, c)."""

    logits: np.ndarray


class HasValues(Protocol):
    """An artefact with features (n, d)."""

    @property
    def values(self) -> np.ndarray:
        """Features (n, d)."""
        ...

    @property
    def content_key(self) -> str:
        """The key of the stage that made it."""
        ...


def in_shards(settings: TrainConfig) -> bool:
    """Whether ranks train an encoder of which each holds a part."""
    return settings.parallel == "fsdp" and ranks.world() > 1


def layers_to_recompute(label: str, objective: Objective, tokens: Tokens, settings: TrainConfig) -> int:
    """How many layers a step computes again, so that it fits `max_memory`; without such a limit 0, or as settings say.

    A step that does not fit even so is refused. Ranks with shards gather a layer together, so rank 0 decides for all.
    """
    left, encoder = room(), objective.encoder
    if left is None:
        return 0
    held, rows = held_bytes(objective, tokens, settings), widest_rows(tokens, settings)
    one = activations(encoder, tokens, encoder_autocast(encoder, tokens, settings.precision))
    chosen = one.layers if settings.gradient_checkpointing else one.needed(rows, left - held)
    if in_shards(settings):
        told = torch.tensor(float(chosen * ranks.leads()))
        ranks.add_up(told)
        chosen = int(told)
    check_room(label, held + one.peak(rows, chosen), LESS)
    if chosen and not settings.gradient_checkpointing:
        logger.info("%s: %d of %d layers are computed again, so that a step fits", label, chosen, one.layers)
    return chosen


def held_bytes(objective: Objective, tokens: Tokens, settings: TrainConfig) -> float:
    """Memory that training takes beside weights and activations: gradients, AdamW's two moments, and a checkpoint.

    Ranks with shards have their part of that; rank 0 puts weights and moments together for the checkpoint.
    """
    weights = sum(p.numel() for p in objective.parameters() if p.requires_grad)
    moments = moment_bytes(objective.parameters(), settings.optimizer_states)
    held = 8 * weights + moments
    if in_shards(settings):
        held = held / ranks.world() + (4 * weights + moments) * ranks.leads()
    return held + 72 * tokens.num_nodes


@stage(version=1)
def predict(out: Folder, trained: TrainedEncoder, features: HasValues, head: Head) -> Predictions:
    """The head of a trained encoder over its features: the encoder's own predictions."""
    logits = psi_logits(head, trained.head, features.values)
    check_rows(logits, out.label, "logits", "lower train.lr or train.psi_lr, or set train.clip")
    return Predictions(logits)


def psi_logits(head: Head, weights: Path, x: np.ndarray) -> np.ndarray:
    """psi, or a linear layer, with trained weights of all features (n, d): logits (n, c)."""
    psi = head.build(x.shape[1], nn.Identity(), np.empty(0))
    (psi.gnn if isinstance(psi, Psi) else psi).load_state_dict(load_file(weights))
    psi.eval()
    with torch.inference_mode():
        rows = (x[i : i + ROWS].astype(np.float32) for i in range(0, len(x), ROWS))
        return torch.cat([psi(torch.from_numpy(part)) for part in rows]).numpy()


@dataclass(frozen=True)
class EncoderRun:
    """What the loop reports: optimiser steps, last loss, gamma (None where not learned), seconds.

    `parts` are seconds by part of the step, of the last attempt alone.
    """

    steps: int
    loss: float
    gamma: list[float] | None
    seconds: float
    parts: dict[str, float]


def train_encoder(
    objective: Objective,
    tokens: Tokens,
    nodes: np.ndarray,
    settings: TrainConfig,
    seed: int,
    out: Folder,
    device: torch.device | None = None,
    recomputed: int = 0,
) -> EncoderRun:
    """Train `objective` in place on `nodes` (m,); logs and checkpoints go to `out`, from where it resumes.

    Several ranks share the encoder's part of every step (training/global_batch.py) and rank 0 writes; any number of
    them goes on from a checkpoint of any other. Where `train.parallel` says so they hold shards of the encoder, which
    stay shards (training/sharding.py); `device` is where those go, None: where the encoder is.

    Inside `used_vocabulary` only word vectors that occur are trained, which is faster. The first `recomputed` layers
    are computed again in the backward pass, unless the settings ask for all of them.
    """
    watch = out.watch
    device = device or next(objective.encoder.parameters()).device
    torch.manual_seed(seed)
    if settings.gradient_checkpointing:
        objective.encoder.enable_gradient_checkpointing()
    elif recomputed:
        objective.encoder.enable_gradient_checkpointing(recomputed)
    computing = encoder_autocast(objective.encoder, tokens, settings.precision, device=device)
    shards = in_shards(settings)
    if shards:
        cut(objective.encoder, device, out.label)
        objective.to(device)
    optimizer = make_optimizer(objective, settings)
    checkpoint = Checkpoint(out.path / "checkpoint.safetensors", objective, optimizer, settings.checkpoint_minutes)
    restored = checkpoint.load()
    state: dict[str, Any] = restored[0] if restored else {"epoch": 0, "group": 0, "step": 0}
    several, leads = ranks.world() if ranks.world() > 1 else None, ranks.leads()
    if several:
        ranks.agree(out.label, {"weights at the start": checkpoint.fingerprint(state)})
    lengths, epochs, advice = tokens.lengths, settings.epochs, training_advice(settings)
    loss = float("nan")
    objective.train()
    clock = objective.clock

    def groups_of(epoch: int) -> list[list[np.ndarray]]:
        batches = epoch_batches(lengths, nodes, settings.batch_nodes, settings.batch_tokens, seed, epoch)  # line 7
        return [batches[i : i + settings.accumulate] for i in range(0, len(batches), settings.accumulate)]

    total, done = epochs * len(nodes), state["epoch"] * len(nodes)
    if state["group"]:
        done += sum(len(ids) for group in groups_of(state["epoch"])[: state["group"]] for ids in group)
    rows = partial(open_log, out.path / LOG, state["step"], watch) if leads else partial(open, os.devnull, "w")
    with rows() as log, bar(out.label, total, done=done) as advance:
        for epoch in range(state["epoch"], epochs):
            groups = groups_of(epoch)
            shared = (several, seed, epoch) if several else None
            prepared = ahead(partial(_prepare, tokens, shared=shared), groups[state["group"] :])
            clock.start()
            for k, batches in enumerate(prepared, start=state["group"]):
                clock.lap("batches")
                scale = set_learning_rates(optimizer, (epoch + (k + 0.5) / len(groups)) / epochs, settings.warmup)
                place = (out.label, f"epoch {epoch + 1}, step {state['step'] + 1}", advice)
                with ranks.exchanging() if shards else nullcontext():
                    loss = _step(objective, optimizer, batches, settings.clip, computing, device, place)  # lines 8-10
                state = {"epoch": epoch, "group": k + 1, "step": state["step"] + 1}
                row: dict[str, Any] = {"step": state["step"], "epoch": epoch, "loss": loss, "lr": settings.lr * scale}
                row["gamma"] = gamma_of(objective.targets)
                log.write(json.dumps(row) + "\n")
                watch(row)
                ids = np.concatenate(groups[k])
                advance(len(ids), f"epoch {epoch + 1}/{epochs} loss {loss:.3f}", int(lengths[ids].sum()))
                if _due(checkpoint, shards):
                    check_weights(objective, out.label, advice)  # the checkpoint before stays
                    log.flush()
                    checkpoint.save(state, files=[out.path / LOG])
                clock.lap("log")
            state = {**state, "group": 0}
    objective.eval()
    check_weights(objective, out.label, advice)  # the last step's loss was of the weights before it
    return EncoderRun(state["step"], loss, gamma_of(objective.targets), checkpoint.seconds, clock.seconds)


def _due(checkpoint: Checkpoint, shards: bool) -> bool:
    """Whether this rank saves now: rank 0 when it is time, and all others with it where they hold `shards`."""
    own = ranks.leads() and checkpoint.due
    if not shards:
        return own
    told = torch.tensor(float(own))
    ranks.add_up(told)
    return bool(told)


class Prepared(NamedTuple):
    """A batch as `Objective` takes it: node ids (b,), the encoder's inputs, and the places of the nodes among them.

    Where several ranks train, the inputs are those of this rank's `share`.
    """

    ids: np.ndarray
    inputs: tuple[Tensor, ...]
    same: Tensor | None = None
    share: Share | None = None


def _prepare(tokens: Tokens, batches: list[np.ndarray], shared: tuple[int, int, int] | None = None) -> list[Prepared]:
    return [_prepared(tokens, ids, shared) for ids in batches]


def _prepared(tokens: Tokens, ids: np.ndarray, shared: tuple[int, int, int] | None = None) -> Prepared:
    """A batch whose equal attributes go through the encoder once, with one draw of its dropout.

    `shared` is the number of ranks, the seed and the epoch, where there are several ranks.
    """
    distinct, same = tokens.distinct(ids)
    places = None if same is None else torch.from_numpy(same)
    if shared is None:
        return Prepared(ids, tokens.batch(distinct), places)
    world, *seed = shared
    share = share_of(tokens.lengths_of(distinct), (*seed, int(ids[0])), world, ranks.rank())
    own = distinct[share.places.numpy()] if len(share.places) else distinct[:1]  # of which nothing is kept
    return Prepared(ids, tokens.batch(own), places, share)


def _step(
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    batches: list[Prepared],
    clip: float,
    computing: AbstractContextManager[None],
    device: torch.device,
    place: tuple[str, str, str] = ("train", "this step", ""),
) -> float:
    """One optimiser step over the nodes of all `batches`; returns their mean loss.

    A loss that is not finite changes no weight; `place` is the stage, the step and the advice that are told then.
    """
    total, loss = sum(len(batch.ids) for batch in batches), 0.0
    for ids, inputs, same, part in batches:
        places = None if same is None else same.to(device)
        with computing:
            share = objective(ids, *(x.to(device) for x in inputs), same=places, share=part) * (len(ids) / total)
        objective.clock.lap("loss")
        share.backward()
        loss += (value := float(share.detach()))
        if not math.isfinite(value):
            check_loss(value, ids, *place)
        objective.clock.lap("backward")
    if batches[0].share is not None:
        sum_gradients(objective.encoder, objective)
        objective.clock.lap("exchange")
    if clip > 0:
        dense = [p for p in objective.parameters() if p.grad is not None and not p.grad.is_sparse]
        clipped = clip_shards if any(hasattr(p, "full_tensor") for p in dense) else nn.utils.clip_grad_norm_
        clipped(dense, clip)  # rows of GIANT's head are left alone: Adam levels them
        objective.clock.lap("clip")
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    objective.clock.lap("update")
    return loss


def training_advice(settings: TrainConfig, encoder: bool = True) -> str:
    """What to set when training gives numbers that are not finite; without an encoder there is less to set."""
    rates = f"lower train.psi_lr (now {settings.psi_lr:g})"
    if encoder:
        rates = f"lower train.lr (now {settings.lr:g}) or train.psi_lr (now {settings.psi_lr:g})"
    clip = "lower train.clip" if settings.clip > 0 else "set train.clip above 0 (now 0)"
    low = encoder and settings.precision != "float32"
    exact = f", or set train.precision to float32 (now {settings.precision})" if low else ""
    return f"{rates}, {clip}{exact}; the last good checkpoint is kept"


def make_optimizer(objective: Objective, settings: TrainConfig) -> torch.optim.AdamW:
    """AdamW over beta, theta and gamma' with a rate each; only matrices of encoder and head decay, never gamma'."""
    groups = [
        *parameter_groups(objective.encoder.parameters(), settings.lr, settings.weight_decay),
        *parameter_groups(objective.head.parameters(), settings.psi_lr, settings.weight_decay),
        *parameter_groups(objective.targets.parameters(), settings.gamma_lr, 0.0),
    ]
    states, fused = settings.optimizer_states, fused_optimizer(next(objective.parameters()).device)
    if isinstance(objective.head, OutputRows):
        return RowAdamW(groups, states, fused=fused)
    return torch.optim.AdamW(groups, fused=fused) if states == "float32" else CompactAdamW(groups, states, fused=fused)


def start_outputs(gnn: nn.Module, bias: np.ndarray) -> None:
    """Let a GNN's outputs start at `bias` (c,), where it has an output bias."""
    own = getattr(gnn, "output_bias", None)
    if own is not None:
        with torch.no_grad():
            own.copy_(torch.from_numpy(np.array(bias)))


def resized(state: dict[str, Tensor], like: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights in the shapes of `like`, which has some multiple of their outputs, or they of its: repeated, or cut."""
    fitted = {}
    for name, tensor in state.items():
        shape = like[name].shape
        times = [max(1, new // old) if old else 1 for new, old in zip(shape, tensor.shape, strict=True)]
        longer = tensor.repeat(times) if tensor.ndim else tensor
        fitted[name] = longer[tuple(slice(size) for size in shape)].contiguous()
    return fitted


def gamma_of(targets: nn.Module) -> list[float] | None:
    """gamma of inverse labels as plain numbers; None for other targets and for alpha = 0, where gamma is idle."""
    gamma = getattr(targets, "gamma", None)
    if gamma is None or not getattr(targets, "alpha", 0.0) > 0:
        return None
    return [round(g, 6) for g in gamma.tolist()]


def _mean(losses: Tensor, chosen: Tensor) -> Tensor:
    """Mean over the chosen nodes; 0 where there are none."""
    return (losses * chosen).sum() / chosen.sum().clamp_min(1)
