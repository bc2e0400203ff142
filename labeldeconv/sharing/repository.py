"""A run as a repository in Hugging Face's layout: the encoder as sentence-transformers has it, and what predicts.

    labeldeconv push runs/papers-ld-sagn-0 someone/papers          # private, unless --public is given
    labeldeconv push runs/papers-ld-sagn-0 --folder papers         # the same, into a folder

| file | holds |
|---|---|
| config.json, model.safetensors, tokenizer files | the encoder, as `AutoModel` opens it |
| modules.json, 1_Pooling/, sentence_bert_config.json, config_sentence_transformers.json | its pooling and most tokens |
| psi.safetensors, gnn.safetensors | psi and the GNN |
| config.toml | the settings, without paths |
| README.md | the model card |
| graph/, features.npy, logits.npy, taught_labels.npy | with the graph alone: texts, labels, edges, results |
| labeldeconv.json | scores, temperatures, class names, and all files above with size and checksum; written last |

No texts and no labels of the training graph are in it unless that is asked for.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import transformers

from labeldeconv import __version__
from labeldeconv.analysis.card import data_card
from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.huggingface import TextEncoder, max_positions
from labeldeconv.encoders.protein import ProteinEncoder
from labeldeconv.encoders.sentence import BESIDE, PROMPTS, prompts_of
from labeldeconv.errors import ConfigError
from labeldeconv.prediction.predictor import Predictor
from labeldeconv.prediction.pushed import CARD
from labeldeconv.prediction.restored import OPENED, check_imports, restored_encoder
from labeldeconv.runs.directory import FORMAT, RunDirectory
from labeldeconv.runs.export import new_folder
from labeldeconv.settings.models import Config
from labeldeconv.sharing.model_card import model_card
from labeldeconv.stages.files import checksum, files_in, sealed, write_json, write_text

# Of result.json: what says how good and how dear the run was. Warnings about the data may quote it and stay here.
TOLD = (
    "metric", "val", "test", "metrics", "gamma", "alpha", "seconds", "peak_mib", "encoder_nodes",
    "encoder_nodes_by_stage", "batch", "subgraph", "chosen", "targets",
)  # fmt: skip
OF_GRAPH = ("features.npy", "logits.npy", "taught_labels.npy")
SENTENCE_FILES = ("modules.json", BESIDE, PROMPTS, "1_Pooling/config.json")


def write_repository(
    run: str | Path, folder: str | Path, with_graph: bool = False, license: str = "unknown", name: str | None = None
) -> Path:
    """Write a run as a repository into a new folder, whole or not at all.

    Args:
        run: a run directory.
        folder: an empty one, or none.
        with_graph: also write the graph with its texts and labels, features and predictions.
        license: for the model card, as Hugging Face calls it: 'mit', 'cc-by-4.0', ...
        name: USER/NAME, which the model card tells how to load; None is the folder's.
    """
    opened, folder = RunDirectory.open(run), Path(folder)
    with new_folder(folder) as work:
        _write(opened, work, with_graph, license, name or folder.name)
    return folder


def _write(run: RunDirectory, folder: Path, with_graph: bool, license: str, name: str) -> None:
    check_imports(run)
    predictor, config = Predictor(run), run.config()
    if predictor.reads_features:
        raise ConfigError(
            f"{run.path}: method 'given' has no encoder to push; a run that learned from attributes expected"
        )
    encoder = restored_encoder(run, config)
    encoder.save(folder)
    if not any((folder / file).is_file() for file in OPENED):
        raise ConfigError(
            f"encoder '{config.encoder.name}': {type(encoder).__name__} is a class of your own, which no folder holds; "
            "an encoder of transformers, by column or UniRep expected"
        )
    sentences = _sentence_layout(encoder, folder, config.encoder.max_tokens)
    shared = _without_paths(config, run.graph.name)
    write_text(folder / "config.toml", shared.to_toml())
    _copy(run.gnn_weights, folder / "gnn.safetensors")
    if run.psi_weights is not None:
        _copy(run.psi_weights, folder / "psi.safetensors")
    if with_graph:
        run.graph.save(folder / "graph")
        for file in OF_GRAPH:
            if (run.path / file).is_file():
                _copy(run.path / file, folder / file)
    card = data_card(run.graph)
    text = model_card(run, card, name, config.encoder.name, license, with_graph, sentences)
    model = {
        "task": run.task.kind,
        "class_names": run.class_names,
        "dim": run.dim,
        "psi_temperature": _psi_temperature(predictor),
        "attributes": run.graph.attributes,
        "labeldeconv": __version__,
    }
    told = {key: run.result[key] for key in TOLD if key in run.result}
    settings = shared.model_dump(mode="json")
    files = {str(p.relative_to(folder)): [p.stat().st_size, checksum(p)] for p in files_in(folder)}
    held = {"format": FORMAT, **told, "calibration": run.calibration, "settings": settings, "model": model}
    write_json(folder / CARD, sealed(_plain({**held, "files": files})))
    write_text(folder / "README.md", text)  # its author may change it: it is in no list


def _psi_temperature(predictor: Predictor) -> float | None:
    try:
        return None if predictor.psi is None else predictor.psi[1]
    except ConfigError:  # psi of a GNN that was given as an object
        return None


def _sentence_layout(encoder: Encoder, folder: Path, max_tokens: int) -> bool:
    """Make the folder one of sentence-transformers with the run's own features; whether that is possible.

    A mean over residues without begin and end token has no module there, so encoders of proteins go without.
    """
    if not isinstance(encoder, TextEncoder):
        return False
    if isinstance(encoder, ProteinEncoder) and encoder.readout.modes == ("mean",):
        for file in SENTENCE_FILES:
            (folder / file).unlink()
        (folder / "1_Pooling").rmdir()
        return False
    most = min(max_tokens, max_positions(encoder.model))
    write_json(folder / BESIDE, {"max_seq_length": most, "do_lower_case": encoder.lowers})
    versions = {"transformers": transformers.__version__, "labeldeconv": __version__}
    told = {"__version__": versions, "similarity_fn_name": "cosine", **prompts_of(encoder.prompt)}
    write_json(folder / PROMPTS, told)
    return True


def _without_paths(config: Config, data: str) -> Config:
    """The settings with the data's and the encoder's name in the place of a path on the author's machine."""
    encoder = config.encoder.model_copy(update={"name": public_name(config.encoder.name)})
    return config.model_copy(update={"data": data, "encoder": encoder, "log": "none", "device": "auto"})


def public_name(encoder: str) -> str:
    """An encoder's name without folders of this machine: the last part of each."""
    parts = (part.rpartition("=") for part in encoder.split(","))
    return ",".join(f"{a}{b}{Path(c).name if Path(c).exists() else c}" for a, b, c in parts)


def _copy(source: Path, target: Path) -> None:
    """A file of its own, which may be written: a run's are read-only links."""
    shutil.copyfile(source, target)


def _plain(value: Any) -> Any:
    """A value without NaN, which stands for a score that there is none of: None in JSON."""
    if isinstance(value, dict):
        return {key: _plain(held) for key, held in value.items()}
    return None if isinstance(value, float) and value != value else value
