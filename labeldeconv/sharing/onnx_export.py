"""A run as ONNX files, to be run by ONNX Runtime alone: no torch, no transformers, no labeldeconv.

    labeldeconv export runs/papers-ld-sagn-0 --onnx model

| file | holds |
|---|---|
| encoder.onnx | f(.; beta) with its pooling: tokens and mask (batch, tokens) to features (batch, d) |
| psi.onnx | psi(.; theta): features (batch, d) to logits (batch, c), for nodes without a graph |
| gnn.onnx | a GNN fed by rows (SAGN, GAMLP, MLP): hop features (batch, N + 1, d), maybe label inputs, to logits |
| tokenizer/ | the tokenizer's own files |
| model.json | shapes of inputs and outputs, what logits are, class names, temperatures, tokens; written last |
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labeldeconv.encoders.adapters import merged
from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.huggingface import TextEncoder, max_positions
from labeldeconv.encoders.protein import ProteinEncoder
from labeldeconv.encoders.tokens import length_batches
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.gnns.base import GNN
from labeldeconv.graph.attributed import TaskKind
from labeldeconv.graph.metrics import score_text
from labeldeconv.prediction.predictor import Predictor
from labeldeconv.prediction.restored import psi_logits_of, restored_encoder
from labeldeconv.runs.export import new_folder
from labeldeconv.sharing.onnx_files import OnnxModel, quantise, require_onnx, write_onnx
from labeldeconv.stages.files import write_json

FORMAT = 1
CARD = "model.json"
LEAST_COSINE = 0.98  # of features in 8 bits with those in float32; below, neighbours in feature space change places
MEASURED = 256  # validation nodes that are encoded twice to measure what 8 bits cost
TRACED = (3, 11)  # batch and tokens of the sample that is traced
TRIED = ((1, 2), (4, 9), (2, 64), (7, 5))  # of those that are compared with torch
LOGITS: dict[TaskKind, str] = {  # what they mean, for those who read model.json
    "multiclass": "softmax(logits / temperature) are the probabilities of class_names",
    "multilabel": "sigmoid(logits / temperature) are the probabilities of class_names",
    "regression": "logits * targets.std + targets.mean are the numbers of class_names, in the unit of the labels",
}
LABELS: dict[TaskKind, str] = {
    "multiclass": "1 at its class",
    "multilabel": "1 at its labels",
    "regression": "(label - targets.mean) / targets.std, 0 where it is missing",
}


@dataclass(frozen=True)
class Int8Loss:
    """What 8 bits cost on `nodes` validation nodes: the mean cosine of features, and the score of `by` twice."""

    nodes: int
    cosine: float
    metric: str
    by: str
    before: float
    after: float

    def __str__(self) -> str:
        before, after = (score_text(self.metric, score) for score in (self.before, self.after))
        scores = f"{self.metric} of {self.by} {before} -> {after}"
        return f"int8: mean cosine {self.cosine:.4f}, {scores} ({self.nodes} validation nodes)"


@dataclass(frozen=True)
class OnnxExport:
    """What was written where; `notes` say in words what was not, and why."""

    folder: Path
    files: list[str]
    notes: list[str] = field(default_factory=list)
    int8: Int8Loss | None = None


def export_onnx(run: str | Path, folder: str | Path, int8: bool = False, force: bool = False) -> OnnxExport:
    """Write encoder, psi and a GNN fed by rows of a run directory as ONNX files into a new folder, whole or not at all.

    Args:
        run: a run directory.
        folder: an empty one, or none.
        int8: weights of the encoder's matrix products in 8 bits; what that costs is measured on validation nodes.
        force: keep an encoder in 8 bits whose features have a mean cosine below 0.98 with those in float32.
    """
    require_onnx()
    predictor, folder = Predictor.load(run), Path(folder)
    if predictor.reads_features:
        raise ConfigError(
            f"{run}: method 'given' has no encoder to export; a run that learned from attributes expected"
        )
    with new_folder(folder) as work:
        notes, loss = _write(predictor, work, int8, force)
    return OnnxExport(folder, sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()), notes, loss)


def _write(predictor: Predictor, folder: Path, int8: bool, force: bool) -> tuple[list[str], Int8Loss | None]:
    run, notes = predictor.run, []
    config, graph = run.config(), run.graph
    encoder = restored_encoder(run, config).eval()
    if not isinstance(encoder, TextEncoder):
        raise ConfigError(
            f"encoder '{config.encoder.name}': {type(encoder).__name__} cannot be exported to ONNX; an encoder of "
            "transformers over texts or sequences expected"
        )
    most = min(config.encoder.max_tokens, max_positions(encoder.model))
    model, shapes = _encoder_file(encoder, folder / "encoder.onnx", most, config.encoder.name)
    loss = None
    if int8:
        loss = _in_8_bits(predictor, encoder, model, folder / "encoder.onnx", force)
    encoder.tokenizer.save_pretrained(folder / "tokenizer")
    card: dict[str, Any] = {
        "format": FORMAT,
        "name": graph.name,
        "task": graph.task,
        "class_names": graph.class_names,
        "logits": LOGITS[graph.task],
        **({"targets": run.result["targets"]} if graph.task == "regression" else {}),
        "attributes": encoder.takes,
        "max_tokens": most,
        "pad_id": encoder.pad_id,
        "prompt": encoder.prompt,
        "lower_case": encoder.lowers,
        "tokenizer": sorted(f"tokenizer/{p.name}" for p in (folder / "tokenizer").iterdir()),
        "residues": _residues(encoder),
        "encoder": {"file": "encoder.onnx", **shapes, "pooling": list(encoder.readout.modes), "int8": int8},
        "psi": None,
        "gnn": None,
    }
    card["psi"], told = _psi_file(predictor, folder / "psi.onnx", encoder.dim)
    notes += told
    card["gnn"], told = _gnn_file(predictor, folder / "gnn.onnx")
    notes += told
    write_json(folder / CARD, {**card, "notes": notes})
    return notes, loss


def _encoder_file(encoder: TextEncoder, path: Path, most: int, name: str) -> tuple[OnnxModel, dict[str, Any]]:
    encoder.model = model = merged(encoder.model)
    if hasattr(model, "set_attn_implementation"):  # T5's fused attention has shapes that the exporter does not follow
        model.set_attn_implementation("eager")
    samples = [_tokens(encoder, b, min(t, most)) for b, t in (TRACED, *TRIED)]
    names: dict[str, list[str | int]] = {
        "input_ids": ["batch", "tokens"],
        "attention_mask": ["batch", "tokens"],
    }
    written = write_onnx(encoder, samples, names, "features", path, f"encoder '{name}'")
    return written, {"inputs": names, "outputs": {"features": ["batch", encoder.dim]}}


def _tokens(encoder: Encoder, b: int, t: int) -> tuple[Tensor, Tensor]:
    """Random tokens (b, t) and a mask (b, t) in which the second row is shorter."""
    ids = torch.randint(0, encoder.vocab_size, (b, t), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1:2, max(1, t // 2) :] = 0
    return ids, mask


def _residues(encoder: TextEncoder) -> dict[str, Any] | None:
    """How a sequence becomes tokens, for encoders of proteins: the token of every letter, and those around them."""
    if not isinstance(encoder, ProteinEncoder):
        return None
    table, (begin, end) = encoder.residue_table, encoder.ends
    letters = {chr(k): int(table[k]) for k in range(ord("A"), ord("Z") + 1)}
    return {"letters": letters, "begin": list(begin), "end": list(end), "left_out": "* and blanks"}


def _psi_file(predictor: Predictor, path: Path, dim: int) -> tuple[dict[str, Any] | None, list[str]]:
    if predictor.psi is None:
        return None, [f"no psi.onnx: method '{predictor.run.method}' has no psi"]
    psi, temperature = predictor.psi
    names: dict[str, list[str | int]] = {"features": ["batch", dim]}
    try:
        write_onnx(psi, [(_random(b, dim),) for b in (3, 1, 7)], names, "logits", path, f"psi of {predictor.run.gnn}")
    except ConfigError as error:  # psi of a GNN without one of its own is its forward with A = I
        path.unlink(missing_ok=True)
        return None, [f"no psi.onnx: {error}"]
    outputs = {"logits": ["batch", predictor.task.num_classes]}
    return {"file": path.name, "inputs": names, "outputs": outputs, "temperature": temperature}, []


def _gnn_file(predictor: Predictor, path: Path) -> tuple[dict[str, Any] | None, list[str]]:
    run = predictor.run
    try:
        gnn: GNN = predictor.model.gnn
    except ConfigError as error:  # it reads more than a run keeps, or was given as an object
        return None, [f"no gnn.onnx: {error}"]
    if gnn.feed != "rows":
        return None, [f"no gnn.onnx: {run.gnn} reads the whole graph; SAGN, GAMLP and MLP, fed by rows, are exported"]
    if predictor.inputs.both is not None:
        return None, [
            f"no gnn.onnx: {run.gnn} reads features of two encoders (gnn.inputs 'both'), of which one is here"
        ]
    names: dict[str, list[str | int]] = {"hop_features": ["batch", gnn.hops + 1, gnn.in_dim]}
    if gnn.label_hops:
        names["label_inputs"] = ["batch", gnn.out_dim]
    samples = [tuple(_random(b, *shape[1:]) for shape in names.values()) for b in (3, 1, 7)]
    write_onnx(gnn, samples, names, "logits", path, f"GNN '{run.gnn}'")
    card = {
        "file": path.name,
        "inputs": names,
        "outputs": {"logits": ["batch", gnn.out_dim]},
        "temperature": run.calibration["temperature"],
        "hops": gnn.hops,
        "label_hops": gnn.label_hops,
        **({"label_inputs": _label_inputs(predictor)} if gnn.label_hops else {}),
        "adjacency": run.config().gnn.adjacency.model_dump(),
    }
    return card, []


def _label_inputs(predictor: Predictor) -> str:
    """How the inputs of a label branch are made."""
    if predictor.run.taught_labels is not None:
        return "A-hat^label_hops Y, where Y is taught_labels.npy of the run"
    return f"A-hat^label_hops Y, where the row of Y is {LABELS[predictor.task.kind]} for a train node, 0 for any other"


def _random(*shape: Any) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _in_8_bits(predictor: Predictor, encoder: TextEncoder, exact: OnnxModel, path: Path, force: bool) -> Int8Loss:
    """Put the encoder in 8 bits into the place of `path`, unless its features are too far from the exact ones."""
    small = path.with_name("encoder.int8.onnx")
    quantise(path, small)
    loss = _measured(predictor, encoder, exact, OnnxModel(small))
    if loss.cosine < LEAST_COSINE and not force:
        raise ConfigError(f"{loss}: below {LEAST_COSINE}, so that nothing is written; --force writes it nevertheless")
    for old in path.parent.glob(f"{path.name}*"):  # large weights lie in a file beside it
        old.unlink()
    small.replace(path)
    return loss


def _measured(predictor: Predictor, encoder: TextEncoder, exact: OnnxModel, small: OnnxModel) -> Int8Loss:
    """What 8 bits cost on at most 256 validation nodes, spread evenly over all of them."""
    graph, task = predictor.run.graph, predictor.task
    val = graph.split.val
    nodes = val[np.unique(np.linspace(0, len(val) - 1, min(MEASURED, len(val))).astype(int))] if len(val) else val
    if not len(nodes):
        raise DataError(f"{predictor.run.path}: no validation nodes, on which the loss of --int8 is measured")
    rows = encoder.tokenize([graph.texts[i] for i in nodes], predictor.run.config().encoder.max_tokens)
    a, b = (_features(encoder, model, rows).astype(np.float64) for model in (exact, small))
    cosine = float(((a * b).sum(1) / np.maximum(np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1e-12)).mean())
    by, before, after = _scores(predictor, nodes, a, b)
    return Int8Loss(len(nodes), cosine, task.metric, by, before, after)


def _scores(predictor: Predictor, nodes: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[str, float, float]:
    """The score of psi, or of the GNN where there is none, on nodes (m,) with features a and with features b (m, d)."""
    labels, task = np.asarray(predictor.run.graph.labels[nodes]), predictor.task
    if predictor.psi is not None:
        psi: nn.Module = predictor.psi[0]
        return "psi", *(task.score(psi_logits_of(psi, x), labels) for x in (a, b))  # type: ignore[return-value]
    found, none = [], np.zeros((2, 0), np.int64)
    for x in (a, b):
        features = np.array(predictor.run.features)
        features[nodes] = x
        model = replace(predictor.model, features=predictor.inputs(features), _models={})
        found.append(task.score(model.on_the_whole(model.grow(0, none), features[:0], none, nodes), labels))
    return predictor.run.gnn, found[0], found[1]


def _features(encoder: TextEncoder, model: OnnxModel, rows: list[list[int]]) -> np.ndarray:
    """Features (m, d) of token rows, in batches of rows of similar length."""
    lengths = np.array([len(row) for row in rows])
    out = np.empty((len(rows), encoder.dim), np.float32)
    for ids in length_batches(lengths, np.arange(len(rows)), 32, 4096):
        most = lengths[ids].max()
        tokens = np.full((len(ids), most), encoder.pad_id, np.int64)
        for k, i in enumerate(ids):
            tokens[k, : lengths[i]] = rows[i]
        out[ids] = model(tokens, (np.arange(most) < lengths[ids, None]).astype(np.int64))
    return out
