"""The processes: one that does all, or a dispatcher before several workers. uvicorn is imported here alone.

The socket is bound first, and listens when the run is loaded, so whoever is accepted is answered. SIGTERM and SIGINT
stop accepting, answer what was taken, and end.
"""

from __future__ import annotations

import multiprocessing
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from labeldeconv.errors import ConfigError, DataError, MissingExtra
from labeldeconv.serving.counters import Counters
from labeldeconv.serving.dispatch import Dispatcher
from labeldeconv.serving.gate import Gate, log_line
from labeldeconv.serving.limits import Serving

BACKLOG = 2048  # connections that may wait to be accepted


def serve(serving: Serving) -> None:
    """Serve a run until SIGTERM or SIGINT."""
    try:
        import uvicorn
    except ImportError:
        raise MissingExtra("labeldeconv serve", "serve") from None
    if not (serving.run / "result.json").is_file():  # the whole run is checked by whoever loads it
        raise DataError(f"{serving.run}: the directory of a finished `labeldeconv fit` or `compare` expected")
    with bound(serving) as listener, tempfile.TemporaryDirectory(prefix="labeldeconv-serve-") as folder:
        serving = replace(serving, port=listener.getsockname()[1], counters=Path(folder))
        log_line(event="bound", address=address(serving), run=str(serving.run), workers=serving.workers)
        with _signals_end_quietly():
            if serving.workers == 1:
                from labeldeconv.serving.application import application, loaded

                config = uvicorn.Config(application(serving, loaded(serving.run)), **options(serving))
                return uvicorn.Server(config).run(sockets=[listener])
            counters = Counters(serving.counters, predicts=False)
            dispatcher = Dispatcher(serving, counters)
            try:
                uvicorn.Server(uvicorn.Config(Gate(dispatcher, serving, counters), **options(serving))).run([listener])
            except SystemExit:  # uvicorn's, where the application could not begin
                if not dispatcher.refused:
                    raise
            finally:
                for worker in multiprocessing.active_children():  # none, unless something went wrong
                    worker.kill()
            if dispatcher.refused:
                raise ConfigError(f"serve: {dispatcher.refused}")


def options(serving: Serving) -> dict[str, Any]:
    """How uvicorn is set up. h11 bounds the size of headers (64 KiB); uvicorn's other parser does not."""
    return {
        "http": "h11",
        "ws": "none",
        "lifespan": "on",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "backlog": BACKLOG,
        "timeout_keep_alive": 30,
        "timeout_graceful_shutdown": int(serving.limits.seconds) + 1,
    }


@contextmanager
def bound(serving: Serving) -> Iterator[socket.socket]:
    """The socket, bound to its address and not listening yet."""
    family = socket.AF_INET6 if ":" in serving.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((serving.host.strip("[]"), serving.port))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"serve: cannot listen on {serving.host} port {serving.port}: {why}") from None
        yield listener


def address(serving: Serving) -> str:
    """The address of the page."""
    host = f"[{serving.host.strip('[]')}]" if ":" in serving.host else serving.host
    return f"http://{host}:{serving.port}"


@contextmanager
def _signals_end_quietly() -> Iterator[None]:
    """uvicorn raises the signal that stopped it once more when all is answered; then it means nothing any more."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
