"""Scores with their spread, and the table of methods with significance."""

from __future__ import annotations

import math

from labeldeconv.graph.metrics import NUMBERS, score_unit
from labeldeconv.report.blocks import Block, Cell, Facts, Figure, PageTable, Section, Text, score_axis, shown, spread
from labeldeconv.report.source import Entry, ReportSource, short
from labeldeconv.report.wording import NOTHING
from labeldeconv.runs.compare import REFERENCE
from labeldeconv.runs.directory import RunDirectory

SIGNIFICANT = 0.05
MOST_ROWS = 200  # of the score chart; the table has all


def overview(source: ReportSource) -> Section:
    """The first tab: what came out."""
    blocks: list[Block] = [Text(headline(source), lead=True)]
    if not source.compared:
        blocks.append(_facts(source))
    else:
        blocks += [_scores(source), _table(source)]
    blocks += races(source)
    return Section("overview", "Scores", blocks)


def races(source: ReportSource) -> list[Block]:
    """How GNNs were chosen by validation score, each race once; none where all GNNs were named."""
    found: dict[str, RunDirectory] = {}
    for run in source.runs:
        if run.race:
            found.setdefault(run.result["stages"].get("gnn race", run.name), run)
    return [block for run in found.values() for block in _race(source, run)]


def _race(source: ReportSource, run: RunDirectory) -> list[Block]:
    assert run.race is not None
    rows = [
        [
            Cell(c["name"], strong=not c["dropped"]),
            Cell(shown(source.metric, c["score"])),
            Cell(f"{c['epochs']:,}" if c["epochs"] else NOTHING),
            Cell(str(c["seeds"] or NOTHING)),
            Cell(f"{c['seconds']:,.1f}"),
            Cell(c["dropped"] or "chosen"),
        ]
        for c in run.race["candidates"]
    ]
    columns = ["GNN", f"val {source.metric}{score_unit(source.metric)}", "epochs", "seeds", "seconds", "outcome"]
    note = "Candidates raced on the features of the encoder before training; score, epochs and seeds are of the last "
    note += "heat of each. Labels of test nodes were not used."
    table = PageTable(
        "How the GNN was chosen", columns, rows, [False, True, True, True, True, False], note, prose=len(columns) - 1
    )
    return [Text(run.race["reason"]), table]


def headline(source: ReportSource) -> str:
    """The result in a sentence or two, with what it cannot say."""
    best = source.reference
    share = source.metric not in NUMBERS
    metric = f"{shown(source.metric, best.test[0])}{'%' if share else ''} test {source.metric}"
    first = f"{best.method.upper()} reaches {metric} with {best.group}"
    if sum(e.method == best.method for e in source.entries) > 1:
        first += " (best on validation nodes)"
    others = [e for e in source.groups[best.group] if e is not best and not math.isnan(e.test[0])]
    if not others or math.isnan(best.test[0]):
        return f"{first}." + _caution(source)
    other = max(others, key=lambda e: source.rank(e.test[0]))
    gap = best.test[0] - other.test[0]
    where, far = "above" if gap >= 0 else "below", f"{abs(100 * gap):.1f} points" if share else f"{abs(gap):.3g}"
    than = f"({spread_of(other, source)}{'%' if share else ''})"
    told = f"{first}, {far} {where} the best other method, {other.method.upper()} {than}."
    if not source.higher_is_better:
        told += " Lower is better."
    p = other.p_value
    if p is not None:
        sign = p_text(p) if p < 0.0005 else f"= {p_text(p)}"
        sign = sign.replace(" ", "\u00a0")  # no line break inside
        word = "is" if p < SIGNIFICANT else "is not"
        told += f" The difference {word} beyond the seeds' noise (paired t-test over {len(best.tests)} seeds, "
        told += f"p\u00a0{sign})."
    return told + _caution(source)


def spread_of(entry: Entry, source: ReportSource) -> str:
    """The test score of an entry."""
    return spread(*entry.test, len(entry.tests), source.metric)


def p_text(p: float | None) -> str:
    """A p-value with three decimals."""
    return "" if p is None else "< 0.001" if p < 0.0005 else f"{p:.3f}"


def _caution(source: ReportSource) -> str:
    return " One seed: there is no spread, and small gaps may be noise." if source.seeds == 1 else ""


