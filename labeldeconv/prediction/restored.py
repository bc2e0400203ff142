"""What a run directory has learned, ready to compute: its encoder, its psi, and its GNN on its graph.

Everything comes from the run directory, so that it works after the cache was pruned. What no file can hold is given
again: a GNN that was an object or a class, and an encoder whose own library cannot open its folder.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.columns import COLUMNS, IMAGE
from labeldeconv.encoders.pretrained import Pretrained, load_encoder, of_folder
from labeldeconv.encoders.tokens import Tokens, length_batches, like_lengths
from labeldeconv.encoders.unirep import WEIGHTS
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.gnns.base import GNN, GNNS, Psi
from labeldeconv.graph.task import Task
from labeldeconv.prediction.logits import GraphModel
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.registry import imports_trusted
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.settings.models import Config
from labeldeconv.stages.keys import digest
from labeldeconv.training.encoder import LinearHead, PsiHead
from labeldeconv.training.features import BATCH_NODES, CPU_TOKENS
from labeldeconv.training.feed import edge_values
from labeldeconv.training.label_reuse import LabelReuse
from labeldeconv.training.steps import autocast, encoder_autocast

OPENED = ("config.json", COLUMNS, WEIGHTS)  # files by which an encoder's folder is opened without its name
ALONE = ("pne", "glem", "joint-gas", "joint-sage")  # methods whose GNN may read their features alone in any case
ROWS = 1 << 14  # features that go through psi at a time
PASS_TOKENS = 32  # of padding that take as long as a pass of the encoder: of 16, 32, 64 and 96 the best for MiniLM


class TextFeatures:
    """The encoder of a run: texts to features (m, d) float16, as the run's own features were made."""

    def __init__(self, run: RunDirectory, given: Any = None) -> None:
        config = run.config()
        self._hold(restored_encoder(run, config, given), config)

    @classmethod
    def pretrained(cls, config: Config, encoder: Encoder | None = None) -> TextFeatures:
        """The same of the encoder that settings name, or of this one, as it was before any training."""
        made = cls.__new__(cls)
        made._hold(encoder or load_encoder(config.encoder), config)
        return made

    def _hold(self, encoder: Encoder, config: Config) -> None:
        self.encoder, self.device = encoder.eval(), torch.device("cpu")
        self.max_tokens = config.encoder.max_tokens
        self.precision = config.train.precision
        self._tried = False

    def to(self, device: torch.device) -> TextFeatures:
        """The same encoder, moved to a device."""
        self.encoder, self.device = self.encoder.to(device), device
        return self

    def __call__(self, texts: list[str]) -> np.ndarray:
        """Features (m, d) of m texts."""
        return self.of_tokens(self.tokenize(texts))

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """The token ids of m texts, each cut to the run's `max_tokens`."""
        return self.encoder.tokenize(texts, self.max_tokens) if texts else []

    def of_tokens(self, rows: list[list[int]]) -> np.ndarray:
        """Features (m, d) of m texts by their token ids."""
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        flat = np.array([token for row in rows for token in row], dtype=np.int64)
        tokens = Tokens(flat, np.concatenate([[0], np.cumsum(lengths)]), self.encoder.pad_id)
        out = np.empty((len(rows), self.encoder.dim), np.float16)
        with torch.inference_mode():
            computing = self._computing(tokens)
            batches = length_batches(lengths, np.arange(len(rows)), BATCH_NODES, CPU_TOKENS)
            if self.device.type == "cpu":
                batches = [part for batch in batches for part in like_lengths(lengths, batch, PASS_TOKENS)]
            for ids in batches:
                with computing:
                    inputs = (part.to(self.device) for part in tokens.batch(ids))
                    out[ids] = self.encoder(*inputs).float().cpu().numpy()
        return out

    def _computing(self, tokens: Tokens) -> Any:
        """The precision, tried once: what cannot compute in bfloat16 does not."""
        if self._tried or not tokens.num_nodes:
            return autocast(self.precision, self.device)
        self._tried = True
        return encoder_autocast(self.encoder, tokens, self.precision, training=False)


