"""`fit --continue RUN`: the encoder and the GNN of an earlier run as the start of this one.

The encoder takes the place of the pre-trained weights, so that X_PNE, pseudo labels and training all start from it;
the GNN begins with those of its weights whose names and shapes fit. Both stand in the keys of all stages that read them
by what made them, so that resuming and caching stay right, and texts that the earlier run has encoded with this encoder
are found (training/reuse.py). Rows of its hop labels serve where nothing that they depend on has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labeldeconv.errors import ConfigError, DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.labels.hops import hops
from labeldeconv.labels.kept_hops import KeptHops
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.settings.models import Config
from labeldeconv.stages.cache import Broken, check_files
from labeldeconv.stages.keys import digest
from labeldeconv.training.gnn import KeptGNN

WEIGHTS = "gnn.safetensors"
DECISIVE = (
    "name",
    "layers",
    "pooling",
    "normalize",
    "dim",
    "prompt",
    "lora_rank",
)  # of the encoder: with others its weights do not fit


@dataclass(frozen=True, eq=False)
class KeptEncoder:
    """The folder of an encoder that an earlier run has trained, and the key of the stage that trained it."""

    encoder: Path
    content_key: str


@dataclass(frozen=True)
class WarmStart:
    """What a run starts from; None where the earlier run has nothing that fits."""

    encoder: KeptEncoder | None = None
    gnn: KeptGNN | None = None


def warm_start(settings: Config) -> WarmStart:
    """What the run that `start` names has to begin with; its files are compared with their checksums."""
    if settings.start is None:
        return WarmStart()
    run = RunDirectory.open(settings.start)
    earlier = run.config()
    held = {name: told for name, told in run.result["files"].items() if name.split("/")[0] in ("encoder", WEIGHTS)}
    try:
        check_files(run.path, {"files": held}, content=True)
    except Broken as why:
        raise DataError(f"{run.path}: cannot be continued: {why}") from None
    encoder = None
    if run.encoder is not None:
        for name in DECISIVE:
            asked, had = (getattr(each.encoder, name) for each in (settings, earlier))
            if asked != had:
                raise ConfigError(f"start '{settings.start}': encoder.{name} {had!r} expected, its own, got {asked!r}")
        of_encoder = sorted((name, told[1]) for name, told in held.items() if name != WEIGHTS)
        encoder = KeptEncoder(run.encoder, run.result.get("encoder_key") or digest(of_encoder))
    gnn = KeptGNN(run.gnn_weights, digest(held[WEIGHTS])) if run.gnn == settings.gnn.name else None
    return WarmStart(encoder, gnn)


def kept_hops(settings: Config, graph: AttributedGraph) -> KeptHops | None:
    """Hop labels of the run that `start` names, for those of a graph; None where it had none."""
    if settings.start is None:
        return None
    run = RunDirectory.open(settings.start)
    told = (name.partition("/") for name in run.result["stages"].values())
    keys = tuple(key for stage, _, key in told if stage == hops.name)
    if not keys:
        return None
    inductive = run.settings["setting"] == "inductive"
    return KeptHops(settings.start, keys, lambda: run.graph.training_view() if inductive else run.graph, graph)


def seen_before(settings: Config, graph: AttributedGraph) -> str | None:
    """What to say where validation or test nodes were train nodes of the run that this one starts from."""
    if settings.start is None:
        return None
    earlier = RunDirectory.open(settings.start).graph
    taught = {earlier.node_id(int(node)) for node in earlier.split.train}
    asked = np.concatenate([graph.split.val, graph.split.test])
    count = sum(graph.node_id(int(node)) in taught for node in asked)
    if not count:
        return None
    return (
        f"{count:,} validation or test nodes were train nodes of '{settings.start}', which has learned their labels: "
        "scores on them say too much; start from a run with the same split"
    )
