"""Every method on four real graphs: the comparison behind docs/results.md. Resumes where it stopped.

    python benchmarks/methods.py --budget 150                   # minutes; run again to go on
    python benchmarks/methods.py --only citeseer --methods pne,ld
    python benchmarks/methods.py --write                        # docs/results.md from what is finished

Graphs: citeseer and stacks (a 6,000-node part) as text tables, debian (a 6,000-node part), string_yeast (sequences,
multi-label). Encoders: the first 3 layers of MiniLM, and UniRep's 64-unit model for sequences, so that the whole table
stays under four hours on two cores. Settings are the same for all methods; what differs by data set is listed in DATA.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from labeldeconv.comparison import compare
from labeldeconv.config import Config
from labeldeconv.errors import LabelDeconvError
from labeldeconv.names import METHODS
from labeldeconv.settings import load_config

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "data"
COMMON = {"encoder.layers": 3, "encoder.max_tokens": 128, "train.epochs": 3, "train.lr": 5e-5, "gnn.epochs": 300}
DATA = {
    "citeseer": ({"data": str(SHARED / "citeseer")}, ["gcn", "sagn"]),
    "stacks": ({"data": f"{SHARED / 'stacks'}#6000"}, ["gcn", "sagn"]),
    "debian": ({"data": "debian#6000"}, ["gcn", "sagn"]),
    "string_yeast": (
        {"data": f"string:4932@{SHARED / 'string_yeast'}", "encoder.name": "unirep-64", "encoder.max_tokens": 256},
        ["gcn", "sagn"],
    ),
}
SKIPPED = {("joint-gas", "sagn"), ("joint-sage", "sagn")}  # cannot be run layer by layer


def settings(name: str) -> Config:
    """The settings of one data set."""
    own = {**COMMON, **DATA[name][0]}
    if name == "string_yeast":
        own.pop("encoder.layers")
    return load_config(None, own)


def run(name: str, methods: list[str], seeds: int, out: Path, deadline: float) -> None:
    """All cells of one data set, the cheap methods first; stops between cells when the time is up."""
    for method in methods:
        gnns = [gnn for gnn in DATA[name][1] if (method, gnn) not in SKIPPED]
        for gnn in gnns:
            if time.time() > deadline:
                print("time is up; run the same command again to go on")
                return
            start = time.time()
            cell = compare(settings(name), [method], [gnn], seeds, out / name / f"{method}-{gnn}").rows[0]
            print(f"{name:14} {method:10} {gnn:5} test {cell.test}  ({time.time() - start:.0f} s now)", flush=True)


def write(out: Path, seeds: int) -> None:
    """docs/results.md from every finished cell."""
    lines = [
        "# Results",
        "",
        "Made by `python benchmarks/methods.py`; test at best validation, mean ± standard deviation.",
    ]
    for name in DATA:
        rows = []
        for path in sorted((out / name).glob("*/compare.json")):
            rows += json.loads(path.read_text())["rows"]
        if not rows:
            continue
        lines += [
            "",
            f"## {name}",
            "",
            "| method | GNN | val | test | seeds | seconds | MiB | passes |",
            "|---" * 8 + "|",
        ]
        for r in sorted(rows, key=lambda r: (r["gnn"], -r["test"]["mean"])):
            val, test = (f"{100 * r[k]['mean']:.2f} ± {100 * r[k]['std']:.2f}" for k in ("val", "test"))
            costs = f"{r['seeds']} | {r['seconds']:.0f} | {r['peak_mib'] or 0:.0f} | {r['encoder_passes']:.1f}"
            lines.append(f"| {r['method']} | {r['gnn']} | {val} | {test} | {costs} |")
    (ROOT / "docs" / "results.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"docs/results.md written for {seeds} seeds")


def main() -> None:
    """Parse, run, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(DATA), help="comma-separated data sets")
    parser.add_argument("--methods", default="pne,fne,wo-ld,ld,glem,giant,joint-sage,joint-gas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=240, help="minutes")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "methods")
    parser.add_argument("--write", action="store_true", help="only write docs/results.md")
    args = parser.parse_args()
    deadline = time.time() + 60 * args.budget
    methods = [m for m in args.methods.split(",") if m in METHODS]
    for name in [] if args.write else args.only.split(","):
        try:
            run(name, methods, args.seeds, args.out, deadline)
        except LabelDeconvError as error:
            print(f"{name}: left out: {error}")
    write(args.out, args.seeds)


if __name__ == "__main__":
    main()
