"""`labeldeconv export` and `push`: a run as a table, as ONNX files, for GraphStorm, or as a repository of a hub."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from labeldeconv.cli.terminal import AsJson, Trust, console, print_json
from labeldeconv.errors import ConfigError


def export(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    out: Annotated[Path | None, typer.Argument(help="A file that ends in .parquet, .npy or .safetensors.")] = None,
    onnx: Annotated[Path | None, typer.Option(help="A new folder for ONNX files of encoder, psi and GNN.")] = None,
    graphstorm: Annotated[
        Path | None, typer.Option(help="A new folder for graph, features, labels and split, for GraphStorm.")
    ] = None,
    int8: Annotated[bool, typer.Option("--int8", help="With --onnx: the encoder's weights in 8 bits.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Keep --int8 also below a cosine of 0.98.")] = False,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Write features and predictions of a run; with --onnx its model, with --graphstorm its graph for GraphStorm."""
    if sum(place is not None for place in (out, onnx, graphstorm)) != 1:
        raise ConfigError("export: one of OUT, a table, --onnx FOLDER and --graphstorm FOLDER expected")
    if onnx is None and (int8 or force):
        raise ConfigError("export: --int8 and --force go with --onnx FOLDER")
    if onnx is None:
        written = str(_exported(run, out, graphstorm))
        return print_json({"out": written}) if as_json else console.print(written, soft_wrap=True)
    from labeldeconv.sharing.onnx_export import export_onnx

    told = export_onnx(run, onnx, int8, force)
    if as_json:
        loss = None if told.int8 is None else asdict(told.int8)
        return print_json({"out": str(told.folder), "files": told.files, "notes": told.notes, "int8": loss})
    models = ", ".join(name for name in told.files if name.endswith(".onnx"))
    for line in (f"{told.folder}: {models}", *([str(told.int8)] if told.int8 else []), *told.notes):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    return None


def _exported(run: Path, table: Path | None, graphstorm: Path | None) -> Path:
    """Write the one of the two that is asked for."""
    if table is not None:
        from labeldeconv.runs.export import export_run

        return export_run(run, table)
    from labeldeconv.sharing.graphstorm import export_graphstorm

    assert graphstorm is not None
    return export_graphstorm(run, graphstorm)


def push(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    name: Annotated[str | None, typer.Argument(help="USER/NAME of a repository on the Hugging Face hub.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Write the repository into this new folder instead.")] = None,
    with_graph: Annotated[
        bool, typer.Option("--with-graph", help="Also texts, labels and edges of the graph.")
    ] = False,
    public: Annotated[bool, typer.Option("--public", help="A new repository is private unless this is given.")] = False,
    license: Annotated[str, typer.Option(help="For the model card: mit, apache-2.0, cc-by-4.0, ...")] = "unknown",
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Upload encoder, psi, GNN and a model card to a hub, or write them as a folder; `from_pretrained` loads them."""
    if (name is None) == (folder is None):
        raise ConfigError("push: one of USER/NAME and --folder DIR expected")
    if folder is not None:
        from labeldeconv.sharing.repository import write_repository

        written = str(write_repository(run, folder, with_graph, license))
    else:
        from labeldeconv.sharing.hub import push_run

        assert name is not None
        written = push_run(run, name, not public, with_graph, license)
    if as_json:
        return print_json({"out": written, "with_graph": with_graph})
    graph = "with its graph, texts and labels" if with_graph else "without the graph: no texts, no labels"
    console.print(f"{written} ({graph})", soft_wrap=True, highlight=False, markup=False)
    return None