def check_imports(run: RunDirectory, gnn: Any = None, encoder: Any = None) -> None:
    """Refuse a run whose settings name a module to import, unless its writer is trusted or the object is given."""
    config = run.config()
    named = [] if gnn is not None else [("gnn.name", config.gnn.name)]
    if encoder is None and not _opens_alone(run) and not Path(config.encoder.name).exists():
        specs = (part.rpartition("=")[2].strip().removeprefix(IMAGE) for part in config.encoder.name.split(","))
        named += [("encoder.name", spec) for spec in specs]
    for setting, name in named:
        if ":" in name and name not in GNNS and not Path(name).exists() and not imports_trusted():
            raise ConfigError(
                f"{run.path}: its {setting} '{name}' is code to import; `--trust`, or in Python `with "
                "labeldeconv.registry.trusting():`, does it, if you trust who wrote the run"
            )


def _opens_alone(run: RunDirectory) -> bool:
    """Whether the run has an encoder's folder that says all of it."""
    return run.encoder is not None and any((run.encoder / name).is_file() for name in OPENED)


def restored_encoder(run: RunDirectory, config: Config, given: Any = None) -> Encoder:
    """The encoder that made the run's features; `given` is the object that was given in place of a name."""
    folder = run.encoder
    if folder is not None and _opens_alone(run):
        return load_encoder(of_folder(config.encoder, folder))
    encoder = Pretrained(config.encoder, given).load()
    if folder is not None:
        encoder.restore(folder)
    return encoder


def restored_psi(run: RunDirectory, gnn: Any = None) -> nn.Module | None:
    """psi of the run, or the linear layer in its place: features (b, d) to logits (b, c); None where it has none."""
    weights = run.psi_weights
    if weights is None:
        return None
    config, d, c = run.config(), run.dim, run.task.num_classes
    try:
        with safe_open(weights, framework="pt") as file:
            linear = set(file.keys()) == {"weight", "bias"}
    except SafetensorError as error:
        raise _no_weights(weights, error) from None
    if linear:
        head: nn.Module = LinearHead(c).build(d, nn.Identity(), np.empty(0))
    else:
        norm = "batch" if run.method.startswith("joint") else config.train.psi_norm  # joint: the GNN itself
        head = PsiHead(Architecture.of(config.gnn, gnn), c, norm).build(d, nn.Identity(), np.empty(0))
    load_weights(head.gnn if isinstance(head, Psi) else head, weights)
    return head.eval()


def psi_logits_of(psi: nn.Module, x: np.ndarray) -> np.ndarray:
    """Logits (m, c) of psi, in eval mode, for features (m, d)."""
    with torch.inference_mode():
        parts: list[Tensor] = [
            psi(torch.from_numpy(np.array(x[i : i + ROWS], dtype=np.float32))) for i in range(0, len(x), ROWS)
        ]
    return torch.cat(parts).float().numpy() if parts else np.empty((0, 0), np.float32)


class GNNInputs:
    """From an encoder's features (m, d) to what the run's GNN reads.

    That is the features themselves but for GLEM with `glem.label_input`, whose GNN reads the distribution that the
    encoder's psi predicts beside them, and for `gnn.inputs` 'both', where the features of the pre-trained encoder are
    beside them. A run keeps its own encoder alone: the pre-trained one is opened by its name, or is `encoder`.
    """

    def __init__(self, run: RunDirectory, gnn: Any = None, encoder: Any = None) -> None:
        config = run.config()
        self.run, self._encoder, self.both = run, encoder, run.gnn_inputs
        older = self.both is None and (run.result.get("chosen") or run.method) not in ALONE
        unknown = self.both is not None and (config.encoder.adapt != "none" or run.method == "given")
        if config.gnn.inputs == "both" and (older or unknown):
            raise ConfigError(
                f"{run.path}: its GNN reads features of two encoders (gnn.inputs 'both'), of which one is not known "
                "here; new nodes need gnn.inputs 'learned', or a run on texts of this version, not pushed, without "
                "encoder.adapt"
            )
        graph = run.graph
        self.task, self.temperature = Task.of(graph), config.glem.temperature
        reads = run.method == "glem" and config.glem.label_input and config.setting == "transductive"
        self.psi = restored_psi(run, gnn) if reads and bool((graph.split.roles > 0).any()) else None

    @cached_property
    def pretrained(self) -> TextFeatures:
        """The encoder before training, which made X_PNE."""
        config = self.run.config()
        return TextFeatures.pretrained(config, Pretrained(config.encoder, self._encoder).load())

    @property
    def old(self) -> np.ndarray:
        """What the GNN has read of the run's own nodes, (n, d + e) or what is made of (n, d)."""
        return self(self.run.features) if self.both is None else self.both[0]

    def __call__(self, x: np.ndarray, texts: list[str] | None = None) -> np.ndarray:
        """(m, d) of m texts to (m, d), or to (m, d + c) or (m, d + e) float16."""
        if self.both is not None:
            _, mean, scale = self.both
            if not len(x):
                return np.empty((0, len(mean)), np.float16)
            beside = np.concatenate([x, self.pretrained(texts or [])], axis=1)
            return ((beside - mean) / scale).astype(np.float16)
        if self.psi is None or not len(x):
            return x if self.psi is None else np.empty((0, x.shape[1] + self.task.num_classes), np.float16)
        predicted = self.task.probabilities(torch.from_numpy(psi_logits_of(self.psi, x)), self.temperature).numpy()
        return np.concatenate([np.asarray(x, np.float16), predicted.astype(np.float16)], axis=1)