def _facts(source: ReportSource) -> Facts:
    entry = source.entries[0]
    facts = [
        ("method", entry.method),
        ("GNN", _gnn(entry)),
        (f"test {source.metric}{score_unit(source.metric)}", shown(source.metric, entry.test[0])),
        (f"validation {source.metric}{score_unit(source.metric)}", shown(source.metric, entry.val[0])),
        ("seconds", f"{entry.seconds:,.1f}"),
        ("peak memory (MiB)", NOTHING if entry.peak_mib is None else f"{entry.peak_mib:,.0f}"),
        ("encoder passes", NOTHING if math.isnan(entry.passes) else f"{entry.passes:.1f}"),
    ]
    if gamma := next((run.gamma for run in entry.runs), None):
        facts.append(("gamma at the end", ", ".join(f"{g:.3f}" for g in gamma)))
    return Facts(facts)


def _gnn(entry: Entry) -> str:
    race = next((run.race for run in entry.runs if run.race), None)
    return f"{entry.gnn}, chosen among {len(race['candidates'])} by validation score" if race else entry.gnn


def _scores(source: ReportSource) -> Figure:
    alone = _alone(source) and len(source.entries) > 1
    rows = [
        {
            "name": e.group if alone else e.method,
            "group": "" if alone or len(source.groups) == 1 else e.group,
            "color": e.color,
            "mean": e.test[0],
            "std": e.test[1],
            "points": e.tests if len(e.tests) > 1 else [],
            "text": spread_of(e, source),
        }
        for e in source.entries[:MOST_ROWS]
        if not math.isnan(e.test[0])
    ]
    note = "Large mark: mean over seeds; line: one standard deviation to each side; small marks: single seeds."
    note = note if source.seeds > 1 else "One seed each."
    if len(source.entries) > MOST_ROWS:
        note += f" The first {MOST_ROWS} of {len(source.entries)} rows; the table has all."
    spec = {"type": "intervals", "x": score_axis("test", source.metric), "rows": rows}
    return Figure(f"Test {source.metric}", [("", spec)], note, wide=True)


def _alone(source: ReportSource) -> bool:
    """Whether every entry is the only one of its group, as in a sweep of one method: then all are compared."""
    return len(source.groups) == len(source.entries)


def _table(source: ReportSource) -> PageTable:
    with_p = any(e.p_value is not None for e in source.entries)
    varied = source.varied
    columns = ["method", "GNN", *map(short, varied), "val", "test", "seeds"]
    columns += [f"p vs {REFERENCE}"] if with_p else []
    columns += ["seconds", "MiB", "passes"]
    group = {id(e): "" if _alone(source) else e.group for e in source.entries}
    best: dict[str, float] = {}
    for e in source.entries:
        if not math.isnan(e.test[0]):
            best[group[id(e)]] = max(best.get(group[id(e)], -math.inf), source.rank(e.test[0]))
    rows = []
    for e in source.entries:
        cells = [Cell(e.method), Cell(e.gnn), *(Cell(str(e.varied[k])) for k in varied)]
        strong = source.rank(e.test[0]) == best.get(group[id(e)])
        cells += [Cell(spread(*e.val, len(e.tests), source.metric)), Cell(spread_of(e, source), strong=strong)]
        cells += [Cell(str(len(e.tests)))]
        if with_p:
            cells.append(Cell(p_text(e.p_value), strong=e.p_value is not None and e.p_value < SIGNIFICANT))
        memory = NOTHING if e.peak_mib is None else f"{e.peak_mib:,.0f}"
        rows.append([*cells, Cell(f"{e.seconds:,.1f}"), Cell(memory), Cell(f"{e.passes:.1f}")])
    of = "" if _alone(source) else " among the methods of a group"
    unit = ", not in percent" if source.metric in NUMBERS else " in percent"
    note = f"val and test: {source.metric}{unit}. Bold: best test score{of}. MiB: peak memory. "
    note += "passes: encodings of the whole graph, training epochs included."
    if with_p:
        note += f" p: two-sided paired t-test against {REFERENCE} over the same seeds, bold below 0.05, not corrected "
        note += "for the number of comparisons."
    numeric = [False, False, *[True] * (len(columns) - 2)]
    return PageTable("Methods", columns, rows, numeric, note, [e.color for e in source.entries])
