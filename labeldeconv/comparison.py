"""compare: methods x GNNs x varied settings x seeds on one graph, sharing every stage they can.

Every table of the paper is such a comparison: the main table (methods x GNNs), the ablation (fne, wo-ld, ld), the
sensitivity figures (vary hops, alpha) and the scaling figure (vary the encoder).
"""

from __future__ import annotations

import csv
import io
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from labeldeconv.config import Config
from labeldeconv.errors import LabelDeconvError
from labeldeconv.evaluate import Spread, paired_p
from labeldeconv.gnns.base import GNN
from labeldeconv.graph import AttributedGraph
from labeldeconv.methods.given import own_features
from labeldeconv.names import METHODS, gnn_builder, method_named, open_data
from labeldeconv.pipeline import Result, run
from labeldeconv.progress import say
from labeldeconv.record import Cache, write_json, write_text
from labeldeconv.settings import load_config
from labeldeconv.train.joint import layers
from labeldeconv.train.sampling import metis

REFERENCE = "ld"  # the method that significance is measured against


@dataclass(frozen=True)
class Row:
    """One method with one GNN and one choice of the varied settings, over all seeds.

    Costs are means over seeds of what the stages cost when they were computed, shared ones included: what one run of
    this method alone would take. `encoder_passes` counts encodings of the whole graph, training epochs included.
    `batch` and `subgraph` are |B| and |G(B)| of the encoder's steps; the table shows them where they differ.
    """

    method: str
    gnn: str
    varied: dict[str, Any]
    val: Spread
    test: Spread
    seeds: int
    seconds: float
    peak_mib: float | None
    encoder_passes: float
    stages: dict[str, float]
    tests: list[float]
    p_value: float | None = None
    batch: float | None = None
    subgraph: float | None = None


@dataclass(frozen=True)
class Comparison:
    """All rows; `run` holds table.md, table.csv, compare.json and the run directory of every cell."""

    data: str
    metric: str
    higher_is_better: bool
    rows: list[Row]
    run: Path

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints and `compare.json` holds."""
        return {**asdict(self), "run": str(self.run)}

    def columns(self) -> list[str]:
        """Heads of the table; the varied settings stand after the GNN, significance where there is some."""
        sizes = ["|B|", "|G(B)|"] if self._has_sizes else []
        costs = ["seconds", "MiB", "passes", *sizes, *([f"p vs {REFERENCE}"] if self.has_p else [])]
        return ["method", "GNN", *(self.rows[0].varied if self.rows else ()), "val", "test", *costs]

    def cells(self, row: Row) -> list[str]:
        """A row of the table as strings: scores in percent, mean and, over several seeds, standard deviation."""
        memory = "" if row.peak_mib is None else f"{row.peak_mib:.0f}"
        p = ["" if row.p_value is None else f"{row.p_value:.3f}".replace("0.000", "<.001")] if self.has_p else []
        scores = [str(s) if row.seeds > 1 else f"{100 * s.mean:.2f}" for s in (row.val, row.test)]
        sizes = ["" if s is None else f"{s:.0f}" for s in (row.batch, row.subgraph)] if self._has_sizes else []
        costs = [f"{row.seconds:.1f}", memory, f"{row.encoder_passes:.1f}", *sizes, *p]
        return [row.method, row.gnn, *map(str, row.varied.values()), *scores, *costs]

    @property
    def has_p(self) -> bool:
        """Whether some row could be tested against the reference."""
        return any(row.p_value is not None for row in self.rows)

    @property
    def _has_sizes(self) -> bool:
        return any(row.batch != row.subgraph for row in self.rows)

    @property
    def title(self) -> str:
        """What the table shows."""
        seeds = max((row.seeds for row in self.rows), default=0)
        return f"{self.metric} (%) on {self.data}, {seeds} seed{'s' if seeds != 1 else ''}"

    def to_markdown(self) -> str:
        """The table as Markdown."""
        heads = [head.replace("|", "\\|") for head in self.columns()]
        lines = [heads, ["---"] * len(heads), *map(self.cells, self.rows)]
        return f"{self.title}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def to_csv(self) -> str:
        """The table as CSV, unrounded."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        varied = list(self.rows[0].varied) if self.rows else []
        scores = ["val_mean", "val_std", "test_mean", "test_std"]
        costs = ["seeds", "seconds", "peak_mib", "encoder_passes", "batch", "subgraph", "p_value"]
        writer.writerow(["method", "gnn", *varied, *scores, *costs])
        for r in self.rows:
            values = [r.val.mean, r.val.std, r.test.mean, r.test.std]
            spent = [r.seeds, r.seconds, r.peak_mib, r.encoder_passes, r.batch, r.subgraph, r.p_value]
            writer.writerow([r.method, r.gnn, *r.varied.values(), *values, *spent])
        return out.getvalue()


