"""LD with hop heads, unless PNE, FNE or LD with the mix is clearly better by validation; the choice is trained in full.

All are tried for a third of the epochs. Hop heads are the favourite, and another candidate takes their place only if
its validation score leads theirs by more than one standard error of the difference (graph/lead.py). The highest of some
noisy scores is often the luckiest: to take it was worse than to take hop heads on graphs measured (docs/results.md).
In the same way the full training of the choice is what is taken, unless a try clearly leads it.

X_PNE, the first GNN, pseudo and hop labels are shared stages, so that the whole costs at most two runs of LD from three
epochs on. LD's gamma is chosen before training, where it may be ('auto' of `labels.gamma`), which includes WO/LD: so
that one needs no try of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from labeldeconv.errors import ConfigError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.lead import Judged, Lead, lead_text
from labeldeconv.graph.metrics import score_text
from labeldeconv.methods.base import Complexity, Learned, Run, Tried, Work, method, method_named
from labeldeconv.progress import logger
from labeldeconv.settings.models import Config
from labeldeconv.stages.stage import part_of_run

FAVOURITE = "ld-heads"
CANDIDATES = ("pne", "fne", "ld", FAVOURITE)
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


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A trained method: what it learned, what validation nodes say, and its leads over what it would replace."""

    label: str
    epochs: int
    learned: Learned
    judged: Judged
    leads: dict[str, Lead] = field(default_factory=dict)


@method(
    "auto",
    title="X_auto",
    trained_on="hop labels, or what is clearly better on validation nodes",
    nodes="all",
    work=_work,
    complexity=Complexity("O(|V|)", "O(|B|)", "Y & A"),
    needs=_need_validation_nodes,
    color=11,
)
def best_by_validation(run: Run) -> Learned:
    """Features of LD with hop heads, or of PNE, FNE or LD with the mix where validation nodes clearly prefer them."""
    short = run.with_settings({"train.epochs": _few(run.settings)})
    found = [_train(short, name) for name in CANDIDATES]
    taken = _unless_led(found[CANDIDATES.index(FAVOURITE)], found)
    if taken.epochs and taken.epochs < run.settings.train.epochs:
        assert taken.learned.method is not None
        full = _train(run, taken.learned.method)
        taken = _unless_led(full, found)
        found.append(full)
    for candidate in found:
        logger.info("auto: %s%s", _told(candidate, run.task.metric), "  <- taken" if candidate is taken else "")
    tried = (Tried(str(c.learned.method), c.epochs, c.learned.gnn.val, c.leads) for c in found)
    return replace(taken.learned, tried=tuple(tried))


def _train(run: Run, name: str) -> _Candidate:
    """A candidate; its stages are labelled by its name and epochs."""
    if name == "ld" and not run.inductive and "gamma" not in run.settings.labels.model_fields_set:
        run = run.with_settings({"labels.gamma": "auto"})
    candidate = method_named(name)
    candidate.needs(run)
    epochs = 0 if name == "pne" else run.settings.train.epochs
    label, val = f"{name} {epochs}" if epochs else name, run.whole.split.val
    with part_of_run(label):
        learned = replace(candidate.learn(run), method=name)
    judged = Judged.of(run.task, learned.gnn.logits[val], run.whole.known_labels[val])
    return _Candidate(label, epochs, learned, judged)


def _unless_led(favourite: _Candidate, others: Sequence[_Candidate]) -> _Candidate:
    """The favourite, or the best of the others that lead it by more than one standard error; all leads are noted."""
    clear = []
    for other in others:
        if other is not favourite:
            lead = other.leads[favourite.label] = other.judged.lead_over(favourite.judged)
            clear += [other] if lead.is_clear else []
    return max(clear, key=lambda candidate: candidate.judged.rank, default=favourite)


def _told(candidate: _Candidate, metric: str) -> str:
    """A candidate in a line of the log: its score, and how far it leads what it would replace."""
    leads = "".join(f", {lead_text(metric, lead)} over {label}" for label, lead in candidate.leads.items())
    return f"{candidate.label:<10}  val {score_text(metric, candidate.learned.gnn.val)}{leads}"
