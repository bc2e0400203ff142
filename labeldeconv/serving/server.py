"""The processes: one worker, or several on one socket under uvicorn's supervisor. uvicorn is imported here alone.

The socket is bound first and belongs to all workers. A worker listens on it when its run is loaded, so whoever is
accepted is answered by a worker that can predict; one that dies is replaced, and connections that nobody has accepted
yet wait in the socket for the others. SIGTERM and SIGINT stop accepting, answer what was taken, and end.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from labeldeconv.errors import ConfigError, DataError, MissingExtra
from labeldeconv.serving.gate import log_line
from labeldeconv.serving.limits import Serving

BACKLOG = 2048  # connections that may wait to be accepted
ANSWERING = 60  # seconds in which a worker has to answer its supervisor: loading torch on a busy machine takes ten


def serve(serving: Serving) -> None:
    """Serve a run until SIGTERM or SIGINT."""
    try:
        import uvicorn
        from uvicorn.supervisors import Multiprocess
    except ImportError:
        raise MissingExtra("labeldeconv serve", "serve") from None
    if not (serving.run / "result.json").is_file():  # the whole run is checked by whoever loads it
        raise DataError(f"{serving.run}: the directory of a finished `labeldeconv fit` or `compare` expected")
    with bound(serving) as listener, tempfile.TemporaryDirectory(prefix="labeldeconv-serve-") as folder:
        serving = replace(serving, port=listener.getsockname()[1], counters=Path(folder))
        log_line(event="bound", address=address(serving), run=str(serving.run), workers=serving.workers)
        if serving.workers == 1:
            from labeldeconv.serving.application import application, loaded

            config = uvicorn.Config(application(serving, loaded(serving.run)), **options(serving))
            with _signals_end_quietly():
                uvicorn.Server(config).run(sockets=[listener])
        else:
            config = uvicorn.Config(partial(worker_application, serving, os.getpid()), factory=True, **options(serving))
            Multiprocess(config, sockets=[listener]).run()


def options(serving: Serving) -> dict[str, Any]:
    """How uvicorn is set up. h11 bounds the size of headers (64 KiB); uvicorn's other parser does not."""
    return {
        "http": "h11",
        "ws": "none",
        "lifespan": "on",
        "workers": serving.workers,
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "backlog": BACKLOG,
        "timeout_keep_alive": 30,
        "timeout_graceful_shutdown": int(serving.limits.seconds) + 1,
        "timeout_worker_healthcheck": ANSWERING,
    }


def worker_application(serving: Serving, parent: int) -> Any:
    """The application in a worker's process, which has a share of the cores and ends with its supervisor."""
    import torch

    from labeldeconv.serving.application import application

    torch.set_num_threads(max(1, torch.get_num_threads() // serving.workers))
    threading.Thread(target=_end_with, args=(parent,), name="supervisor", daemon=True).start()
    return application(serving)


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
        listener.set_inheritable(True)
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


def _end_with(parent: int) -> None:
    """End this worker, gracefully, when its supervisor is gone."""
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)
