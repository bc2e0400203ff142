"""What to do with a graph before anything is trained, in plain words: each piece with its reason and a command.

    labeldeconv inspect DATA        # the list under 'advice'; with --json too

Rules read texts, edges and the labels of train and validation nodes, never those of test nodes. A rule that has nothing
to say is silent. Thresholds stand below with what they come from; where nothing was measured, that is said.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from labeldeconv.analysis.bias import INDEPENDENT, Before, before_training
from labeldeconv.analysis.card import homophily, isolated, labelled
from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import Config

LOW_HOMOPHILY = (
    0.2  # word graph of English-EWT: homophily .04, GCN 47% and SAGN 79% of test nodes; not measured between
)
FEW_TRAIN = 0.1  # share of train nodes; the few-label splits of docs/results.md have 0.08
CUT_TEXTS = 0.2  # share of texts longer than encoder.max_tokens; not measured: a fifth is worth a word
IMBALANCE = 20.0  # train nodes of the largest class against those of the smallest; not measured
ISOLATED = 0.1  # share of nodes without an edge; not measured
ONE_WAY = (0.05, 0.95)  # share of edges to a lower node number: outside, edges are undirected ones, written once
RECIPROCAL = 0.5  # share of edges that are also there the other way round; links of undirected graphs have 0 or 1
KNOWN = 50  # edges, or nodes, with known labels below which nothing is said of them
CELLS = 50_000_000  # nodes times classes above which the bias is not computed: `analyze bias` does it


@dataclass(frozen=True)
class Advice:
    """One piece of advice.

    Args:
        topic: a word for it.
        finding: what the graph is like, with the number.
        reason: why that matters, with what was measured.
        command: what to run; DATA stands for the graph.
    """

    topic: str
    finding: str
    reason: str
    command: str


def advise(graph: AttributedGraph, config: Config, cut: float | None = None) -> list[Advice]:
    """All that there is to say of a graph.

    Args:
        config: resolved settings, for the bias and the length of texts.
        cut: share of texts that `encoder.max_tokens` cuts, where it is known.
    """
    found = [
        _homophily(graph),
        _few_labels(graph),
        _long_texts(cut, config.encoder.max_tokens),
        _imbalance(graph),
        *_bias(graph, config),
        _isolated(graph),
        _directed(graph, config),
    ]
    return [advice for advice in found if advice is not None]


def _homophily(graph: AttributedGraph) -> Advice | None:
    """Multi-class graphs whose neighbours mostly differ."""
    known = replace(graph, labels=graph.known_labels)
    seen = labelled(known)
    edges = int((seen[graph.edges[0]] & seen[graph.edges[1]]).sum())
    share = homophily(known) if edges >= KNOWN and graph.task == "multiclass" else None
    if share is None or share >= LOW_HOMOPHILY:
        return None
    return Advice(
        "homophily",
        f"only {share:.0%} of the edges join nodes of one class",
        "a GCN averages the node itself away: on a word graph of homophily .04 it has 47% where SAGN, which keeps the "
        "node's own part, has 79%",
        "labeldeconv fit DATA --gnn auto        # or --gnn sagn, --gnn sage",
    )


def _few_labels(graph: AttributedGraph) -> Advice | None:
    share = len(graph.split.train) / graph.num_nodes
    if share >= FEW_TRAIN:
        return None
    return Advice(
        "few labels",
        f"{len(graph.split.train):,} train nodes are {share:.1%} of the graph",
        "methods that also train on nodes without a label lead there: with 8% train nodes LD and WO/LD are 1 to 3 "
        "points above PNE and FNE on citeseer, stacks and debian, and an encoder that learned the neighbourhoods "
        "first (GIANT) brings 1 to 2.5 more on two of them; hop heads train on all nodes too",
        "labeldeconv fit DATA --method ld-heads --set encoder.adapt=giant",
    )


def _long_texts(cut: float | None, max_tokens: int) -> Advice | None:
    if cut is None or cut < CUT_TEXTS:
        return None
    return Advice(
        "long texts",
        f"{cut:.0%} of the texts are cut after {max_tokens} tokens",
        "what stands behind is not read; twice the tokens take about twice the time of the encoder",
        f"labeldeconv fit DATA --set encoder.max_tokens={2 * max_tokens}",
    )


def _imbalance(graph: AttributedGraph) -> Advice | None:
    """Multi-class graphs with a class many times as large as another."""
    if graph.task != "multiclass" or len(graph.split.train) < KNOWN:
        return None
    counts = np.bincount(graph.labels[graph.split.train], minlength=graph.num_classes)
    counts = counts[counts > 0]
    if counts.max() < IMBALANCE * counts.min():
        return None
    return Advice(
        "class imbalance",
        f"the largest class has {counts.max():,} train nodes, the smallest {counts.min():,}",
        "accuracy says little of the small classes, which a model can leave out; the report has scores by class",
        "labeldeconv fit DATA --out RUN && labeldeconv report RUN",
    )


def _bias(graph: AttributedGraph, config: Config) -> list[Advice]:
    """Which method is expected to pay, by labels of train nodes and edges among them (analysis/bias.py)."""
    if len(graph.split.train) < KNOWN or graph.num_nodes * graph.num_classes > CELLS:
        return []
    try:
        before = before_training(graph, config)
    except DataError:
        return []
    return [advice for advice in (_deconvolution(before), _independent(before)) if advice is not None]


def _deconvolution(before: Before) -> Advice | None:
    if not before.can_help:
        return None
    return Advice(
        "label deconvolution",
        f"inverse labels can take away {before.removable:.0%} of the squared learning bias",
        before.verdict,
        "labeldeconv fit DATA --method ld",
    )


def _independent(before: Before) -> Advice | None:
    """Labels that neighbours tell nothing about, where enough train nodes have neighbours to say so."""
    if before.dependence >= INDEPENDENT or before.alone > 0.5:
        return None
    return Advice(
        "labels without the graph",
        f"neighbours' labels explain {max(before.dependence, 0):.0%} of the labels",
        "a convolution then mixes in noise; an MLP on the same features reads no edge, and the difference tells what "
        "the graph is worth",
        "labeldeconv compare DATA --gnns mlp,auto",
    )


def _isolated(graph: AttributedGraph) -> Advice | None:
    alone = isolated(Adjacency.from_edges(graph.edges, graph.num_nodes))
    if alone.mean() <= ISOLATED:
        return None
    return Advice(
        "isolated nodes",
        f"{int(alone.sum()):,} nodes, {alone.mean():.0%}, have no edge",
        "there the text alone decides, and LD is WO/LD; look whether edges were lost, and at the score by degree "
        "in the report",
        "labeldeconv fit DATA --out RUN && labeldeconv report RUN",
    )


def _directed(graph: AttributedGraph, config: Config) -> Advice | None:
    """Edges that point both up and down the node numbers, but seldom both ways between two nodes."""
    source, target = (ends.astype(np.int64) for ends in graph.edges)
    proper = source != target
    source, target = source[proper], target[proper]
    if len(source) < KNOWN or not (config.labels.adjacency.undirected or config.gnn.adjacency.undirected):
        return None
    there = np.unique(source * graph.num_nodes + target)
    back = np.unique(target * graph.num_nodes + source)
    reciprocal = float(np.isin(there, back, assume_unique=True).mean())
    falling = float((source > target).mean())
    if reciprocal >= RECIPROCAL or not ONE_WAY[0] < falling < ONE_WAY[1]:
        return None
    return Advice(
        "directed edges",
        f"{1 - reciprocal:.0%} of the edges have none the other way round",
        "every edge works both ways unless you say otherwise; if the direction means something, such as who cites "
        "whom, hop heads can look along and against it, and validation tells whether that pays",
        "labeldeconv fit DATA --method ld-heads --set labels.adjacency.undirected=false",
    )
