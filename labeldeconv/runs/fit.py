"""fit: data -> method -> GNN -> scores -> run directory. The whole of labeldeconv from one call.

    result = fit("planted", method="ld", encoder="minilm", gnn="gcn", train__epochs=2)
    result.test, result.features.shape, result.run

`resolve` (runs/asked.py) fills in what the data set and the GNN suggest, `load_graph` and `prepare`
(runs/preparation.py) open the graph and make the frozen `Run` that the method gets, and `fit_graph` calls the method
and writes what it learned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.methods.base import Learned, Method, Run, method_named
from labeldeconv.methods.giant import predict_neighbourhoods
from labeldeconv.methods.given import own_features
from labeldeconv.methods.gnn_race import race
from labeldeconv.progress import logger
from labeldeconv.runs.asked import Parts, dotted, is_auto, resolve, settings_from, with_choices_of_fit
from labeldeconv.runs.directory import RunDirectory, begin_run, check_place, check_writable, claimed, write_run
from labeldeconv.runs.preparation import (
    attribute_warnings,
    check_split,
    contenders,
    default_folder,
    load_graph,
    start_warnings,
)
from labeldeconv.runs.provenance import provenance, versions
from labeldeconv.runs.result import Result, result_of
from labeldeconv.settings.models import Config
from labeldeconv.settings.reading import label_settings
from labeldeconv.stages import ranks
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.memory_limit import limited
from labeldeconv.stages.stage import Use, session
from labeldeconv.stages.watch import open_metrics
from labeldeconv.training.capacity import largest_batch
from labeldeconv.training.features import BothFeatures, Features, given


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
        method: a name of `labeldeconv list`, or a function from `Run` to `Learned`; 'auto', the default, takes hop
            heads, unless another method is clearly better on the validation nodes.
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
            told = [*warnings, *attribute_warnings(runs[0], method), *start_warnings(runs[0])]
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
            result = {**result_of(run, learned, account.used), **more}
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


def _adapted(run: Run, method: Method) -> Run:
    """The run whose encoder has learned neighbourhoods first, if the settings ask for it and the method takes it."""
    if run.settings.encoder.adapt == "none" or not method.adapts:
        return run
    whole = run.settings.encoder.model_copy(update={"train_layers": None})  # all of it is adapted
    adapting = replace(run, settings=run.settings.model_copy(update={"encoder": whole}))
    return replace(run, encoder=run.encoder.with_trained(predict_neighbourhoods(adapting)))
