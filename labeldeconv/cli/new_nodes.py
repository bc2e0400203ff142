"""`labeldeconv predict` and `labeldeconv explain`: what a run says of nodes, its own or new ones, and why."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labeldeconv.cli.terminal import AsJson, Quiet, Trust, console, print_json, print_table
from labeldeconv.progress import printable

if TYPE_CHECKING:
    from labeldeconv.prediction.explanation import Explanation


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


def explain(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    node: Annotated[str, typer.Argument(help="The id of a node of its graph, or of a new one in --nodes.")],
    of: Annotated[str | None, typer.Option(help="The class to explain; default the predicted one.")] = None,
    top: Annotated[int, typer.Option(min=0, help="Neighbours to name.")] = 10,
    nodes: Annotated[Path | None, typer.Option(help="New nodes, as `labeldeconv predict` takes them.")] = None,
    edges: Annotated[Path | None, typer.Option(help="Their edges.")] = None,
    features: Annotated[Path | None, typer.Option(help="For runs on given features: theirs, a .npy file.")] = None,
    trust: Trust = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Say which hop and which neighbours carried the prediction of a node."""
    from labeldeconv.errors import ConfigError
    from labeldeconv.prediction.predictor import Predictor

    if nodes is None and (edges or features):
        raise ConfigError("explain: --edges and --features belong to new nodes; --nodes expected with them")
    predictor = Predictor.load(run)
    new = None if nodes is None else predictor.read_tables(nodes, edges, features)
    told = predictor.explain_nodes(node, new, of, top)
    if as_json:
        return print_json({"run": str(run), **told.to_dict()})
    _print_explanation(told)


def _print_explanation(told: Explanation) -> None:
    """Contributions as tables; they sum to the difference that is printed above them."""
    say = lambda text: console.print(printable(text), soft_wrap=True, highlight=False, markup=False)  # noqa: E731
    say(f"{told.node}: '{told.of}', logit {told.logit:+.3f} by {told.by}; at the mean features {told.baseline:+.3f}")
    error = f", {told.points} points, gap {told.gap:+.4f}" if told.points else ""
    say(f"{told.how}{error}; contributions to {told.logit - told.baseline:+.3f}")
    rows: list[tuple[str, str]] = [(str(hop), f"{value:+.3f}") for hop, value in enumerate(told.by_hop)]
    rows += [("labels", f"{told.of_labels:+.3f}")] if told.of_labels is not None else []
    print_table(f"by hop ({told.hops_are})", ["hop", "contribution"], rows)
    near = [(told.node, "0", f"{told.own:+.3f}", "the node itself")]
    near += [(n.id, str(n.distance), f"{n.contribution:+.3f}", _label(n.label)) for n in told.neighbours]
    near += [(f"{told.num_others:,} others", "", f"{told.others:+.3f}", "")] if told.num_others else []
    print_table("by node", ["id", "distance", "contribution", "label"], near, folds=["label"])


def _label(label: object) -> str:
    return "" if label is None else ", ".join(label) if isinstance(label, list) else str(label)
