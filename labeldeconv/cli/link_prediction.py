"""`labeldeconv links`: how well the features of a finished run tell edges from pairs without one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labeldeconv.cli.terminal import AsJson, console, print_json, print_table


def links(
    run: Annotated[Path, typer.Argument(help="The directory of a run.")],
    out: Annotated[Path | None, typer.Option(help="Folder for links.json, outside of the run.")] = None,
    negatives: Annotated[str, typer.Option(help="uniform, or hard: of the class of the edge's true end.")] = "uniform",
    per_edge: Annotated[int, typer.Option(help="Negatives per validation and test edge.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of split, negatives and MLP.")] = 0,
    epochs: Annotated[int, typer.Option(min=1, help="Of the MLP.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Predict links from a run's features: dot product, cosine and an MLP, by MRR and Hits@K as OGB has them."""
    from labeldeconv.analysis.links import predict_links

    found = predict_links(run, out, negatives, per_edge, seed, epochs)
    if as_json:
        return print_json(found.to_dict())
    rows = found.rows()
    title = f"links: {found.edges['test']} test edges, each among {found.negatives} {found.drawn} negatives"
    print_table(title, list(rows[0]), [list(row.values()) for row in rows])
    console.print(f"the features have seen: {found.seen}", soft_wrap=True)
