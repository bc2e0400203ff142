"""Every method on four real graphs: the comparison behind docs/results.md. Resumes where it stopped.

    python benchmarks/methods.py --budget 150                   # minutes; run again to go on
    python benchmarks/methods.py --extras                       # then adapted encoders, SAGN and more
    python benchmarks/methods.py --only citeseer --methods pne,ld
    python benchmarks/methods.py --write                        # docs/results.md from what is finished

Graphs: citeseer and stacks (a 6,000-node part) as text tables, debian (a 6,000-node part), string_yeast (sequences,
multi-label); each again with 8% train, 2% validation and 90% test nodes. Encoders: the first 2 layers of
MiniLM on 32 tokens, and UniRep's 64-unit model on 128 residues, so that the table fits two cores. Settings are the same
for all methods. LD is run with gamma chosen by the closed form (one encoder phase, as for WO/LD) and as in the paper
(alpha 1); training on train nodes only is a further variant. `+giant` methods start from an encoder that
has learned to predict neighbourhoods, and then train for one epoch instead of two. `+gnn` trains a new GNN on the
features of a jointly trained encoder, as for all other methods.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

from labeldeconv.errors import LabelDeconvError
from labeldeconv.runs.compare import compare_config
from labeldeconv.runs.spread import paired_p
from labeldeconv.settings.models import Config
from labeldeconv.settings.reading import load_config

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "data"
TEXT = {
    "encoder.layers": 2,
    "encoder.max_tokens": 32,
    "train.epochs": 2,
    "train.lr": 2e-4,
    "gnn.epochs": 150,
    "joint.fanout": 2,
    "joint.epochs": 2,
    "joint.max_neighbors": 32,
}
SEQUENCES = {
    "encoder.name": "unirep-64",
    "encoder.max_tokens": 128,
    "train.epochs": 2,
    "train.lr": 5e-5,  # of 5e-5, 2e-4 and 1e-3, the best on validation for FNE and LD, seed 0
    "train.batch_nodes": 256,  # a recurrent encoder takes as long for 256 sequences as for 32
    "train.batch_tokens": 65536,
    "joint.batch_nodes": 256,
    "gnn.epochs": 300,
    "gnn.eval_every": 5,
    "joint.fanout": 2,
    "joint.epochs": 2,
    "joint.max_neighbors": 32,
}
DATA: dict[str, dict[str, Any]] = {
    "citeseer": {**TEXT, "data": str(SHARED / "citeseer")},
    "stacks": {**TEXT, "data": f"{SHARED / 'stacks'}#6000"},
    "debian": {**TEXT, "data": "debian#6000"},
    "string_yeast": {**SEQUENCES, "data": f"string:4932@{SHARED / 'string_yeast'}"},
}
FULL = tuple(DATA)
DATA |= {f"{name}-low": {**given, "split": [0.08, 0.02]} for name, given in DATA.items()}
ADAPTED = {"encoder.adapt": "giant", "train.epochs": 1}
METHODS: dict[str, dict[str, Any]] = {
    "pne": {"method": "pne"},
    "fne": {"method": "fne"},
    "wo-ld": {"method": "wo-ld"},
    "ld": {"method": "ld"},
    "ld-train": {"method": "ld", "labels.nodes": "train"},
    "ld-auto": {"method": "ld", "labels.gamma": "auto"},
    "glem": {"method": "glem"},
    "glem-encoder": {"method": "glem", "glem.first": "encoder"},  # a third encoder phase, as in GLEM's RevGAT recipe
    "giant": {"method": "giant"},
    "joint-sage": {"method": "joint-sage"},
    "joint-gas": {"method": "joint-gas"},
    "joint-sage+gnn": {"method": "joint-sage", "joint.gnn": "fresh"},
    "joint-gas+gnn": {"method": "joint-gas", "joint.gnn": "fresh"},
    "fne+giant": {"method": "fne", **ADAPTED},
    "wo-ld+giant": {"method": "wo-ld", **ADAPTED},
    "ld+giant": {"method": "ld", **ADAPTED},
    "ld-auto+giant": {"method": "ld", "labels.gamma": "auto", **ADAPTED},
}
LD = {
    "ld": "ld, alpha 1",
    "ld-train": "ld, train nodes",
    "ld-auto": "ld, gamma auto",
    "ld+giant": "ld, alpha 1, +giant",
    "ld-auto+giant": "ld, gamma auto, +giant",
}
ABLATION = ("pne", "fne", "wo-ld", "ld", "ld-train", "ld-auto")
ADAPTED_METHODS = tuple(method for method in METHODS if method.endswith("+giant"))
Group = tuple[str, tuple[str, ...], tuple[str, ...]]  # GNN, graphs, methods
TABLE: list[Group] = [  # what matters first comes first; under four hours on two cores
    ("gcn", tuple(DATA), (*ABLATION, "giant")),
    ("gcn", (*FULL, "citeseer-low", "stacks-low"), ("glem",)),
    ("gcn", ("citeseer", "stacks", "debian"), ("joint-gas", "joint-sage", "joint-gas+gnn", "joint-sage+gnn")),
]
EXTRAS: list[Group] = [  # two hours more
    ("gcn", ("citeseer", "debian", "stacks"), ("glem-encoder",)),
    ("gcn", ("citeseer", "stacks", "debian", "citeseer-low", "debian-low"), ADAPTED_METHODS),
    ("sagn", ("citeseer", "stacks"), ABLATION),
    ("gcn", ("string_yeast",), ("joint-sage", "joint-gas", "joint-gas+gnn", "joint-sage+gnn")),
]


def settings(name: str, method: str) -> Config:
    """The settings of one data set and method."""
    return load_config(None, {**DATA[name], **METHODS[method]})


def cells(data: list[str], methods: list[str], gnns: list[str], groups: list[Group]) -> list[tuple[str, str, str]]:
    """(data, method, GNN) in the order of the groups."""
    return [
        (name, method, gnn)
        for gnn, graphs, group in groups
        for name in graphs
        for method in group
        if gnn in gnns and name in data and method in methods
    ]


def run(chosen: list[tuple[str, str, str]], seeds: int, out: Path, deadline: float) -> None:
    """The chosen cells; stops between cells when the time is up."""
    lacking: set[str] = set()
    for name, method, gnn in chosen:
        if name in lacking:
            continue
        if time.time() > deadline:
            print("time is up; run the same command again to go on")
            return
        start = time.time()
        config = settings(name, method)
        try:
            row = compare_config(config, [config.method], [gnn], seeds, out / name / f"{method}-{gnn}").rows[0]
        except LabelDeconvError as error:
            print(f"{name}: left out: {error}", flush=True)
            lacking.add(name)
            continue
        print(f"{name:14} {method:10} {gnn:5} val {row.val} test {row.test}  ({time.time() - start:.0f} s)", flush=True)


def finished(out: Path, name: str, gnn: str) -> dict[str, dict[str, Any]]:
    """The row of every finished method."""
    rows = {}
    for method in METHODS:
        path = out / name / f"{method}-{gnn}" / "compare.json"
        if path.exists():
            rows[method] = json.loads(path.read_text())["rows"][0]
    return rows


def encoder_seconds(row: dict[str, Any]) -> float:
    """Seconds of all encoder phases."""
    return sum(s for label, s in row["stages"].items() if label.startswith("train"))


RATIOS: list[tuple[str, str, str, Callable[[dict[str, Any]], float]]] = [  # head of the column, LD, other, seconds
    ("alpha 1, phase / WO/LD's", "ld", "wo-ld", encoder_seconds),
    ("auto, phase / WO/LD's", "ld-auto", "wo-ld", encoder_seconds),
    ("alpha 1 / GLEM", "ld", "glem", itemgetter("seconds")),
    ("train nodes / GLEM", "ld-train", "glem", itemgetter("seconds")),
    ("alpha 1 / GLEM, encoder first", "ld", "glem-encoder", itemgetter("seconds")),
    ("alpha 1 / SAGE", "ld", "joint-sage", itemgetter("seconds")),
]


def table(rows: dict[str, dict[str, Any]]) -> tuple[list[str], list[str]]:
    """A table, best test first, and the cells that say where LD stands in it."""
    main = by_validation(rows, adapted=False)
    lines = [
        "| method | val | test | p | seconds | encoder phase | MiB | passes |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for method in sorted(rows, key=lambda m: -rows[m]["test"]["mean"]):
        r = rows[method]
        val, test = (f"{100 * r[k]['mean']:.2f} ± {100 * r[k]['std']:.2f}" for k in ("val", "test"))
        name = LD.get(method, method)
        p = paired_p(r["tests"], rows[main]["tests"]) if main and method != main else None
        lines.append(
            f"| {f'**{name}**' if method == main else name} | {val} | {test} "
            f"| {'' if p is None else f'{p:.2f}'} | {r['seconds']:.0f} "
            f"| {encoder_seconds(r):.0f} | {r['peak_mib'] or 0:.0f} | {r['encoder_passes']:.1f} |"
        )
    best = best_other(rows, adapted=False)
    if main is None or best is None:
        return lines, []
    cells = [best, LD[main], difference(rows[main], rows[best])]
    cells += [difference(rows[m], rows[best]) if m in rows else "" for m in ("ld-auto", "ld")]
    ours, rival = by_validation(rows, adapted=True), best_other(rows, adapted=True)
    if ours and rival:
        return lines, [*cells, rival, LD[ours], difference(rows[ours], rows[rival])]
    return lines, [*cells, "", "", ""]


def by_validation(rows: dict[str, dict[str, Any]], adapted: bool) -> str | None:
    """The LD with the best mean validation score, among those with or without an adapted encoder."""
    ours = [m for m in rows if m in LD and m.endswith("+giant") == adapted]
    return max(ours, key=lambda m: rows[m]["val"]["mean"], default=None)


def best_other(rows: dict[str, dict[str, Any]], adapted: bool) -> str | None:
    """The method with the best mean test that is not LD, among those with or without an adapted encoder."""
    others = [m for m in rows if m not in LD and m.endswith("+giant") == adapted]
    return max(others, key=lambda m: rows[m]["test"]["mean"], default=None)


def costs(rows: dict[str, dict[str, Any]]) -> list[str]:
    """The ratios of `RATIOS`, empty where a method has not run."""
    return [
        f"{seconds(rows[ours]) / seconds(rows[other]):.2f}" if ours in rows and other in rows else ""
        for _, ours, other, seconds in RATIOS
    ]


def difference(a: dict[str, Any], b: dict[str, Any]) -> str:
    """Points between two mean test scores, and the standard error of that."""
    error = math.sqrt((a["test"]["std"] ** 2 + b["test"]["std"] ** 2) / len(a["tests"]))
    same = a["tests"] == b["tests"]
    return "the same" if same else f"{100 * (a['test']['mean'] - b['test']['mean']):+.2f} ± {100 * error:.2f}"


def write(out: Path, seeds: int) -> None:
    """docs/results.md from every finished cell; what stands above the line is kept."""
    path = ROOT / "docs" / "results.md"
    mark = "<!-- below: written by benchmarks/methods.py -->"
    head = path.read_text(encoding="utf-8").partition(mark)[0] if path.exists() else "# Results\n\n"
    lines, leads, prices = [], [], []
    for gnn in dict.fromkeys(gnn for gnn, *_ in TABLE + EXTRAS):
        for name in DATA:
            rows = finished(out, name, gnn)
            if not rows:
                continue
            body, standing = table(rows)
            lines += ["", f"### {name}, {gnn}", "", *body]
            if standing:
                leads.append(f"| {name} | {gnn} | {' | '.join(standing)} |")
            if any(paid := costs(rows)):
                prices.append(f"| {name} | {gnn} | {' | '.join(paid)} |")
    summary = [
        "## Where LD stands",
        "",
        "Test score of LD minus that of the best other method of the paper, in points, with its standard error over "
        f"{seeds} seeds: of the LD with the best validation score, named; with gamma chosen by the closed form; and as "
        "in the paper. The last three columns compare in the same way on an encoder adapted by GIANT.",
        "",
        "| data | GNN | best other | LD by validation | minus best | gamma auto | alpha 1 "
        "| best other +giant | LD +giant by validation | minus best |",
        "|---|---|---|---|---:|---:|---:|---|---|---:|",
        *leads,
        "",
        "Seconds of LD over those of another method: of the encoder phase, then of the whole run:",
        "",
        f"| data | GNN | {' | '.join(head for head, *_ in RATIOS)} |",
        f"|---|---|{'---:|' * len(RATIOS)}",
        *prices,
        "",
        "## Tables",
        "",
        f"Mean ± standard deviation over {seeds} seeds, test at the best validation epoch; p: paired t-test against "
        "the LD in bold, the one with the best validation score without an adapted encoder. Seconds are what one run "
        "alone would take, as they were measured on two shared cores.",
        *lines,
    ]
    path.write_text(head + mark + "\n\n" + "\n".join(summary) + "\n", encoding="utf-8")
    print(f"{path.name} written")


def main() -> None:
    """Parse, run, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(DATA), help="comma-separated data sets")
    parser.add_argument("--methods", default=",".join(METHODS), help="comma-separated methods")
    parser.add_argument("--gnns", default="gcn,sagn", help="comma-separated GNNs")
    parser.add_argument("--extras", action="store_true", help="adapted encoders, SAGN and more besides")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=240, help="minutes")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "methods")
    parser.add_argument("--write", action="store_true", help="only write docs/results.md")
    args = parser.parse_args()
    if not args.write:
        names = (given.split(",") for given in (args.only, args.methods, args.gnns))
        chosen = cells(*names, TABLE + EXTRAS if args.extras else TABLE)
        run(chosen, args.seeds, args.out, time.time() + 60 * args.budget)
    write(args.out, args.seeds)


if __name__ == "__main__":
    main()
