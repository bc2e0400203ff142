"""What a score costs: test score against time and memory, and time by stage."""

from __future__ import annotations

import math

from labeldeconv.report.blocks import Block, Figure, Section, axis, score_axis, series
from labeldeconv.report.source import Entry, ReportSource

MOST_ROWS = 40
COLORS = {"train": 0, "features": 6, "encode": 5, "gnn": 2, "first gnn": 4, "tokens": 7, "hops": 1, "pseudo": 3}


def costs(source: ReportSource) -> Section | None:
    """The tab of costs; None where no stage was timed."""
    entries = [e for e in source.entries if e.stages]
    if not entries:
        return None
    blocks: list[Block] = []
    if source.compared:
        note = "What one run of the method alone costs, shared stages included. Up and to the left is better."
        seconds = [(e, e.seconds) for e in entries]
        blocks.append(_against(source, seconds, "Score against time", axis("seconds", log=True), note))
        memory = [(e, e.peak_mib) for e in entries if e.peak_mib is not None]
        if memory:
            words = "Largest resident memory of any stage."
            blocks.append(_against(source, memory, "Score against memory", axis("peak memory (MiB)", "int"), words))
    blocks.append(_stages(source, entries[:MOST_ROWS]))
    return Section("costs", "Cost", blocks)


def _against(source: ReportSource, costs: list[tuple[Entry, float]], title: str, x: dict, note: str) -> Figure:
    lines = []
    for entry, cost in costs:
        if math.isnan(entry.test[0]):
            continue
        error = entry.test[1] if len(entry.tests) > 1 else None
        lines.append(series(entry.method, entry.color, [[float(cost), entry.test[0], error, source.name(entry)]]))
    y = score_axis("test", source.metric)
    return Figure(title, [("", {"type": "scatter", "x": x, "y": y, "series": lines, "labels": len(lines) <= 16})], note)


def _stages(source: ReportSource, entries: list[Entry]) -> Figure:
    names = dict.fromkeys(stage for e in entries for stage in e.stages)
    heavy = sorted(names, key=lambda s: -max(e.stages.get(s, 0.0) for e in entries))[:8]
    kept = [name for name in names if name in heavy]
    rest = [name for name in names if name not in heavy]
    free = iter(c for c in range(9) if c not in [COLORS.get(name) for name in kept])
    parts = [{"name": name, "color": COLORS[name] if name in COLORS else next(free)} for name in kept]
    if rest:
        parts.append({"name": "other", "color": 9})
    rows = []
    for entry in entries:
        values = [round(entry.stages.get(name, 0.0), 2) for name in kept]
        values += [round(sum(entry.stages.get(name, 0.0) for name in rest), 2)] if rest else []
        rows.append({"name": source.name(entry), "parts": values})
    spec = {"type": "stacked", "x": axis("seconds"), "parts": parts, "rows": rows}
    note = "Mean over seeds of what each stage took when it was computed, also where it came from the cache."
    if len(source.entries) > len(entries):
        note += f" The first {len(entries)} of {len(source.entries)} rows."
    return Figure("Time by stage", [("", spec)], note, wide=True)
