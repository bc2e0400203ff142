"""When inverse labels pay: the runs planned in docs/plan.md, one cell at a time, resumable, and their statistics.

    python benchmarks/evidence.py --minutes 60          # run cells until the time is up; again to go on
    python benchmarks/evidence.py --only words,citeseer --minutes 60    # two with other graphs can run side by side
    python benchmarks/evidence.py --report              # tables and tests of what is finished
    python benchmarks/evidence.py --predictor           # does `analyze bias` foretell the gain?
    python benchmarks/evidence.py --plan                # the cells, and how many are done

A cell is a graph with a split, a GNN, a seed and a method. Each adds a line to benchmarks/results/evidence.jsonl;
stages are shared through the cache.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from labeldeconv.analysis.bias import Before, before_training
from labeldeconv.data.opening import open_data
from labeldeconv.errors import LabelDeconvError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.runs.asked import Parts, resolve
from labeldeconv.runs.fit import fit
from labeldeconv.runs.spread import Spread, signed_rank, signed_rank_p
from labeldeconv.settings.reading import load_config

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "data"
RESULTS = ROOT / "benchmarks" / "results" / "evidence.jsonl"
ALL = {"train__epochs": 3, "gnn__race_minutes": 1.0}
TEXT = {**ALL, "encoder": "minilm", "encoder__train_layers": 2, "train__lr": 2e-4}
SEQUENCES = {**ALL, "encoder": "unirep-64", "train__lr": 5e-5, "train__batch_nodes": 256, "train__batch_tokens": 65536,
             "encoder__max_tokens": 128}  # fmt: skip
SEEDS = {"words": 10}  # 5 for the others
ROPE = 0.3  # points


@dataclass(frozen=True)
class Case:
    """A graph: where it is, its settings, whether the full split follows the seed or the time."""

    name: str
    data: str
    settings: dict[str, Any]
    split_by_seed: bool = False
    by_time: bool = False


CASES = [
    Case("words", f"{SHARED / 'ud_english_ewt'}#8000", {**TEXT, "encoder__max_tokens": 8}, split_by_seed=True),
    Case("citeseer", str(SHARED / "citeseer"), {**TEXT, "encoder__max_tokens": 24}, split_by_seed=True),
    Case("stacks", f"{SHARED / 'stacks'}#3000", {**TEXT, "encoder__max_tokens": 16}, by_time=True),
    Case("debian", "debian#3000", {**TEXT, "encoder__max_tokens": 24}),
    Case("wordnet", "wordnet#3000", {**TEXT, "encoder__max_tokens": 16}),
    Case("string_yeast", f"string:4932@{SHARED / 'string_yeast'}", SEQUENCES),
]
METHODS: dict[str, dict[str, Any]] = {
    "pne": {"method": "pne"},
    "fne": {"method": "fne"},
    "fne-long": {"method": "fne", "train__epochs": 30},
    "wo-ld": {"method": "wo-ld"},
    "ld": {"method": "ld"},
    "ld-auto": {"method": "ld", "labels__gamma": "auto"},
    "ld-heads": {"method": "ld-heads"},
    "glem": {"method": "glem"},
    "giant": {"method": "giant"},
    "auto": {"method": "auto"},
}
# `auto` once took whatever had the highest validation score. Cells of that rule tell no `tried` and go by this name:
# they are reported beside the others, count as no cell of `auto`, and are not run again.
FIRST_AUTO = "auto-first"
MAIN = ["pne", "fne", "wo-ld", "ld", "ld-heads", "auto"]
# (split, GNN, methods), in the order in which they run: what answers the first question comes first.
PHASES = [
    ("low", "auto", MAIN),
    ("full", "auto", MAIN),
    ("low", "gcn", MAIN[:-1]),
    ("full", "gcn", MAIN[:-1]),
    ("low", "auto", ["fne-long", "ld-auto", "glem", "giant"]),
    ("full", "auto", ["ld-auto", "glem", "giant"]),
    ("inductive", "auto", MAIN),
]


@dataclass(frozen=True)
class Cell:
    """What is run: the graph, 'full', 'low' or 'inductive', 'auto' or a GNN, the seed and the method."""

    graph: str
    split: str
    gnn: str
    seed: int
    method: str


def cells(only: list[str], methods: list[str]) -> Iterator[Cell]:
    """All cells, phase by phase, seed by seed."""
    for split, gnn, of_phase in PHASES:
        for seed in range(10):
            for case in CASES:
                if case.name not in only or seed >= SEEDS.get(case.name, 5):
                    continue
                if split == "inductive" and not case.split_by_seed:
                    continue
                for method in of_phase:
                    if method in methods:
                        yield Cell(case.name, split, gnn, seed, method)


def graph_of(case: Case, split: str, seed: int) -> AttributedGraph:
    """The graph with the split of the plan."""
    graph = open_data(case.data, seed if case.split_by_seed else 0).graph
    if split == "low":
        return graph.resplit([0.08, 0.02], seed)
    if case.by_time and graph.ids is not None:
        order = np.argsort(np.array(list(graph.ids)), kind="stable")  # tags have four characters, in order of birth
        first, second = round(0.54 * len(order)), round(0.72 * len(order))
        return replace(graph, split=Split.from_ids(len(order), order[:first], order[first:second], order[second:]))
    return graph


def run(cell: Cell, gnns: dict[tuple[str, str], str]) -> dict[str, Any]:
    """The scores of a cell; the GNN that `auto` takes at seed 0 serves all seeds and methods of a graph and split."""
    case = next(case for case in CASES if case.name == cell.graph)
    graph = graph_of(case, cell.split, cell.seed)
    setting = {"setting": "inductive"} if cell.split == "inductive" else {}
    place = (cell.graph, cell.split)
    out = ROOT / "runs" / f"evidence-{cell.graph}"  # so that processes with other graphs run beside each other
    if cell.gnn == "auto" and place not in gnns:
        chooser = graph_of(case, cell.split, 0)
        gnns[place] = fit(chooser, method="pne", gnn="auto", seed=0, out=out, **case.settings, **setting).settings[
            "gnn"
        ]["name"]
    gnn = gnns[place] if cell.gnn == "auto" else cell.gnn
    start = time.time()
    result = fit(graph, gnn=gnn, seed=cell.seed, out=out, **{**case.settings, **setting, **METHODS[cell.method]})
    return {
        "gnn_taken": gnn, "metric": result.metric, "val": result.val, "test": result.test, "gamma": result.gamma,
        "chosen": result.chosen, "tried": result.tried, "seconds": round(sum(result.seconds.values()), 1),
        "encoder_nodes": result.encoder_nodes, "wall": round(time.time() - start, 1),
    }  # fmt: skip


def finished() -> dict[Cell, dict[str, Any]]:
    """What is done, by cell; the last line of a cell counts."""
    if not RESULTS.exists():
        return {}
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    return {_cell_of(row): row for row in rows}


def _cell_of(row: dict[str, Any]) -> Cell:
    """The cell of a line; one of `auto` by its first rule is `auto-first`."""
    cell = Cell(**row["cell"])
    return replace(cell, method=FIRST_AUTO) if cell.method == "auto" and "tried" not in row else cell


def report(done: dict[Cell, dict[str, Any]]) -> None:
    """Mean test scores by graph, split and GNN, and tests between methods over all of them."""
    by_place: dict[tuple[str, str, str], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for cell, row in done.items():
        if "test" in row:
            by_place[cell.graph, cell.split, cell.gnn][cell.method][cell.seed] = row["test"]
    names = [*METHODS, FIRST_AUTO]
    print("| graph | split | GNN | " + " | ".join(names) + " |\n|---|---|---|" + "---:|" * len(names))
    for place, methods in sorted(by_place.items()):
        shown = [str(Spread.of(list(methods[m].values()))) if methods[m] else "-" for m in names]
        print(f"| {' | '.join(place)} | {' | '.join(shown)} |")
    print("\n| | over | pairs | mean | Wilcoxon p | worse | equal | better |\n|---|---|---:|---:|---:|---:|---:|---:|")
    for a, b in combinations(reversed(names), 2):
        for split in ("low", "full", "inductive"):
            pairs = [
                100 * (methods[a][seed] - methods[b][seed])
                for place, methods in by_place.items()
                for seed in methods[a].keys() & methods[b].keys()
                if place[1] == split
            ]
            if len(pairs) > 1:
                worse, equal, better = signed_rank(pairs, ROPE)
                p = signed_rank_p(pairs)
                told = "-" if p is None else f"{p:.4f}"
                numbers = [f"{np.mean(pairs):+.2f}", told, *(f"{share:.2f}" for share in (worse, equal, better))]
                print(f"| {a} - {b} | {split} | {len(pairs)} | {' | '.join(numbers)} |")


def predictor(done: dict[Cell, dict[str, Any]]) -> None:
    """Rank correlation, over graphs and splits, of what is known before training with the gain of inverse labels."""
    told, gains = list[Before](), defaultdict[str, list[float]](list)
    for graph, split in sorted({(cell.graph, cell.split) for cell in done}):
        scores: dict[str, list[float]] = {
            method: [100 * row["test"] for cell, row in sorted(done.items(), key=lambda item: item[0].seed)
                     if (cell.graph, cell.split, cell.gnn, cell.method) == (graph, split, "auto", method)]
            for method in ("wo-ld", "ld", "ld-heads")
        }  # fmt: skip
        number = min(map(len, scores.values()))
        if not number:
            continue
        taken = next(row["gnn_taken"] for cell, row in done.items() if (cell.graph, cell.split) == (graph, split))
        case = next(case for case in CASES if case.name == graph)
        settings = resolve(load_config(None, {"data": case.name, "gnn.name": taken}), Parts(graph_of(case, split, 0)))
        told.append(before_training(graph_of(case, split, 0), settings))
        for method in ("ld", "ld-heads"):
            gains[method].append(float(np.mean(scores[method][:number]) - np.mean(scores["wo-ld"][:number])))
        shown = ", ".join(f"{method} {gains[method][-1]:+.2f}" for method in gains)
        print(f"{graph} {split}, {number} seeds: removable {told[-1].removable:.2f}, {shown}", flush=True)
    print("\n| before training | gain of | places | Spearman's rho | p |\n|---|---|---:|---:|---:|")
    for name in ("removable", "residual_labels", "target_distance", "dependence", "alone"):
        for method, gain in gains.items():
            rho, p = spearmanr([getattr(before, name) for before in told], gain)
            print(f"| {name} | {method} over wo-ld | {len(gain)} | {rho:+.2f} | {p:.2f} |")


def main() -> None:
    """Run cells until the time is up, or say what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--only", default=",".join(case.name for case in CASES))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--predictor", action="store_true")
    parser.add_argument("--plan", action="store_true")
    args = parser.parse_args()
    done, asked = finished(), list(cells(args.only.split(","), args.methods.split(",")))
    if args.report:
        return report(done)
    if args.predictor:
        return predictor(done)
    if args.plan:
        print(f"{sum(cell in done for cell in asked)} of {len(asked)} cells are done")
        return None
    gnns = {(c.graph, c.split): row["gnn_taken"] for c, row in done.items() if c.gnn == "auto" and "gnn_taken" in row}
    end = time.time() + 60 * args.minutes
    lacking = set[str]()
    for cell in asked:
        if cell in done or cell.graph in lacking:
            continue
        if time.time() > end:
            print("time is up; run the same command again to go on")
            return None
        try:
            row = run(cell, gnns)
        except LabelDeconvError as error:
            print(f"{cell.graph}: {error}")
            lacking.add(cell.graph)
            continue
        RESULTS.parent.mkdir(exist_ok=True)
        with RESULTS.open("a") as file:
            file.write(json.dumps({"cell": asdict(cell), **row}) + "\n")
        print(f"{cell} val {100 * row['val']:.2f} test {100 * row['test']:.2f} {row['wall']:.0f} s", flush=True)
    return None


if __name__ == "__main__":
    main()
