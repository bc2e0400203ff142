"""From resolved settings to the `Run` that a method takes: names become objects, and what does not fit is told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from labeldeconv.data.findings import Loaded
from labeldeconv.data.opening import open_data
from labeldeconv.encoders.pretrained import Pretrained, Weights
from labeldeconv.encoders.trunk import SplitEncoder
from labeldeconv.errors import ConfigError, LabelDeconvError
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import Task, class_weights
from labeldeconv.methods.base import Method, Run
from labeldeconv.progress import logger
from labeldeconv.runs.asked import Parts, candidates, is_auto
from labeldeconv.runs.warm_start import kept_hops, seen_before, warm_start
from labeldeconv.settings.models import Config
from labeldeconv.stages.keys import digest, token

MOST_BYTES = 48  # of a part of a folder's name; a whole name may have 255, and there are five parts
SHORT_KEY = 8  # characters of the key in the name of a default folder
_splits: set[tuple[str, int]] = set()  # encoders, by content, that were found to split before so many last layers


def open_graph(settings: Config, graph: AttributedGraph | None = None) -> AttributedGraph:
    """The graph that the settings name, or the one given, with the split that they ask for."""
    return load_graph(settings, graph).graph


def load_graph(settings: Config, graph: AttributedGraph | None = None) -> Loaded:
    """The same with what is odd about its files, which is also said."""
    if graph is None:
        loaded = open_data(settings.data, settings.data_seed)
    else:
        graph.check()
        loaded = Loaded(graph, [])
    for warning in loaded.warnings:
        logger.warning("warning: %s", warning)
    return Loaded(loaded.graph.resplit(settings.split, settings.data_seed), list(loaded.warnings))


def prepare(settings: Config, graph: AttributedGraph, parts: Parts | None = None) -> Run:
    """The frozen run of resolved settings on a graph: names become an encoder, an architecture and a device."""
    parts = parts or Parts()
    _check_task(settings, graph)
    inductive = settings.setting == "inductive"
    if inductive and settings.train.psi_init == "gnn":
        raise ConfigError("setting 'inductive': train.psi_init 'fresh' expected, since there is no first GNN")
    architecture = Architecture.of(settings.gnn, parts.gnn)
    architecture.sample  # noqa: B018 (built, so that options that do not fit are told now)
    _check_norms(settings, architecture)
    kept, adapters = settings.encoder.weights, settings.encoder.lora_rank
    if kept != "float32" and not adapters and settings.method not in ("pne", "given"):
        raise ConfigError(f"encoder.weights '{kept}': these weights do not train; encoder.lora_rank above 0 expected")
    if settings.gnn.inputs == "both" and settings.gnn.init == "psi":
        raise ConfigError(
            "gnn.inputs 'both' with gnn.init 'psi': psi reads the learned features alone; 'fresh' expected"
        )
    start, seen = warm_start(settings), graph.training_view() if inductive else graph
    run = Run(
        graph=seen,
        whole=graph,
        settings=settings,
        encoder=Weights(Pretrained(settings.encoder, parts.encoder), start.encoder),
        architecture=architecture,
        device=_device(settings.device),
        kept_gnn=start.gnn,
        kept_hops=kept_hops(settings, seen),
    )
    run.class_weights  # noqa: B018 (computed, so that a wrong number of them is told now)
    return run


def contenders(
    settings: Config, graph: AttributedGraph, parts: Parts, method: Method
) -> tuple[list[Run], dict[str, str]]:
    """The runs of all GNNs that can be had, and the names of the others with what stands against them.

    A GNN that was named by hand is not left out: what stands against it is raised where it is used.
    """
    found = candidates(settings, parts)
    if not is_auto(settings, parts):
        return [prepare(found[0], graph, parts)], {}
    runs, left_out, obstacles = [], {}, []
    for each in found:
        try:
            run = prepare(each, graph, parts)
            run.architecture.sample  # noqa: B018 (built, so that settings that do not fit are told now)
            method.needs(run)
            runs.append(run)
        except LabelDeconvError as obstacle:
            left_out[each.gnn.name] = f"cannot run here: {obstacle}"
            obstacles.append(obstacle)
    if not runs:
        raise obstacles[0]
    return runs, left_out


def check_split(run: Run, method: Method) -> None:
    """Refuse `encoder.train_layers` for an encoder that cannot be split, before anything runs."""
    number, pretrained = run.settings.encoder.train_layers, run.encoder.pretrained
    if number is None or not method.work(run.graph, run.settings, run.architecture.hops).trained:
        return
    if (pretrained.content_key, number) not in _splits:
        SplitEncoder(pretrained.load(), number)
        _splits.add((pretrained.content_key, number))


def default_folder(settings: Config, runs: Sequence[Run], parts: Parts) -> Path:
    """runs/DATA-METHOD-GNN-SEED-KEY: the key of all settings, of the data and of objects given in place of names.

    Where the GNN is yet to be chosen among those of `runs`, it is called 'auto' there.
    """
    run = runs[0]
    held = [token(settings), run.whole.content_key, *(each.architecture.content_key for each in runs)]
    held += [run.encoder.content_key] if parts.encoder is not None or settings.start is not None else []
    names = [run.whole.name, settings.method, settings.gnn.name, str(settings.seed), digest(held)[:SHORT_KEY]]
    return Path("runs") / "-".join(map(plain_name, names))


def plain_name(name: str) -> str:
    """A name as a part of a folder's name: letters, digits, dots, dashes and underscores."""
    plain = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    plain = plain.encode()[:MOST_BYTES].decode(errors="ignore")
    return plain.lstrip(".") or "_"


