"""compare: methods x GNNs x seeds on one graph, sharing every stage they can; mean and spread per cell."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labeldeconv.config import Config, load_config
from labeldeconv.graph import AttributedGraph
from labeldeconv.names import gnn_builder, method_named, open_data
from labeldeconv.pipeline import Result, run
from labeldeconv.progress import say
from labeldeconv.record import Cache, write_json, write_text


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over seeds (0 for one seed)."""

    mean: float
    std: float


@dataclass(frozen=True)
class Row:
    """One method with one GNN: scores over the seeds, and seconds of one run with nothing cached."""

    method: str
    gnn: str
    val: Spread
    test: Spread
    seeds: int
    seconds: float
    tests: list[float]


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

    def to_markdown(self) -> str:
        """The table as Markdown."""
        lines = ["| method | GNN | val | test | seeds | seconds |", "|---|---|---|---|---|---|"]
        lines += [f"| {' | '.join(cells)} |" for cells in map(row_cells, self.rows)]
        return f"{self.metric} on {self.data}\n\n" + "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """The table as CSV, unrounded."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["method", "gnn", "val_mean", "val_std", "test_mean", "test_std", "seeds", "seconds"])
        for r in self.rows:
            writer.writerow(
                [r.method, r.gnn, r.val.mean, r.val.std, r.test.mean, r.test.std, r.seeds, round(r.seconds, 3)]
            )
        return out.getvalue()


def compare(
    config: Config,
    methods: Sequence[str],
    gnns: Sequence[str],
    seeds: int,
    out: Path | None = None,
    graph: AttributedGraph | None = None,
    cache: Cache | None = None,
) -> Comparison:
    """Run every method with every GNN and seeds 0..seeds-1. Finished stages are never run again."""
    cache = cache or Cache()
    graph = graph or open_data(config.data, config.data_seed, cache).graph
    settings = {
        name: load_config(config, {"gnn.name": name, "gnn.options": config.gnn.options if len(gnns) == 1 else {}})
        for name in gnns
    }
    for method in methods:
        method_named(method)
    for gnn in gnns:
        gnn_builder(settings[gnn].gnn, graph.num_classes)  # a wrong name is told before anything runs
    out = out or Path("runs") / f"{graph.name}-compare"
    rows = []
    for gnn in gnns:
        for method in methods:
            results = []
            for seed in range(seeds):
                cell = load_config(settings[gnn], {"method": method, "seed": seed})
                results.append(run(cell, graph, out / f"{method}-{gnn}-{seed}", cache))
                say(f"{method:>6} {gnn} seed {seed}: val {results[-1].val:.4f} test {results[-1].test:.4f}")
            rows.append(_row(method, gnn, results))
    comparison = Comparison(graph.name, results[0].metric, results[0].higher_is_better, rows, out)
    write_text(out / "table.md", comparison.to_markdown())
    write_text(out / "table.csv", comparison.to_csv())
    write_json(out / "compare.json", comparison.to_dict())
    return comparison


def row_cells(row: Row) -> list[str]:
    """A row as strings: scores in percent, mean +- std."""
    spread = [f"{100 * s.mean:.2f} ± {100 * s.std:.2f}" for s in (row.val, row.test)]
    return [row.method, row.gnn, *spread, str(row.seeds), f"{row.seconds:.1f}"]


def _row(method: str, gnn: str, results: list[Result]) -> Row:
    vals, tests = [r.val for r in results], [r.test for r in results]
    seconds = statistics.mean(sum(r.seconds.values()) for r in results)
    return Row(method, gnn, _spread(vals), _spread(tests), len(results), seconds, tests)


def _spread(values: list[float]) -> Spread:
    return Spread(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0)
