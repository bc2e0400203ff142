"""A worker: one process that holds the run and answers what the dispatcher hands to it, until the socket is closed.

Signals that end a server are for the dispatcher, which closes the socket when all is answered; so a worker also ends
when the dispatcher is gone.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import Any

from labeldeconv.errors import LabelDeconvError
from labeldeconv.progress import logger
from labeldeconv.serving.counters import Counters
from labeldeconv.serving.frames import next_frame, send_frame
from labeldeconv.serving.limits import Serving


def work(serving: Serving, handed: socket.socket) -> None:
    """Load the run and answer, with a share of the cores; what begins such a process calls this."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() // serving.workers))
    asyncio.run(_answer_all(serving, handed))


async def _answer_all(serving: Serving, handed: socket.socket) -> None:
    """Load, say so, answer every request in a task of its own; at the end wait for all of them."""
    from labeldeconv.serving.application import routes

    reader, writer = await asyncio.open_connection(sock=handed)
    app = routes(serving, Counters(serving.counters))
    running: set[asyncio.Task[None]] = set()
    try:
        async with app.router.lifespan_context(app):
            send_frame(writer, {"ready": True})
            while (frame := await next_frame(reader)) is not None:
                task = asyncio.create_task(_answer(app, writer, *frame))
                running.add(task)
                task.add_done_callback(running.discard)
            await asyncio.gather(*running)
    except LabelDeconvError as error:  # the run cannot be served
        send_frame(writer, {"refused": str(error)})
    writer.close()


async def _answer(app: Any, writer: asyncio.StreamWriter, asked: dict[str, Any], body: bytes) -> None:
    """One request through the application; its answer goes back whole, under the number of the request."""
    head: dict[str, Any] = {"number": asked["number"], "status": 500, "headers": []}
    state: dict[str, Any] = {}
    parts: list[bytes] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            named = [[k.decode("latin-1"), v.decode("latin-1")] for k, v in message.get("headers", [])]
            head.update(status=message["status"], headers=named)
        else:
            parts.append(message.get("body", b""))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": asked["method"],
        "scheme": "http",
        "path": asked["path"],
        "raw_path": asked["path"].encode(),
        "query_string": asked["query"].encode("latin-1"),
        "root_path": "",
        "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in asked["headers"]],
        "client": None,
        "server": None,
        "state": state,
    }
    try:
        await app(scope, receive, send)
    except Exception:  # behind an answer of 500, which says that the log says more
        logger.exception("%s %s", asked["method"], asked["path"])
    send_frame(writer, {**head, "log": state.get("log", {})}, b"".join(parts))