def compare(
    config: Config,
    methods: Sequence[str] | Literal["all"],
    gnns: Sequence[str],
    seeds: int,
    out: Path | None = None,
    graph: AttributedGraph | None = None,
    cache: Cache | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
) -> Comparison:
    """Run every method with every GNN, every combination of `vary` (dotted names to values) and seeds 0..seeds-1.

    Finished stages are never run again, so a killed comparison goes on where it was. What cannot run on this graph is
    told before anything runs; "all" leaves it out.
    """
    cache = cache or Cache()
    graph = graph or open_data(config.data, config.data_seed, cache).graph
    cells = []
    for cell, varied in _cells(config, [*METHODS] if methods == "all" else methods, gnns, vary or {}):
        method_named(cell.method)
        gnn = gnn_builder(cell.gnn, graph.num_classes)(1)
        try:
            _check(cell.method, gnn, graph)
            cells.append((cell, varied))
        except LabelDeconvError as obstacle:
            if methods != "all":
                raise
            say(f"[yellow]left out[/] {cell.method} with {cell.gnn.name}: {obstacle}")
    out = out or Path("runs") / f"{graph.name}-compare"
    rows: list[Row] = []
    for cell, varied in cells:
        results = []
        for seed in range(seeds):
            name = cell_name(cell.method, cell.gnn.name, varied, seed)
            done = len(rows) * seeds + seed
            say(f"[bold]{name}[/] ({done + 1} of {len(cells) * seeds})")
            results.append(run(load_config(cell, {"seed": seed}), graph, out / name, cache))
            say(f"{name}: val {results[-1].val:.4f} test {results[-1].test:.4f}")
        rows.append(_row(cell, varied, results, graph.num_nodes))
        comparison = Comparison(graph.name, results[0].metric, results[0].higher_is_better, _with_p(rows), out)
        _write(comparison)  # after every cell: an unfinished comparison can be read
    return comparison


def _check(method: str, gnn: GNN, graph: AttributedGraph) -> None:
    """Raise what a cell would raise after hours."""
    if method == "given":
        own_features(graph)
    if method.startswith("joint"):
        layers(gnn)
    if method == "joint-gas":
        metis()


def cell_name(method: str, gnn: str, varied: Mapping[str, Any], seed: int) -> str:
    """The folder of a cell's run directory inside the comparison's."""
    return "-".join([method, gnn, *map(_plain, varied.values()), str(seed)])


def _cells(
    config: Config, methods: Sequence[str], gnns: Sequence[str], vary: Mapping[str, Sequence[Any]]
) -> list[tuple[Config, dict[str, Any]]]:
    """Settings of every cell, with what was varied in it."""
    out = []
    options = config.gnn.options if len(gnns) == 1 else {}  # options belong to one GNN
    for values in itertools.product(*vary.values()):
        varied = dict(zip(vary, values, strict=True))
        for gnn, method in itertools.product(gnns, methods):
            names = {"gnn.name": gnn, "gnn.options": options, "method": method}
            out.append((load_config(config, {**names, **varied}), varied))
    return out


def _row(cell: Config, varied: dict[str, Any], results: list[Result], nodes: int) -> Row:
    labels = dict.fromkeys(label for r in results for label in r.seconds)
    stages = {label: statistics.fmean(r.seconds.get(label, 0.0) for r in results) for label in labels}
    peaks = [peak for r in results for peak in r.peak_mib.values() if peak is not None]
    tests = [r.test for r in results]
    batch, subgraph = (
        statistics.fmean(sizes) if (sizes := [s for r in results if (s := getattr(r, name)) is not None]) else None
        for name in ("batch", "subgraph")
    )
    return Row(
        method=cell.method,
        gnn=cell.gnn.name,
        varied=varied,
        val=Spread.of([r.val for r in results]),
        test=Spread.of(tests),
        seeds=len(results),
        seconds=round(sum(stages.values()), 3),
        peak_mib=max(peaks, default=None),
        encoder_passes=round(statistics.fmean(r.encoder_nodes for r in results) / nodes, 3),
        stages={label: round(seconds, 3) for label, seconds in stages.items()},
        tests=tests,
        batch=batch,
        subgraph=subgraph,
    )


def _with_p(rows: Sequence[Row]) -> list[Row]:
    """Rows with the significance of their difference from the reference of the same GNN and settings."""
    reference = {(r.gnn, str(r.varied)): r.tests for r in rows if r.method == REFERENCE}
    keys = [(r.gnn, str(r.varied)) for r in rows]
    return [
        replace(row, p_value=paired_p(row.tests, reference[key]))
        if key in reference and row.method != REFERENCE
        else row
        for row, key in zip(rows, keys, strict=True)
    ]


def _write(comparison: Comparison) -> None:
    write_text(comparison.run / "table.md", comparison.to_markdown())
    write_text(comparison.run / "table.csv", comparison.to_csv())
    write_json(comparison.run / "compare.json", comparison.to_dict())


def _plain(value: Any) -> str:
    """A value as a part of a folder's name."""
    return "".join(c if c.isalnum() or c in "._" else "_" for c in str(value))
