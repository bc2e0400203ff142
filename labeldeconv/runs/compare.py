"""compare and sweep: methods x GNNs x varied settings x seeds on one graph, sharing every stage they can.

    compare("planted", methods=["pne", "fne", "wo-ld", "ld"], gnns=["gcn", "sagn"], seeds=5)
    sweep("planted", {"labels.hops": [0, 1, 2]}, seeds=3)

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

from labeldeconv.data.findings import Loaded
from labeldeconv.errors import ConfigError, LabelDeconvError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.metrics import score_text
from labeldeconv.methods.base import METHODS, method_named
from labeldeconv.progress import logger
from labeldeconv.runs.asked import Parts, dotted, is_auto, name_of, resolve, settings_from
from labeldeconv.runs.directory import COMPARISON, FORMAT, begin_comparison, check_writable, claimed
from labeldeconv.runs.fit import fit_graph
from labeldeconv.runs.preparation import SHORT_KEY, check_split, contenders, load_graph, plain_name, prepare
from labeldeconv.runs.result import Result
from labeldeconv.runs.spread import Spread, paired_p
from labeldeconv.settings.models import Config
from labeldeconv.settings.reading import label_settings, load_config
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.files import checksum, sealed, write_json, write_text
from labeldeconv.stages.keys import digest, token
from labeldeconv.stages.stage import session

REFERENCE = "ld"  # the method that significance is measured against
ABLATION = ("pne", "fne", "wo-ld", "ld")  # what is compared where nothing is named


@dataclass(frozen=True)
class Row:
    """One method with one GNN and one choice of the varied settings, over all seeds.

    Costs are means over seeds of what the stages cost when they were computed, shared ones included: what one run of
    this method alone would take. `encoder_passes` counts encodings of the whole graph, training epochs included.
    `batch` and `subgraph` are |B| and |G(B)| of the encoder's steps; the table shows them where they differ. `cells`
    are the names of the run directories, one per seed.
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
    cells: tuple[str, ...] = ()


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
        return {"format": FORMAT, **asdict(self), "run": str(self.run)}

    def columns(self) -> list[str]:
        """Heads of the table; the varied settings stand after the GNN, significance where there is some."""
        sizes = ["|B|", "|G(B)|"] if self._has_sizes else []
        costs = ["seconds", "MiB", "passes", *sizes, *([f"p vs {REFERENCE}"] if self.has_p else [])]
        return ["method", "GNN", *(self.rows[0].varied if self.rows else ()), "val", "test", *costs]

    def cells(self, row: Row) -> list[str]:
        """A row of the table as strings: scores in percent or their unit, mean and, over seeds, standard deviation."""
        memory = "" if row.peak_mib is None else f"{row.peak_mib:.0f}"
        p = ["" if row.p_value is None else f"{row.p_value:.3f}".replace("0.000", "<.001")] if self.has_p else []
        shown = self.metric
        scores = [s.shown(shown) if row.seeds > 1 else score_text(shown, s.mean) for s in (row.val, row.test)]
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
    data: str | Path | AttributedGraph,
    methods: Sequence[Any] | Literal["all"] = ABLATION,
    encoder: Any = None,
    gnns: Sequence[Any] | None = None,
    alpha: float | str | None = None,
    hops: int | str | None = None,
    seeds: int = 1,
    out: str | Path | None = None,
    cache: str | Path | None = None,
    config: Config | str | Path | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    **settings: Any,
) -> Comparison:
    """Run every method with every GNN and seeds 0..seeds-1 on one graph.

    Args:
        methods: names or functions; 'all' takes every method that can run on this graph.
        gnns: names, classes or modules of PyG; default the one of the settings.
        vary: dotted names of settings to the values they take, in all combinations.

    The other words are those of `fit`.
    """
    given = {**label_settings(alpha, hops), **dotted(settings)}
    asked = settings_from(data, None, encoder, None, None, config, given)
    parts = Parts.of(data, None, encoder)
    place, kept = Path(out) if out else None, Cache(Path(cache)) if cache else None
    return compare_config(asked, methods, gnns or [asked.gnn.name], seeds, place, parts, kept, vary)


