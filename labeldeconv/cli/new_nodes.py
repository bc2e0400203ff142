"""`labeldeconv predict`: classes, probabilities and features of nodes that a run has never seen."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from labeldeconv.cli.terminal import AsJson, Quiet, Trust, console, print_json


def predict(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    nodes: Annotated[Path, typer.Option(help="New nodes, with the columns of the run's tables: .parquet, .csv, ...")],
    out: Annotated[Path, typer.Option(help="A file that ends in .parquet, .csv, .tsv or .jsonl.")],
    edges: Annotated[Path | None, typer.Option(help="Their edges, to old nodes and to each other.")] = None,
    features: Annotated[Path | None, typer.Option(help="For runs on given features: theirs, a .npy file.")] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Leave the activations of old nodes as they were.")] = False,
    alone: Annotated[str, typer.Option(help="What predicts nodes without neighbours: psi, or gnn.")] = "psi",
    no_features: Annotated[bool, typer.Option("--no-features", help="Leave the features out of the table.")] = False,
    trust: Trust = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Predict nodes that are not in the graph of a run; writes a table with class, probabilities and features."""
    from labeldeconv.prediction.predictor import Predictor
    from labeldeconv.prediction.writing import check_output

    check_output(out)
    start = time.perf_counter()
    predictor = Predictor.load(run)
    mode = "fast" if fast else "exact"
    told = predictor.predict_tables(nodes, edges, features=features, mode=mode, alone=alone)  # type: ignore[arg-type]
    told.save(out, features=not no_features)
    by = dict(Counter(told.by))
    if as_json:
        seconds, temperature = round(time.perf_counter() - start, 3), predictor.run.calibration["temperature"]
        held = {"out": str(out), "nodes": len(told), "by": by, "mode": mode, "temperature": temperature}
        return print_json({**held, "seconds": seconds})
    who = ", ".join(f"{count} by {name}" for name, count in sorted(by.items()))
    console.print(f"predictions: {out} ({len(told)} nodes: {who})", soft_wrap=True, highlight=False)
