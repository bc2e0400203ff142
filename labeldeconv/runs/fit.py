"""fit: data -> method -> GNN -> scores -> run directory. The whole of labeldeconv from one call.

    result = fit("planted", method="ld", encoder="minilm", gnn="gcn", train__epochs=2)
    result.test, result.features.shape, result.run

`resolve` fills in what the data set and the GNN suggest, `open_graph` opens the graph, `prepare` makes the frozen `Run`
that the method gets, and `fit_graph` calls it and writes what it learned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from labeldeconv.data.catalog import suggestions
from labeldeconv.data.findings import Loaded
from labeldeconv.data.opening import open_data
from labeldeconv.encoders.pretrained import Pretrained, Weights
from labeldeconv.encoders.trunk import SplitEncoder
from labeldeconv.errors import ConfigError, LabelDeconvError
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.gnns.base import GNN, GNNS
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import RegressionTask, Task, class_weights
from labeldeconv.methods.base import Learned, Method, Run, method_named
from labeldeconv.methods.giant import predict_neighbourhoods
from labeldeconv.methods.given import own_features
from labeldeconv.methods.gnn_race import race
from labeldeconv.progress import logger
from labeldeconv.runs.calibration import calibration
from labeldeconv.runs.directory import RunDirectory, begin_run, check_place, check_writable, claimed, write_run
from labeldeconv.runs.provenance import provenance, versions
from labeldeconv.runs.warm_start import seen_before, warm_start
from labeldeconv.settings.models import AUTO_GNN, Config
from labeldeconv.settings.reading import label_settings, load_config, said, with_suggestions
from labeldeconv.stages import ranks
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.files import write_json
from labeldeconv.stages.keys import digest, token
from labeldeconv.stages.memory_limit import limited
from labeldeconv.stages.stage import Use, session
from labeldeconv.stages.watch import open_metrics
from labeldeconv.training.capacity import largest_batch
from labeldeconv.training.features import BothFeatures, Features, given

OF_FIT = {"method": "auto", "gnn.name": AUTO_GNN}  # where `fit` is told none; settings alone have LD and a GCN
MOST_BYTES = 48  # of a part of a folder's name; a whole name may have 255, and there are five parts
SHORT_KEY = 8  # characters of the key in the name of a default folder
_splits: set[tuple[str, int]] = set()  # encoders, by content, that were found to split before so many last layers


@dataclass(frozen=True)
class Parts:
    """Objects that take the place of names in the settings; None where the name counts."""

    graph: AttributedGraph | None = None
    method: Any = None
    encoder: Any = None
    gnn: Any = None

    @classmethod
    def of(cls, data: Any, method: Any = None, encoder: Any = None, gnn: Any = None) -> Parts:
        """Those of the arguments that are objects and not names."""
        return cls(*(None if isinstance(part, str | Path) else part for part in (data, method, encoder, gnn)))


@dataclass(frozen=True)
class Result:
    """Scores, costs and files of one run.

    Args:
        metrics: every metric of the task, the one of `val` and `test` included: {"val": {name: score}, "test": ...};
            empty for runs older than it, None for a score without labels.
        gamma: weights of the hops at the end of training; None without inverse labels.
        alpha: share of the inverse labels in the targets; None for methods without them.
        chosen: the method that 'auto' took, None for others; `tried` are its candidates: method, epochs and val.
        seconds: by stage, as it was when the stage was computed.
        peak_mib: by stage, likewise.
        peak_accelerator_mib: by stage, of tensors on the fullest GPU; None without one.
        encoder_nodes: texts that went through the encoder, training epochs included; also by stage.
        reused_nodes_by_stage: nodes whose texts did not, since the same weights had encoded them before.
        step_seconds: where the time of the encoder's training steps went.
        largest_batch: nodes of `encoder.max_tokens` tokens in the largest training step of the encoder that fits the
            device's memory, where `find_batch` asked for it; None elsewhere, and for methods that train no encoder.
        batch: mean |B| of these steps: nodes of the batch.
        subgraph: mean |G(B)|: all nodes that a batch touches, halo nodes included; another than |B| in joint training.
        race: where gnn.name was 'auto': the GNN chosen, the reason in words, and the candidates with name, score,
            epochs, seeds, seconds and why they were dropped; None where the GNN was named.
        calibration: temperature fitted on the validation nodes, and the expected calibration error before and after it
            on validation and test nodes; None for runs older than it, and where labels are numbers.
        targets: where labels are numbers: `mean` and `std` (c,) of the train nodes' labels; None for classes.
        cached: stages that this run took from the cache.
        stages: by label, the folder of every stage inside the cache: its name and key.
        warnings: what was said of the data: what is odd about its files, an encoder that does not fit its attributes.
        provenance: command, versions, hardware, threads and state of the source of the process that wrote the run;
            empty for runs older than it.
        settings: resolved.
        run: the run directory.
        features: X of the method (n, d), memory-mapped; rows follow the graph's nodes. It stays open, so that it is
            this run's even if the directory is replaced.
        logits: predictions of the GNN (n, c) before softmax or sigmoid, likewise; of a regression in standard units,
            which `values` has in the unit of the labels.
    """

    metric: str
    higher_is_better: bool
    val: float
    test: float
    metrics: dict[str, dict[str, float | None]]
    gamma: list[float] | None
    alpha: float | None
    chosen: str | None
    tried: list[dict[str, Any]]
    seconds: dict[str, float]
    peak_mib: dict[str, float | None]
    peak_accelerator_mib: dict[str, float | None]
    encoder_nodes: int
    encoder_nodes_by_stage: dict[str, int]
    reused_nodes_by_stage: dict[str, int]
    step_seconds: dict[str, float] | None
    largest_batch: int | None
    batch: float | None
    subgraph: float | None
    cached: list[str]
    stages: dict[str, str]
    warnings: list[str]
    provenance: dict[str, Any]
    settings: dict[str, Any]
    race: dict[str, Any] | None
    calibration: dict[str, Any] | None
    targets: dict[str, list[float]] | None
    run: Path
    features: np.ndarray = field(repr=False, compare=False)
    logits: np.ndarray = field(repr=False, compare=False)

    @classmethod
    def of(cls, run: RunDirectory) -> Result:
        """The result of a run directory."""
        younger: dict[str, Any] = {
            "metrics": {},
            "peak_accelerator_mib": {},
            "largest_batch": None,
            "reused_nodes_by_stage": {},
            "chosen": None,
            "tried": [],
            "warnings": [],
            "provenance": {},
            "race": None,
            "calibration": None,
            "targets": None,
        }  # than the oldest runs of this format
        known = younger | run.result
        held = {f.name: known[f.name] for f in fields(cls) if f.name not in ("run", "features", "logits")}
        return cls(**held, run=run.path, features=run.features, logits=run.logits)

    @property
    def values(self) -> np.ndarray:
        """Predicted numbers (n, c) of a regression, in the unit of the labels."""
        if self.targets is None:
            raise ConfigError("values: numbers are predicted where labels are numbers; here they are classes")
        return np.asarray(self.logits, np.float64) * np.array(self.targets["std"]) + np.array(self.targets["mean"])

    def write_profile(self) -> dict[str, list[dict[str, Any]]]:
        """Where the time went, by stage and inside the encoder's training steps; also as profile.json of the run."""
        whole = sum(self.seconds.values()) or 1.0
        stages = [
            {
                "stage": label,
                "seconds": seconds,
                "share": round(seconds / whole, 4),
                "peak_mib": self.peak_mib[label],
                "computed": "before" if label in self.cached else "now",
            }
            for label, seconds in self.seconds.items()
        ]
        profile = {"stages": stages}
        if self.step_seconds:
            whole = sum(self.step_seconds.values()) or 1.0
            parts = sorted(self.step_seconds.items(), key=lambda part: -part[1])
            profile["step"] = [{"part": k, "seconds": s, "share": round(s / whole, 4)} for k, s in parts]
        write_json(self.run / "profile.json", profile)
        return profile

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        held = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("features", "logits")}
        return {**held, "run": str(self.run)}