def attribute_warning(pretrained: Pretrained, graph: AttributedGraph) -> str | None:
    """What to say when an encoder was not trained on the kind of attributes a graph has; None if all is well."""
    if pretrained.takes == graph.attributes:
        return None
    hints = {
        "text": "minilm or another text encoder",
        "sequence": "an ESM2 model or unirep-64",
        "record": "COLUMN=ENCODER,COLUMN=ENCODER,...",
    }
    name = pretrained.config.name
    what = f"'{graph.name}' has attributes of the kind {graph.attributes}, and '{name}' reads {pretrained.takes}s"
    return f"{what}; {hints[graph.attributes]} fits"


def attribute_warnings(run: Run, method: Method) -> list[str]:
    """That the encoder does not fit the attributes, unless the method encodes nothing; it is also said."""
    work = method.work(run.graph, run.settings, run.architecture.hops)
    if not (work.exports or work.trained) or not (mismatch := attribute_warning(run.encoder.pretrained, run.whole)):
        return []
    logger.warning("warning: %s", mismatch)
    return [mismatch]


def start_warnings(run: Run) -> list[str]:
    """That the run starts from one which has seen labels that it is scored on; it is also said."""
    if (seen := seen_before(run.settings, run.whole)) is None:
        return []
    logger.warning("warning: %s", seen)
    return [seen]


def _check_norms(settings: Config, architecture: Architecture) -> None:
    """Refuse a last GNN with BatchNorm that would start from a psi with LayerNorm: their weights do not fit."""
    if settings.gnn.init != "psi" or settings.train.psi_norm != "layer":
        return
    if any(isinstance(module, nn.BatchNorm1d) for module in architecture.sample.modules()):
        raise ConfigError(
            f"gnn.init 'psi' with train.psi_norm 'layer': {architecture.name} has BatchNorm, which cannot start from "
            "psi's LayerNorm; train.psi_norm 'batch' or 'running', or gnn.init 'fresh' expected"
        )


def _check_task(settings: Config, graph: AttributedGraph) -> None:
    """Tell a metric, a loss or weights that the labels do not take now, not after hours."""
    Task.of(graph, settings.metric)
    if graph.task == "regression":
        class_weights(graph.task, graph.num_classes, graph.train_labels, settings.class_weights)
    elif settings.regression_loss != "mse":
        raise ConfigError(
            f"regression_loss '{settings.regression_loss}': the labels are classes, whose loss is the cross entropy; "
            "'mse', which is not used then, expected"
        )


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()  # a device that is not there is told now, not hours later
        return device
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise ConfigError(f"device '{name}': cannot be used here: {why}") from None