def sweep(
    data: str | Path | AttributedGraph,
    vary: Mapping[str, Sequence[Any]],
    methods: Sequence[Any] | Literal["all"] = (REFERENCE,),
    encoder: Any = None,
    gnns: Sequence[Any] | None = None,
    alpha: float | str | None = None,
    hops: int | str | None = None,
    seeds: int = 1,
    out: str | Path | None = None,
    cache: str | Path | None = None,
    config: Config | str | Path | None = None,
    **settings: Any,
) -> Comparison:
    """Vary settings, all combinations, and tabulate: `compare` with `vary`, of LD alone unless said otherwise."""
    return compare(data, methods, encoder, gnns, alpha, hops, seeds, out, cache, config, vary, **settings)


@dataclass(frozen=True)
class PlannedRow:
    """One row before it is run: resolved settings, what was varied, objects in place of names, the graph."""

    settings: Config
    varied: dict[str, Any]
    parts: Parts
    graph: AttributedGraph
    warnings: tuple[str, ...] = ()

    def name(self, seed: int) -> str:
        """The folder of its run with a seed."""
        return cell_name(self.settings.method, self.settings.gnn.name, self.varied, seed)


def compare_config(
    config: Config,
    methods: Sequence[Any] | Literal["all"],
    gnns: Sequence[Any],
    seeds: int,
    out: Path | None = None,
    parts: Parts | None = None,
    cache: Cache | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
) -> Comparison:
    """Run every method with every GNN, every combination of `vary` (dotted names to values) and seeds 0..seeds-1.

    Finished stages are never run again, so a killed comparison goes on where it was. What cannot run on this graph is
    told before anything runs; "all" leaves it out.
    """
    check_writable(out or Path("runs") / "run")
    with session(cache):
        cells = cells_of(config, methods, gnns, parts or Parts(), vary or {})
    if not cells:
        raise LabelDeconvError("compare: no method is left that can run here")
    out = out or _default_folder(cells, seeds)
    with claimed(out):
        return _compare_cells(cells, seeds, out, cache)


def _compare_cells(cells: Sequence[PlannedRow], seeds: int, out: Path, cache: Cache | None) -> Comparison:
    """Run every cell with every seed and write the tables."""
    begin_comparison(out, [cell.name(seed) for cell in cells for seed in range(seeds)])
    rows: list[Row] = []
    for cell in cells:
        results = []
        for seed in range(seeds):
            name, number = cell.name(seed), len(rows) * seeds + seed + 1
            logger.info("%s (%d of %d)", name, number, len(cells) * seeds)
            settings = load_config(cell.settings, {"seed": seed})
            results.append(fit_graph(settings, cell.graph, cell.parts, out / name, cache, warnings=cell.warnings))
            logger.info("%s: val %.4f test %.4f", name, results[-1].val, results[-1].test)
        rows.append(row_of(cell, results))
        graph, first = cells[0].graph, results[0]
        comparison = Comparison(graph.name, first.metric, first.higher_is_better, _with_p(rows), out)
        write_tables(comparison)  # after every row: an unfinished comparison can be read
    return comparison


def cell_name(method: str, gnn: str, varied: Mapping[str, Any], seed: int) -> str:
    """The folder of a cell's run directory inside the comparison's."""
    return "-".join(plain_name(str(part)) for part in (method, gnn, *varied.values(), seed))