def fit(
    data: str | Path | AttributedGraph,
    method: Any = None,
    encoder: Any = None,
    gnn: Any = None,
    alpha: float | str | None = None,
    hops: int | str | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    cache: str | Path | None = None,
    config: Config | str | Path | None = None,
    find_batch: bool = False,
    memory_mib: float | None = None,
    **settings: Any,
) -> Result:
    """Learn node features and predictions on a graph.

    Args:
        data: an `AttributedGraph`, a folder of tables, a saved graph, or a name such as 'planted'.
        method: a name of `labeldeconv list`, or a function from `Run` to `Learned`; 'auto', the default, takes the
            best on the validation nodes.
        encoder: a name of `labeldeconv list`, a hub id, a folder, a SentenceTransformer, or (model, tokenizer) of
            transformers.
        gnn: a name of `labeldeconv list`, 'package.module:Name', any class or module of PyG with
            forward(x, edge_index), or 'auto', the default: the best on validation nodes of all that there are.
        alpha: share of the inverse labels in the target, or 'auto'.
        hops: N of the inverse labels, or 'auto'.
        seed: of everything random.
        out: run directory; default runs/DATA-METHOD-GNN-SEED-KEY, with a key of all settings and of the data.
        cache: where finished stages live; default LABELDECONV_CACHE or the user's cache folder.
        config: a `Config` or a TOML file to start from.
        find_batch: measure first the largest batch of the encoder phase that fits the device's memory.
        memory_mib: for `find_batch`: memory that model and batch may use; None is all of the accelerator's, or what is
            free where the CPU computes.
        settings: any other setting, dots written as two underscores: train__epochs=2.

    Example:
        result = fit("planted", method="ld", encoder="minilm", gnn="gcn", train__epochs=2)
        result.test, result.features.shape
    """
    given = {**label_settings(alpha, hops), **dotted(settings)}
    asked = with_choices_of_fit(settings_from(data, method, encoder, gnn, seed, config, given))
    parts = Parts.of(data, method, encoder, gnn)
    where = Path(out) if out else None, Cache(Path(cache)) if cache else None
    return fit_config(asked, parts, *where, find_batch, memory_mib)