def restored_graph_model(run: RunDirectory, inputs: GNNInputs, given: Any = None) -> GraphModel:
    """The GNN of a run on its graph and features; `given` is the class or object that was given in place of a name."""
    config, graph = run.config(), run.graph
    x = inputs.old
    gnn: GNN = Architecture.of(config.gnn, given).build(x.shape[1], graph.num_classes)
    load_weights(gnn, run.gnn_weights)
    reuse = None
    if gnn.reads_labels:
        reuse = LabelReuse(Task.of(graph), np.asarray(graph.train_labels), graph.split.train, config.gnn.label_reuse)
    adjacency = config.gnn.adjacency
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes, adjacency)
    if gnn.edge_dim:
        adj = adj.with_edge_features(graph.edges, edge_values(graph, gnn.edge_dim))
    key = digest([run.result["files"].get(name) for name in _decisive(run)] + [run.settings["gnn"], run.method])
    return GraphModel(gnn.eval(), x, adj, adjacency, np.asarray(graph.edges), _label_sources(run, gnn), key, reuse)


def _decisive(run: RunDirectory) -> list[str]:
    """The files that decide about the activations of a run's GNN."""
    names = ["features.npy", "gnn.safetensors", "psi.safetensors", "taught_labels.npy"]
    graph = ["edges.npy", "edge_features.npy", "labels.npy", "split.npy"]
    return [name for name in [*names, *(f"graph/{name}" for name in graph)] if name in run.result["files"]]


def _label_sources(run: RunDirectory, gnn: GNN) -> np.ndarray | None:
    """Labels (n, c) of the taught nodes, zero elsewhere, for a GNN with a label branch."""
    if not gnn.label_hops:
        return None
    if run.taught_labels is not None:
        return np.asarray(run.taught_labels)
    older = "calibration" not in run.result  # than the file of these labels
    if older and (run.config().gnn.self_training.stages > 1 or run.method == "glem"):
        raise ConfigError(
            f"{run.path}: the GNN reads labels that it was taught beside the train nodes' own, and this run is older "
            "than the file that keeps them; fit it again"
        )
    return np.nan_to_num(Task.of(run.graph).targets(run.graph.train_labels))


def load_weights(module: nn.Module, weights: Path) -> None:
    """Load weights, and refuse those of another module and those that would make every prediction NaN."""
    try:
        held = load_file(weights)
    except SafetensorError as error:
        raise _no_weights(weights, error) from None
    if wrong := [name for name, tensor in held.items() if not tensor.isfinite().all()]:
        raise DataError(f"{weights}: weights that are not finite in {', '.join(wrong[:5])}; the training has diverged")
    try:
        module.load_state_dict(held)
    except RuntimeError as error:  # names and shapes, one a line
        told = str(error).splitlines()
        raise DataError(f"{weights}: not the weights of the settings' {type(module).__name__}", told[1:6]) from None


def _no_weights(path: Path, error: SafetensorError) -> DataError:
    return DataError(f"{path}: weights written by safetensors expected: {error}")