def cells_of(
    config: Config,
    methods: Sequence[Any] | Literal["all"],
    gnns: Sequence[Any],
    parts: Parts,
    vary: Mapping[str, Sequence[Any]],
) -> list[PlannedRow]:
    """Every cell that can run; what cannot is raised, or left out of 'all' with a word."""
    named = [name for name in METHODS if name != "auto"] if methods == "all" else methods  # auto is some of them again
    options = config.gnn.options if len(gnns) == 1 else {}  # options belong to one GNN
    graphs: dict[tuple[Any, ...], Loaded] = {}
    out = []
    if "metric" in vary:
        raise ConfigError("metric: rows of a table are compared by one metric, which cannot be varied; one expected")
    for values in itertools.product(*vary.values()):
        varied = dict(zip(vary, values, strict=True))
        for gnn, method in itertools.product(gnns, named):
            own = replace(parts, method=Parts.of(None, method).method, gnn=Parts.of(None, None, None, gnn).gnn)
            names = {"gnn.name": name_of(gnn), "gnn.options": options, "method": name_of(method)}
            known = method_named(method)
            settings = resolve(load_config(config, {**names, **varied}), own)
            place = (settings.data, settings.data_seed, str(settings.split))
            if place not in graphs:
                graphs[place] = load_graph(settings, parts.graph)
            opened = graphs[place]
            if not is_auto(settings, own):  # built, so that options that do not fit are told now
                prepare(settings, opened.graph, own).architecture.sample  # noqa: B018
            try:
                run = contenders(settings, opened.graph, own, known)[0][0]
                known.needs(run)
                check_split(run, known)
                out.append(PlannedRow(settings, varied, own, opened.graph, tuple(opened.warnings)))
            except LabelDeconvError as obstacle:
                if methods != "all":
                    raise
                logger.warning("left out: %s with %s: %s", known.name, settings.gnn.name, obstacle)
    return out


def _default_folder(cells: Sequence[PlannedRow], seeds: int) -> Path:
    """runs/DATA-compare-KEY: the key of all cells' settings, data and objects."""
    held = []
    for cell in cells:
        runs, _ = contenders(
            cell.settings, cell.graph, cell.parts, method_named(cell.parts.method or cell.settings.method)
        )
        run = runs[0]
        objects = [each.architecture.content_key for each in runs]
        objects += [run.encoder.content_key] if cell.parts.encoder is not None else []
        held.append([token(cell.settings), cell.graph.content_key, objects])
    return Path("runs") / f"{plain_name(cells[0].graph.name)}-compare-{digest([held, seeds])[:SHORT_KEY]}"


def row_of(cell: PlannedRow, results: list[Result]) -> Row:
    """A row of the table from the runs of all seeds."""
    labels = dict.fromkeys(label for r in results for label in r.seconds)
    stages = {label: statistics.fmean(r.seconds.get(label, 0.0) for r in results) for label in labels}
    peaks = [peak for r in results for peak in r.peak_mib.values() if peak is not None]
    tests = [r.test for r in results]
    batch, subgraph = (
        statistics.fmean(sizes) if (sizes := [s for r in results if (s := getattr(r, name)) is not None]) else None
        for name in ("batch", "subgraph")
    )
    return Row(
        method=cell.settings.method,
        gnn=_gnn_of(cell, results),
        varied=cell.varied,
        val=Spread.of([r.val for r in results]),
        test=Spread.of(tests),
        seeds=len(results),
        seconds=round(sum(stages.values()), 3),
        peak_mib=max(peaks, default=None),
        encoder_passes=round(statistics.fmean(r.encoder_nodes for r in results) / cell.graph.num_nodes, 3),
        stages={label: round(seconds, 3) for label, seconds in stages.items()},
        tests=tests,
        batch=batch,
        subgraph=subgraph,
        cells=tuple(cell.name(seed) for seed in range(len(results))),
    )


def _gnn_of(cell: PlannedRow, results: list[Result]) -> str:
    """The GNN of a row; one that was chosen, for all seeds alike, stands behind 'auto'."""
    name = cell.settings.gnn.name
    return f"{name} ({results[0].settings['gnn']['name']})" if is_auto(cell.settings, cell.parts) else name


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


def write_tables(comparison: Comparison) -> None:
    """Write the tables and compare.json, which has their checksums and its own."""
    tables = {"table.md": comparison.to_markdown(), "table.csv": comparison.to_csv()}
    for name, text in tables.items():
        write_text(comparison.run / name, text)
    paths = [comparison.run / name for name in tables]
    listed = {path.name: [path.stat().st_size, checksum(path)] for path in paths}
    write_json(comparison.run / COMPARISON, sealed({**comparison.to_dict(), "files": listed}))