def with_choices_of_fit(config: Config) -> Config:
    """The settings of a `fit`: method and GNN are chosen by validation score unless they are named."""
    return load_config(config, {name: value for name, value in OF_FIT.items() if not said(config, name)})


def dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as keywords spell them, by their dotted names: train__epochs is train.epochs."""
    return {name.replace("__", "."): value for name, value in settings.items()}


def settings_from(
    data: Any,
    method: Any,
    encoder: Any,
    gnn: Any,
    seed: int | None,
    config: Config | str | Path | None,
    given: Mapping[str, Any],
) -> Config:
    """The settings that arguments ask for, objects by their names; `given` has dotted names."""
    names = {"method": method, "encoder.name": encoder, "gnn.name": gnn}
    overrides: dict[str, Any] = {name: name_of(thing) for name, thing in names.items() if thing is not None}
    overrides |= {} if seed is None else {"seed": seed}
    overrides["data"] = data.name if isinstance(data, AttributedGraph) else str(data)
    base = config if config is None or isinstance(config, Config) else Path(config)
    return load_config(base, {**overrides, **given})


def name_of(thing: Any) -> str:
    """A method, an encoder or a GNN as settings name it: objects and classes by the name of their class."""
    if isinstance(thing, str | Path):
        return str(thing)
    if isinstance(thing, Method):
        return thing.name
    if isinstance(getattr(thing, "method", None), Method):
        return thing.method.name
    thing = thing[0] if isinstance(thing, tuple) and thing else thing
    return getattr(thing, "__name__", type(thing).__name__)


def resolve(config: Config, parts: Parts | None = None) -> Config:
    """The settings with what the data set and the GNN suggest wherever the user has said nothing.

    The data set goes before the GNN, but for fewer layers than the GNN needs. Where the GNN is 'auto', its settings
    stay as they were said: each candidate resolves them with its own suggestions (`contenders`).
    """
    parts = parts or Parts()
    suggested = {} if parts.graph is not None else suggestions(config.data)
    if is_auto(config, parts):
        return with_suggestions(config, {k: v for k, v in suggested.items() if not k.startswith("gnn.")})
    kind = GNNS.named(config.gnn.name) if parts.gnn is None else parts.gnn
    kind = type(kind) if isinstance(kind, GNN) else kind
    if isinstance(kind, type) and issubclass(kind, GNN):
        suggested = {**kind.suggests, **suggested}
        if not said(config, "gnn.layers"):
            layers = suggested.get("gnn.layers", config.gnn.layers)
            suggested["gnn.layers"] = max(layers, kind.least_layers)
    return with_suggestions(config, suggested)


def is_auto(config: Config, parts: Parts | None = None) -> bool:
    """Whether the GNN is still to be chosen."""
    return config.gnn.name == AUTO_GNN and (parts is None or parts.gnn is None)


def candidates(config: Config, parts: Parts | None = None) -> list[Config]:
    """The resolved settings of every GNN that the settings allow: of those that race, or of the one that is named."""
    if not is_auto(config, parts):
        return [config]
    if config.gnn.options:
        named = ", ".join(config.gnn.options)
        raise ConfigError(f"gnn.options ({named}): options belong to one GNN; gnn.name expected, got '{AUTO_GNN}'")
    names = dict.fromkeys(config.gnn.candidates or GNNS.first)
    for name in names:
        GNNS.named(name)  # a wrong name is told now
    return [resolve(load_config(config, {"gnn.name": name}), parts) for name in names]


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
    start = warm_start(settings)
    run = Run(
        graph=graph.training_view() if inductive else graph,
        whole=graph,
        settings=settings,
        encoder=Weights(Pretrained(settings.encoder, parts.encoder), start.encoder),
        architecture=architecture,
        device=_device(settings.device),
        kept_gnn=start.gnn,
    )
    run.class_weights  # noqa: B018 (computed, so that a wrong number of them is told now)
    return run


def _check_norms(settings: Config, architecture: Architecture) -> None:
    """Refuse a last GNN with BatchNorm that would start from a psi with LayerNorm: their weights do not fit."""
    if settings.gnn.init != "psi" or settings.train.psi_norm != "layer":
        return
    if any(isinstance(module, nn.BatchNorm1d) for module in architecture.sample.modules()):
        raise ConfigError(
            f"gnn.init 'psi' with train.psi_norm 'layer': {architecture.name} has BatchNorm, which cannot start from "
            "psi's LayerNorm; train.psi_norm 'batch' or 'running', or gnn.init 'fresh' expected"
        )


def fit_config(
    config: Config,
    parts: Parts | None = None,
    out: Path | None = None,
    cache: Cache | None = None,
    find_batch: bool = False,
    memory_mib: float | None = None,
) -> Result:
    """Run one method with one GNN and one seed, from the cache where possible, and write the run directory.

    In processes that `torchrun` has started, all of them make this one run (docs/distributed.md).
    """
    parts = parts or Parts()
    method_named(parts.method or config.method)  # a wrong name is told before any data are read
    settings = resolve(config, parts)
    check_writable(out or Path("runs") / "run")
    if out is not None:
        check_place(out)
    with ranks.joined(), limited(settings.max_memory), session(cache) as opened:
        _check_ranks(settings, opened.cache, out)
        loaded = load_graph(settings, parts.graph)
        ranks.agree("data", {"graph": loaded.graph.content_key if ranks.world() > 1 else ""})
        return fit_graph(settings, loaded.graph, parts, out, cache, find_batch, memory_mib, loaded.warnings)


def _check_ranks(settings: Config, cache: Cache, out: Path | None) -> None:
    """Refuse to start where ranks differ in settings, versions, or the folders that they share."""
    if ranks.world() == 1:
        return
    facts = {f"setting {name}": json.dumps(value, default=str) for name, value in settings.model_dump().items()}
    held = {f"version of {name}": version for name, version in versions().items() if name != "system"}
    ranks.agree("ranks", {**facts, **held, "--out": str(out)})
    ranks.same_folder(cache.root, "cache folder")
    ranks.same_folder(Path("runs").absolute().parent if out is None else out.absolute().parent, "folder of the run")


def fit_graph(
    settings: Config,
    graph: AttributedGraph,
    parts: Parts,
    out: Path | None = None,
    cache: Cache | None = None,
    find_batch: bool = False,
    memory_mib: float | None = None,
    warnings: Sequence[str] = (),
) -> Result:
    """Run the method of resolved settings on an open graph and write the run directory.

    Args:
        warnings: what is odd about the graph's files; result.json records it.
    """
    cache = cache or Cache()
    method = method_named(parts.method or settings.method)
    runs, left_out = contenders(settings, graph, parts, method)
    out = out or default_folder(settings, runs, parts)
    leads = ranks.leads()
    with claimed(out) if leads else nullcontext(), limited(settings.max_memory):
        work = begin_run(out) if leads else out
        kind = settings.log if leads else "none"
        with open_metrics(kind, work, out.name, settings.model_dump()) as log, session(cache, log) as account:
            method.needs(runs[0])
            check_split(runs[0], method)
            told = [*warnings, *_attribute_warnings(runs[0], method), *_start_warnings(runs[0])]
            raced = choose_gnn(runs, method, left_out) if is_auto(settings, parts) else None
            run = next(run for run in runs if raced is None or run.settings.gnn.name == raced["chosen"])
            largest = None
            if find_batch and leads:
                with ranks.by_itself():
                    largest = largest_batch_of(run, method, memory_mib)
            adapted = _adapted(run, method)
            learned = method.learn(adapted)
            if not leads:
                ranks.hear()
                return Result.of(RunDirectory.open(out))
            more = {"largest_batch": largest, "warnings": told, "race": raced, "provenance": provenance()}
            result = {**_result(run, learned, account.used), **more}
            if log is not None:
                log.add({"score/val": result["val"], "score/test": result["test"]}, "score/seed", settings.seed)
        encodes = method.work(run.graph, settings, run.architecture.hops).exports > 0
        both = _both(adapted, learned, account.used)
        written = write_run(out, learned, graph, run.settings, result, adapted.encoder if encodes else None, both)
        cache.remember(out, [use.artefact.made.key for use in account.used])
        ranks.tell({"run": str(out)})
        return Result.of(written)


def _both(run: Run, learned: Learned, used: Sequence[Use]) -> BothFeatures | None:
    """What the GNN that predicts has read, where that is X_PNE beside X."""
    tried = (use.artefact for use in used if isinstance(use.artefact, BothFeatures))
    return next((both for both in tried if run.gnn_key(both) == learned.gnn.made.key), None)


def check_split(run: Run, method: Method) -> None:
    """Refuse `encoder.train_layers` for an encoder that cannot be split, before anything runs."""
    number, pretrained = run.settings.encoder.train_layers, run.encoder.pretrained
    if number is None or not method.work(run.graph, run.settings, run.architecture.hops).trained:
        return
    if (pretrained.content_key, number) not in _splits:
        SplitEncoder(pretrained.load(), number)
        _splits.add((pretrained.content_key, number))


def choose_gnn(runs: Sequence[Run], method: Method, left_out: Mapping[str, str]) -> dict[str, Any]:
    """The race of the GNNs of some runs, alike in all else, on the features that the method starts from."""
    first = _adapted(runs[0], method)
    encodes = method.work(first.graph, first.settings, 0)
    if encodes.exports or encodes.trained:
        X: Features = first.features(None, "encode")
    else:
        X = given(own_features(first.whole))
    return race(runs, X, left_out)


def largest_batch_of(run: Run, method: Method, memory_mib: float | None = None) -> int | None:
    """Most nodes of `encoder.max_tokens` tokens in a training step of the encoder with psi that fits the run's device.

    None, with a word, for methods that train no encoder.
    """
    if not method.work(run.graph, run.settings, run.architecture.hops).trained:
        logger.info("largest batch: %s trains no encoder", method.name)
        return None
    most = run.settings.encoder.max_tokens
    return largest_batch(run.encoder, run.psi(), run.inputs(), run.task, run.training, most, run.device, memory_mib)


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


def _attribute_warnings(run: Run, method: Method) -> list[str]:
    """That the encoder does not fit the attributes, unless the method encodes nothing; it is also said."""
    work = method.work(run.graph, run.settings, run.architecture.hops)
    if not (work.exports or work.trained) or not (mismatch := attribute_warning(run.encoder.pretrained, run.whole)):
        return []
    logger.warning("warning: %s", mismatch)
    return [mismatch]


def _start_warnings(run: Run) -> list[str]:
    """That the run starts from one which has seen labels that it is scored on; it is also said."""
    if (seen := seen_before(run.settings, run.whole)) is None:
        return []
    logger.warning("warning: %s", seen)
    return [seen]


def _adapted(run: Run, method: Method) -> Run:
    """The run whose encoder has learned neighbourhoods first, if the settings ask for it and the method takes it."""
    if run.settings.encoder.adapt == "none" or not method.adapts:
        return run
    whole = run.settings.encoder.model_copy(update={"train_layers": None})  # all of it is adapted
    adapting = replace(run, settings=run.settings.model_copy(update={"encoder": whole}))
    return replace(run, encoder=run.encoder.with_trained(predict_neighbourhoods(adapting)))


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


def _result(run: Run, learned: Learned, used: Sequence[Use]) -> dict[str, Any]:
    """What result.json says of a run: its scores, here with the test labels for once, and the account of its stages."""
    task, trained = Task.of(run.whole, run.settings.metric), learned.encoder
    metrics = {
        role: task.all_scores(learned.gnn.logits[ids], run.whole.labels[ids])
        for role in ("val", "test")
        for ids in [run.whole.split.ids(role)]
    }
    made = {use.label: use.artefact.made for use in used}
    counts = {use.label: int(getattr(use.artefact, "encoder_nodes", 0)) for use in used}
    kept = run.encoder.trained if run.settings.encoder.adapt == "none" else None
    reused = {use.label: int(getattr(use.artefact, "reused", 0)) for use in used}
    return {
        "metric": task.metric,
        "higher_is_better": task.higher_is_better,
        "val": learned.gnn.val,
        "test": metrics["test"][task.metric_name],
        "metrics": metrics,
        "gamma": trained.gamma if trained else None,
        "encoder_key": trained.made.key if trained else None if kept is None else kept.content_key,
        "alpha": learned.alpha,
        "chosen": learned.method,
        "tried": [asdict(tried) for tried in learned.tried],
        "seconds": {label: how.seconds for label, how in made.items()},
        "peak_mib": {label: how.peak_mib for label, how in made.items()},
        "peak_accelerator_mib": {label: how.peak_accelerator_mib for label, how in made.items()},
        "encoder_nodes": sum(counts.values()),
        "encoder_nodes_by_stage": counts,
        "reused_nodes_by_stage": {label: count for label, count in reused.items() if count},
        "step_seconds": (trained.step_seconds or None) if trained else None,
        "batch": trained.batch if trained else None,
        "subgraph": trained.subgraph if trained else None,
        "cached": [label for label, how in made.items() if how.cached],
        "stages": {label: f"{how.stage}/{how.key}" for label, how in made.items()},
        "settings": run.settings.model_dump(),
        **_probability_or_unit(task, learned, run),
    }


def _probability_or_unit(task: Task, learned: Learned, run: Run) -> dict[str, Any]:
    """The calibration of classes, or of a regression the mean and standard deviation that its outputs are in."""
    if isinstance(task, RegressionTask):
        return {"calibration": None, "targets": {"mean": list(task.mean), "std": list(task.std)}}
    return {"calibration": calibration(task, learned.gnn.logits, run.whole.labels, run.whole.split)}


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
