"""Everything that is decided before and after a request is understood: who may ask, how much, how many at a time.

An ASGI middleware around the whole application. It also adds the headers of safety, counts, and writes one JSON line
per request: no text, no query and no token is in it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from labeldeconv.progress import logger
from labeldeconv.serving.counters import Counters
from labeldeconv.serving.limits import Serving, is_loopback

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

# Without a token: they hold no data.
OPEN = {"/", "/docs", "/health", "/ready", "/theme.css", "/theme.js", "/page.css", "/page.js", "/docs.js"}
WORKING = {"/predict", "/explain", "/nodes"}  # what `Limits.concurrent` counts
DRAINED = 8  # times the largest body that is read and thrown away, so that a client who still sends sees the answer
HEADERS = [
    (b"content-security-policy", b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
     b"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]  # fmt: skip


def log_line(**told: Any) -> None:
    """One JSON line on stdout, written at once and whole, so that workers do not mix theirs."""
    line = json.dumps({"time": _now(), "worker": os.getpid(), **told}) + "\n"
    try:
        sys.stdout.write(line)
        sys.stdout.flush()
    except (OSError, ValueError):  # a closed stdout ends no server
        pass


class Gate:
    """The middleware.

    Args:
        app: what answers.
        serving: limits and token.
        counters: of this worker.
    """

    def __init__(self, app: App, serving: Serving, counters: Counters) -> None:
        self.app, self.serving, self.counters = app, serving, counters
        self._token = None if serving.token is None else serving.token.encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        start, status, told = time.perf_counter(), 0, scope.setdefault("state", {})
        path, working, counted = scope["path"], scope["path"] in WORKING, False

        def count() -> None:
            nonlocal counted
            if counted:
                return
            counted, seconds = True, time.perf_counter() - start
            self.counters.answered(path, status, seconds)
            if self.serving.access_log:
                client = (scope.get("client") or [None])[0]
                about = {"method": scope["method"], "path": path[:200], "status": status, "client": client}
                log_line(**about, ms=round(1e3 * seconds, 2), **told.get("log", {}))

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
            elif not message.get("more_body"):
                count()  # before the last part: a worker that is killed has logged all that it has answered
            await send(message)

        try:
            refused = self._refusal(scope)
            if refused is None and working and self.counters.in_flight >= self.serving.most_at_a_time:
                refused = (429, "too many requests at a time; ask again", [(b"retry-after", b"1")])
            if refused is not None:
                return await say(answer, *refused)
            if working:
                self.counters.add("in_flight")
            try:
                await self._pass_on(scope, receive, answer)
            finally:
                if working:
                    self.counters.add("in_flight", -1)
        except Exception:
            logger.exception("%s %s", scope["method"], path)
            if not status:
                await say(answer, 500, "an error of the server's own; its log says more")
        finally:
            count()

    def _refusal(self, scope: Message) -> tuple[int, str, list[tuple[bytes, bytes]]] | None:
        """Status, message and headers for those who may not ask; None for the others."""
        headers = dict(scope["headers"])
        if self._token is None:
            # A page of another site whose name was turned to this address (DNS rebinding) says that name here.
            host = headers.get(b"host", b"").decode("latin-1")
            name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
            if not is_loopback(name):
                return 421, "without a token only requests to localhost or 127.0.0.1 are answered", []
            return None
        if scope["path"] in OPEN:
            return None
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token):
            return None
        return 401, "the header 'Authorization: Bearer TOKEN' expected", [(b"www-authenticate", b"Bearer")]

    async def _pass_on(self, scope: Message, receive: Receive, send: Send) -> None:
        """Read the body whole, within its limits, and let the application answer."""
        limits = self.serving.limits
        length = dict(scope["headers"]).get(b"content-length", b"0")
        too_large = f"a body of at most {limits.body} bytes expected"
        if length.isdigit() and int(length) > DRAINED * limits.body:
            return await say(send, 413, too_large, [(b"connection", b"close")])
        try:
            body = await asyncio.wait_for(self._body(receive), limits.seconds)
        except TimeoutError:
            return await say(send, 408, f"the body did not arrive in {limits.seconds:g} s", [(b"connection", b"close")])
        if body is None:
            return await say(send, 413, too_large)
        given = False

        async def once() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        return await self.app(scope, once, send)

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body; None where it is too large."""
        parts: list[bytes] = []
        size, most = 0, self.serving.limits.body
        while True:
            message = await receive()
            part = message.get("body", b"")
            size += len(part)
            if size <= most:
                parts.append(part)
            elif size > DRAINED * most:
                return None
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                return b"".join(parts) if size <= most else None


async def say(send: Send, status: int, message: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    """A short answer as JSON, in the form of all errors."""
    told = {"errors": [{"field": "body" if status == 413 else None, "message": message}]}
    await send_json(send, status, told, headers)


async def send_json(
    send: Send, status: int, told: dict[str, Any], headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    """An answer as JSON."""
    body = json.dumps(told).encode()
    own = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*own, *(headers or [])]})
    await send({"type": "http.response.body", "body": body})


def _now() -> str:
    now = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03d}Z"
