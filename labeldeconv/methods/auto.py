"""The best method by validation: PNE, FNE, LD with the mix and with hop heads are tried, the best is trained in full.

Tried means: a third of the epochs. X_PNE, the first GNN, pseudo and hop labels are shared stages, so that the whole
costs at most two runs of LD from three epochs on. LD's gamma is chosen before training, where it may be ('auto' of
`labels.gamma`), which includes WO/LD: so that one needs no try of its own.
"""

from __future__ import annotations

from dataclasses import replace

from labeldeconv.errors import ConfigError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.metrics import score_text
from labeldeconv.methods.base import Complexity, Learned, Run, Tried, Work, method, method_named
from labeldeconv.progress import logger
from labeldeconv.settings.models import Config
from labeldeconv.stages.stage import part_of_run

CANDIDATES = ("pne", "fne", "ld", "ld-heads")
SHARE = 3  # a try has a third of the epochs


def _work(graph: AttributedGraph, settings: Config, hops: int) -> Work:
    """Tries of FNE, LD and heads, and LD in full, which is the most that the winner may be."""
    n, rounds = graph.num_nodes, settings.labels.rounds
    trained = _few(settings) * (len(graph.split.train) + 2 * rounds * n) + settings.train.epochs * rounds * n
    return Work(trained, 3 * rounds + 2, 3 * rounds + 2)


def _few(settings: Config) -> int:
    """Epochs of a try."""
    return max(1, settings.train.epochs // SHARE)


def _need_validation_nodes(run: Run) -> None:
    if len(run.whole.split.val) == 0:
        raise ConfigError("method 'auto': validation nodes expected, since they choose; name a method instead")


@method(
    "auto",
    title="X_auto",
    trained_on="what is best on validation nodes",
    nodes="all",
    work=_work,
    complexity=Complexity("O(|V|)", "O(|B|)", "Y & A"),
    needs=_need_validation_nodes,
    color=11,
)
def best_by_validation(run: Run) -> Learned:
    """Features of the method with the best validation score among PNE, FNE, LD with the mix and LD with hop heads."""
    short = run.with_settings({"train.epochs": _few(run.settings)})
    found = [_try(short, name) for name in CANDIDATES]
    first = max(found, key=lambda learned: run.task.rank(learned.gnn.val))
    assert first.method is not None
    if first.method != "pne" and _few(run.settings) < run.settings.train.epochs:
        found.append(_try(run, first.method))
    best = max(found, key=lambda learned: run.task.rank(learned.gnn.val))
    for learned in found:
        (tried,) = learned.tried
        val, taken = score_text(run.task.metric, tried.val), "  <- taken" if learned is best else ""
        logger.info("auto: %-8s %d epochs  val %s%s", tried.method, tried.epochs, val, taken)
    return replace(best, tried=tuple(tried for learned in found for tried in learned.tried))


def _try(run: Run, name: str) -> Learned:
    """What a candidate learns; its stages are labelled by its name and epochs."""
    if name == "ld" and not run.inductive and "gamma" not in run.settings.labels.model_fields_set:
        run = run.with_settings({"labels.gamma": "auto"})
    candidate = method_named(name)
    candidate.needs(run)
    epochs = 0 if name == "pne" else run.settings.train.epochs
    with part_of_run(f"{name} {epochs}" if epochs else name):
        learned = candidate.learn(run)
    return replace(learned, method=name, tried=(Tried(name, epochs, learned.gnn.val),))
