"""Labels as targets: the learning bias before and after training, and the paper's similarity figure."""

from __future__ import annotations

import statistics
from typing import Any

from labeldeconv.analysis.bias import Before, before_training, bias
from labeldeconv.analysis.known import hops_of
from labeldeconv.analysis.outcome import Outcome
from labeldeconv.analysis.similarity import KINDS, Similarity, similarity
from labeldeconv.errors import LabelDeconvError
from labeldeconv.graph.metrics import NUMBERS
from labeldeconv.report.blocks import Block, Cell, Facts, Figure, PageTable, Section, Text, axis, percent, shown
from labeldeconv.report.source import ReportSource
from labeldeconv.report.wording import NOTHING, shortened

MOST_PREDICTED = 2_000_000  # nodes times runs for which psi is run again
MOST_TEXT = 300_000_000  # bytes of texts of which TF-IDF is made
TITLES = {"text": "Text similarity", "true": "Similarity of true labels", "pseudo": "Similarity of pseudo labels"}
TITLES |= {"inverse": "Similarity of inverse labels"}


def labels(source: ReportSource) -> Section | None:
    """The tab of targets; None where neither analysis has an answer."""
    blocks = [*_bias(source), *_similarity(source)]
    return Section("labels", "Labels", blocks) if blocks else None


def _bias(source: ReportSource) -> list[Block]:
    graph = source.graph
    assert graph is not None
    try:
        if graph.num_nodes * len(source.runs) <= MOST_PREDICTED:
            found = bias(source.folder)
            before, after = found.before, found.after
        else:
            first = source.runs[0]
            before, after = before_training(graph, first.config(), hops=hops_of(first)), None
    except LabelDeconvError:  # too few labels, or a GNN of the user's own that is not here
        return []
    lead = Text(f"Before training, from train labels and edges alone: {before.verdict}", lead=True)
    blocks: list[Block] = [lead, Facts(_facts(before))]
    return [*blocks, *([_psi(source, after)] if after and any(r.psi_test is not None for r in after.runs) else [])]


def _facts(before: Before) -> list[tuple[str, str]]:
    conflict = NOTHING if before.conflict is None else f"{percent(before.conflict, 1)}%"
    return [
        ("error behind the convolution, targets Y", f"{before.residual_labels:.3f}"),
        ("the same, inverse labels at the best gamma", f"{before.residual_inverse:.3f}"),
        ("squared error that LD can remove", f"{percent(before.removable, 1)}%"),
        ("labels explained by neighbours' labels", f"{percent(before.dependence, 1)}%"),
        ("train nodes unlike most neighbours", conflict),
        ("best gamma", ", ".join(f"{g:.2f}" for g in before.gamma)),
    ]


def _psi(source: ReportSource, after: Outcome) -> PageTable:
    """psi on the encoder alone against the GNN, means over seeds."""
    cells: dict[tuple[str, str], list[Any]] = {}
    for run in after.runs:
        cells.setdefault((run.method, run.run.removesuffix(f"-{run.seed}")), []).append(run)
    rows = []
    order = [(e.method, e.runs[0].cell) for e in source.entries if e.runs]
    for key in sorted(cells, key=lambda k: order.index(k) if k in order else len(order)):
        runs = cells[key]
        if any(r.psi_test is None for r in runs):
            continue
        psi, gnn, same = (
            statistics.fmean(getattr(r, name) for r in runs) for name in ("psi_test", "gnn_test", "agreement")
        )
        distances = [r.target_distance for r in runs if r.target_distance is not None]
        far = f"{statistics.fmean(distances):.3f}" if distances else NOTHING
        rows.append(
            [
                Cell(key[1] if source.compared else key[0]),
                *map(Cell, (shown(source.metric, psi), shown(source.metric, gnn), percent(same, 1), far)),
            ]
        )
    unit = "" if source.metric in NUMBERS else " in percent"
    note = f"Test {source.metric}{unit}, means over seeds. psi reads a node's own text only, the GNN its neighbours' "
    note += "too. agreement: nodes for which both predict the same. distance: || Y(gamma) - Y || / || Y ||. "
    note += "psi of LD predicts inverse labels, not labels, so that a low score of its own is no fault."
    columns = ["run", "psi alone", "GNN", "agreement", "distance of targets"]
    return PageTable("The encoder alone against the GNN", columns, rows, [False, True, True, True, True], note)


def _similarity(source: ReportSource) -> list[Block]:
    graph = source.graph
    assert graph is not None
    if not any(run.gamma for run in source.runs):
        return []
    size = int(graph.texts.lengths().sum())
    if size > MOST_TEXT:
        command = "labeldeconv analyze similarity"
        return [Text(f"Similarities are left out here: the texts have {size / 1e6:,.0f} MB. `{command}` makes them.")]
    try:
        found = similarity(source.folder)
    except LabelDeconvError:  # too few labelled texts, or no two that share a word
        return []
    if not found.nodes:
        return []
    return [_pairs(found), *(_map(found, name) for name in ("text", *KINDS)), _fits(found)]


def _places(found: Similarity) -> list[str]:
    """1a, 1b, 2a, ...: pair and member."""
    return [f"{i // 2 + 1}{'ab'[i % 2]}" for i in range(len(found.nodes))]


def _pairs(found: Similarity) -> PageTable:
    rows = [
        [Cell(place), Cell(shortened(node.id)), Cell(shortened(node.label)), Cell(node.text)]
        for place, node in zip(_places(found), found.nodes, strict=True)
    ]
    least = f"TF-IDF similarity of at least {found.threshold:g}"
    note = f"{found.found:,} pairs of different labels have a {least}; these were drawn from them at random."
    if 2 * found.found < len(rows):
        note = f"Fewer pairs than these have a {least}; the most similar ones are shown."
    return PageTable(
        "Similar texts with different labels", ["", "node", "label", "text"], rows, [False] * 4, note, prose=3
    )


def _map(found: Similarity, name: str) -> Figure:
    places = _places(found)
    spec = {"type": "heat", "x": axis("node"), "y": axis("node"), "rows": places, "columns": places, "form": "num"}
    return Figure(TITLES[name], [("", {**spec, "values": getattr(found, name)})])


def _fits(found: Similarity) -> PageTable:
    def number(value: float | None) -> Cell:
        return Cell(NOTHING if value is None else f"{value:.3f}")

    rows = [[Cell(kind), number(f.correlation), number(f.similar), number(f.random)] for kind, f in found.fits.items()]
    columns = ["labels", "correlation with texts", "similar texts", "random pairs"]
    count = next(iter(found.fits.values())).count
    note = (
        f"correlation: of text and label similarity over {count:,} pairs, half of them random. The other columns: mean "
    )
    note += "label similarity of pairs with different true labels. Targets that follow the texts are easier to learn. "
    note += f"Labels and gamma of {found.run}."
    return PageTable("How labels follow texts", columns, rows, [False, True, True, True], note)
