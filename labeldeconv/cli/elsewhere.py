"""`labeldeconv export`: a run's features and predictions as a table, or its model as ONNX files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from labeldeconv.cli.terminal import AsJson, console, print_json
from labeldeconv.errors import ConfigError


def export(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    out: Annotated[Path | None, typer.Argument(help="A file that ends in .parquet, .npy or .safetensors.")] = None,
    onnx: Annotated[Path | None, typer.Option(help="A new folder for ONNX files of encoder, psi and GNN.")] = None,
    int8: Annotated[bool, typer.Option("--int8", help="With --onnx: the encoder's weights in 8 bits.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Keep --int8 also below a cosine of 0.98.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write features and predictions of a run with the node ids; or, with --onnx, its model for ONNX Runtime."""
    if (out is None) == (onnx is None):
        raise ConfigError("export: one of OUT, a table, and --onnx FOLDER expected")
    if onnx is None and (int8 or force):
        raise ConfigError("export: --int8 and --force go with --onnx FOLDER")
    if out is not None:
        from labeldeconv.runs.export import export_run

        written = str(export_run(run, out))
        return print_json({"out": written}) if as_json else console.print(written, soft_wrap=True)
    from labeldeconv.sharing.onnx_export import export_onnx

    assert onnx is not None
    told = export_onnx(run, onnx, int8, force)
    if as_json:
        loss = None if told.int8 is None else asdict(told.int8)
        return print_json({"out": str(told.folder), "files": told.files, "notes": told.notes, "int8": loss})
    models = ", ".join(name for name in told.files if name.endswith(".onnx"))
    for line in (f"{told.folder}: {models}", *([str(told.int8)] if told.int8 else []), *told.notes):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    return None
