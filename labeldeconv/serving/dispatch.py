"""The dispatcher: one process holds all connections and every request until a worker has answered it.

It knows neither the run nor torch. A worker that dies, or does not answer whether it is ready within `ANSWERING`
seconds, is replaced, and what it had taken is handed to another one: a prediction changes nothing, so it may be asked
twice. So no client sees the death of a worker, but for a request that ends `TRIES` workers, which is to blame itself.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from labeldeconv.serving.counters import Counters
from labeldeconv.serving.frames import next_frame, send_frame
from labeldeconv.serving.gate import Message, Receive, Send, log_line, say, send_json
from labeldeconv.serving.limits import Serving
from labeldeconv.serving.worker import work

ANSWERING = 60  # seconds in which a worker has to say that it is ready: a batch on a busy machine takes a few
TRIES = 3  # workers that one request may end
PATIENCE = 30  # seconds at most between two attempts to begin a worker that dies before it is ready

Reply = tuple[dict[str, Any], bytes]


class WorkerLost(Exception):
    """The worker is gone, and with it the answer."""


@dataclass(eq=False)
class Worker:
    """A process, the socket to it, and the requests that it has not answered."""

    process: Any
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    ready: bool = False
    refused: str = ""
    asked: int = 0
    waiting: dict[int, asyncio.Future[Reply]] = field(default_factory=dict)

    async def ask(self, request: dict[str, Any], body: bytes = b"") -> Reply:
        """Head and body of the answer.

        Raises:
            WorkerLost: if the worker ends first.
        """
        self.asked += 1
        number = self.asked
        self.waiting[number] = asyncio.get_running_loop().create_future()
        try:
            send_frame(self.writer, {**request, "number": number}, body)
            return await self.waiting[number]
        finally:
            self.waiting.pop(number, None)

    def give(self, head: dict[str, Any], body: bytes) -> None:
        """An answer has come; whoever asked may have gone."""
        asked = self.waiting.get(head["number"])
        if asked is not None and not asked.done():
            asked.set_result((head, body))

    def lose(self) -> None:
        """The worker is gone: tell all who wait for it."""
        self.ready = False
        self.writer.close()
        for asked in self.waiting.values():
            if not asked.done():
                asked.set_exception(WorkerLost())


class Dispatcher:
    """The ASGI application before the workers.

    Args:
        serving: what workers need to know; `counters` is their common folder.
        counters: of this process, which counts what is in flight.
    """

    def __init__(self, serving: Serving, counters: Counters) -> None:
        self.serving, self.counters = serving, counters
        self.refused = ""  # why the run cannot be served
        self._workers: set[Worker] = set()
        self._kept: list[asyncio.Task[None]] = []
        self._changed = asyncio.Condition()
        self._began = False
        self._closing = asyncio.Event()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request, or live as long as the server does."""
        if scope["type"] == "lifespan":
            return await self._live(receive, send)
        path = scope["path"]
        if path == "/health":
            return await send_json(send, 200, {"status": "ok"})
        if path == "/ready":
            if not any(worker.ready for worker in self._workers):
                return await send_json(send, 503, {"status": "not predicting"})
            busy = self.counters.in_flight >= self.serving.most_at_a_time
            return await send_json(send, 503 if busy else 200, {"status": "busy" if busy else "ready"})
        request = {
            "method": scope["method"],
            "path": path,
            "query": scope["query_string"].decode("latin-1"),
            "headers": [[k.decode("latin-1"), v.decode("latin-1")] for k, v in scope["headers"]],
        }
        body = (await receive()).get("body", b"")
        for _ in range(TRIES):
            worker = await self._free()
            if worker is None:
                return await say(send, 503, "no worker is ready; ask again", [(b"retry-after", b"5")])
            try:
                head, answer = await worker.ask(request, body)
            except WorkerLost:
                continue
            scope["state"]["log"] = {**head["log"], "worker": worker.process.pid}
            headers = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in head["headers"]]
            await send({"type": "http.response.start", "status": head["status"], "headers": headers})
            return await send({"type": "http.response.body", "body": answer})
        return await say(send, 500, f"{TRIES} workers ended with this request")

    async def _live(self, receive: Receive, send: Send) -> None:
        """Begin the workers, take requests when the first is ready, and end when all is answered."""
        await receive()
        self._kept = [asyncio.create_task(self._keep()) for _ in range(self.serving.workers)]
        async with self._changed:
            await self._changed.wait_for(lambda: self.refused or any(w.ready for w in self._workers))
        if self.refused:
            await self._close()
            return await send({"type": "lifespan.startup.failed"})
        self._began = True
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _close(self) -> None:
        """Say that nothing more is asked, at which workers answer what they have and end; end those that do not."""
        self._closing.set()
        for worker in self._workers:
            if not worker.writer.is_closing():
                worker.writer.write_eof()
        _, late = await asyncio.wait(self._kept, timeout=self.serving.limits.seconds)
        for worker in list(self._workers):
            worker.process.kill()
        if late:
            await asyncio.wait(late)

    async def _free(self) -> Worker | None:
        """The ready worker with the fewest requests; None where none is ready for as long as a body may take."""

        def ready() -> list[Worker]:
            return [worker for worker in self._workers if worker.ready]

        try:
            async with self._changed:
                await asyncio.wait_for(self._changed.wait_for(ready), self.serving.limits.seconds)
        except TimeoutError:
            return None
        return min(ready(), key=lambda worker: len(worker.waiting))

    async def _keep(self) -> None:
        """Keep one worker alive: begin it, hear it, and begin another one when it is gone."""
        pause = 1.0
        while not self._closing.is_set():
            worker = await self._begin()
            if self._closing.is_set():
                worker.writer.write_eof()
            asking = asyncio.create_task(self._watch(worker))
            while (frame := await next_frame(worker.reader)) is not None:
                head, body = frame
                if "number" in head:
                    worker.give(head, body)
                    continue
                worker.ready, worker.refused = "ready" in head, head.get("refused", "")
                async with self._changed:
                    self._changed.notify_all()
            asking.cancel()
            was_ready = worker.ready
            worker.lose()
            if not self._closing.is_set():
                worker.process.kill()  # it may hang on its way out
            await asyncio.to_thread(worker.process.join)
            self._workers.discard(worker)
            if self._closing.is_set():
                return
            log_line(event="lost", worker=worker.process.pid, exit_code=worker.process.exitcode)
            if was_ready:
                pause = 1.0
                continue
            if not self._began and (worker.refused or not self._workers):
                return await self._refuse(worker)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause)
            pause = min(PATIENCE, 2 * pause)

    async def _refuse(self, worker: Worker) -> None:
        """No worker could be begun, which ends the server before it has taken a request."""
        async with self._changed:
            self.refused = worker.refused or f"a worker ended with code {worker.process.exitcode} before it was ready"
            self._changed.notify_all()

    async def _begin(self) -> Worker:
        """A new process with a socket of its own to it."""
        here, there = socket.socketpair()
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=work, args=(self.serving, there), name="labeldeconv-worker", daemon=True)
        await asyncio.to_thread(process.start)
        there.close()
        worker = Worker(process, *await asyncio.open_connection(sock=here))
        self._workers.add(worker)
        return worker

    async def _watch(self, worker: Worker) -> None:
        """End a worker that does not say within its time that it is ready."""
        asked = {"method": "GET", "path": "/ready", "query": "", "headers": []}
        while True:
            await asyncio.sleep(ANSWERING / 4)
            if not worker.ready:
                continue
            try:
                head, _ = await asyncio.wait_for(worker.ask(asked), ANSWERING)
            except WorkerLost:
                return
            except TimeoutError:
                head = {"status": 0}
            if head["status"] != 200:
                log_line(event="hanging", worker=worker.process.pid)
                return worker.process.kill()
