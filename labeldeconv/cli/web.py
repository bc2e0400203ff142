"""`labeldeconv serve`: a finished run behind HTTP."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from labeldeconv.serving.limits import TOKEN_VARIABLE, Limits, Serving

DEFAULT = Limits()


def serve(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    host: Annotated[str, typer.Option(help="The address to listen on; any but a loopback one needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes.")] = 1,
    token: Annotated[
        str | None, typer.Option(help=f"What clients have to send; better {TOKEN_VARIABLE}, which `ps` does not show.")
    ] = None,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request's body.")] = DEFAULT.body,
    max_text: Annotated[int, typer.Option(min=1, help="Characters of a text.")] = DEFAULT.text,
    max_nodes: Annotated[int, typer.Option(min=1, help="New nodes of a request.")] = DEFAULT.nodes,
    max_edges: Annotated[int, typer.Option(min=1, help="Edges of a request.")] = DEFAULT.edges,
    max_concurrent: Annotated[int, typer.Option(min=1, help="Requests at a time, per worker.")] = DEFAULT.concurrent,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens encoded at a time.")] = DEFAULT.batch_tokens,
    no_access_log: Annotated[bool, typer.Option("--no-access-log", help="No line per request on stdout.")] = False,
) -> None:
    """Serve predictions of new nodes over HTTP, with a page to try them; SIGTERM answers what was taken and ends."""
    token = token if token is not None else os.environ.get(TOKEN_VARIABLE) or None
    limits = Limits(max_body, max_text, max_nodes, max_edges, max_concurrent, batch_tokens)
    serving = Serving(run, host, port, token, workers, limits, not no_access_log)
    from labeldeconv.serving.server import serve as run_server

    run_server(serving)
