"""The dispatcher with workers that the tests play, on real sockets; tests/serving/test_server.py has real ones."""

import asyncio
import json
import socket

import pytest

from labeldeconv.serving import dispatch
from labeldeconv.serving.counters import Counters
from labeldeconv.serving.dispatch import Dispatcher, Worker
from labeldeconv.serving.frames import next_frame, send_frame
from labeldeconv.serving.limits import Limits, Serving


class Process:
    """What the dispatcher sees of a process."""

    exitcode = -9

    def __init__(self, pid, playing):
        self.pid, self._playing = pid, playing

    def kill(self):
        self._playing.get_loop().call_soon_threadsafe(self._playing.cancel)

    def join(self):
        pass


class Played(Dispatcher):
    """A dispatcher whose workers are tasks: the i-th to begin does what `parts[i]` does, later ones the last."""

    def __init__(self, tmp_path, parts, workers=2, **limits):
        super().__init__(Serving(tmp_path, workers=workers, limits=Limits(**limits)), Counters(None, predicts=False))
        self.parts, self.begun, self.answered = parts, 0, []

    async def _begin(self):
        here, there = socket.socketpair()
        pid, self.begun = self.begun, self.begun + 1
        reader, writer = await asyncio.open_connection(sock=there)

        async def play():
            try:
                await self.parts[min(pid, len(self.parts) - 1)](self, pid, reader, writer)
            finally:
                writer.close()

        worker = Worker(Process(pid, asyncio.create_task(play())), *await asyncio.open_connection(sock=here))
        self._workers.add(worker)
        return worker

    async def ask(self, path="/predict", body=b"{}"):
        sent = []

        async def receive():
            return {"type": "http.request", "body": body}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"a=%20", "state": {},
                 "headers": [(b"x", b"\xff")]}  # fmt: skip
        await self(scope, receive, send)
        return sent[0]["status"], json.loads(sent[1]["body"]), scope["state"].get("log", {})


async def good(dispatcher, pid, reader, writer):
    """Answers with its number and what it was asked."""
    send_frame(writer, {"ready": True})
    while (frame := await next_frame(reader)) is not None:
        head, body = frame
        dispatcher.answered.append(pid)
        told = {"by": pid, "query": head["query"], "headers": head["headers"], "body": body.decode()}
        answer = {"number": head["number"], "status": 200, "headers": [["y", "\xfe"]], "log": {"nodes": 1}}
        send_frame(writer, answer, json.dumps(told).encode())


async def dies_when_asked(dispatcher, pid, reader, writer):
    send_frame(writer, {"ready": True})
    await next_frame(reader)


async def never_answers(dispatcher, pid, reader, writer):
    send_frame(writer, {"ready": True})
    await asyncio.sleep(1000)


async def never_ready(dispatcher, pid, reader, writer):
    await asyncio.sleep(1000)


async def refuses(dispatcher, pid, reader, writer):
    send_frame(writer, {"refused": "no run"})


async def dies(dispatcher, pid, reader, writer):
    pass


def living(dispatcher, body):
    """What `body` finds while the dispatcher lives; afterwards its messages to the server."""

    async def live():
        told, end = [], asyncio.Event()
        messages = iter(["lifespan.startup", "lifespan.shutdown"])
        began = asyncio.Event()

        async def receive():
            kind = next(messages)
            if kind == "lifespan.shutdown":
                await end.wait()
            return {"type": kind}

        async def send(message):
            told.append(message["type"])
            began.set()

        life = asyncio.create_task(dispatcher({"type": "lifespan"}, receive, send))
        await began.wait()
        try:
            found = await body() if told == ["lifespan.startup.complete"] else None
        finally:
            end.set()
            await life
        return found, told

    return asyncio.run(live())


def test_requests_go_to_whoever_has_fewest_and_come_back_whole(tmp_path):
    dispatcher = Played(tmp_path, [good])

    async def body():
        while sum(worker.ready for worker in dispatcher._workers) < 2:
            await asyncio.sleep(0.01)
        return await asyncio.gather(*[dispatcher.ask(body=str(i).encode()) for i in range(10)])

    answers, told = living(dispatcher, body)
    assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert [status for status, _, _ in answers] == [200] * 10
    assert [found["body"] for _, found, _ in answers] == list(map(str, range(10)))
    assert answers[0][1]["query"] == "a=%20"
    assert answers[0][1]["headers"] == [["x", "\xff"]]
    assert answers[3][2] == {"nodes": 1, "worker": answers[3][1]["by"]}
    assert sorted(dispatcher.answered) == [0] * 5 + [1] * 5


def test_what_a_lost_worker_had_taken_is_answered_by_another(tmp_path, capsys):
    dispatcher = Played(tmp_path, [dies_when_asked, good])

    async def body():
        return await asyncio.gather(*[dispatcher.ask(body=str(i).encode()) for i in range(10)])

    answers, _ = living(dispatcher, body)
    assert [(status, found["body"]) for status, found, _ in answers] == [(200, str(i)) for i in range(10)]
    assert {found["by"] for _, found, _ in answers} <= {1, 2}
    (lost,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (lost["event"], lost["worker"], lost["exit_code"]) == ("lost", 0, -9)


def test_a_request_that_ends_workers_is_given_up_and_the_others_go_on(tmp_path):
    async def fragile(dispatcher, pid, reader, writer):
        send_frame(writer, {"ready": True})
        while (frame := await next_frame(reader)) is not None and frame[1] != b"poison":
            send_frame(writer, {"number": frame[0]["number"], "status": 200, "headers": [], "log": {}}, b"{}")

    dispatcher = Played(tmp_path, [fragile])

    async def body():
        poison = await dispatcher.ask(body=b"poison")
        return poison, await dispatcher.ask(body=b"good")

    (poison, after), _ = living(dispatcher, body)
    assert poison[0] == 500
    assert poison[1]["errors"][0]["message"] == "3 workers ended with this request"
    assert after[0] == 200
    assert dispatcher.begun >= 4


def test_a_worker_that_does_not_answer_is_replaced(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(dispatch, "ANSWERING", 0.2)
    dispatcher = Played(tmp_path, [never_answers, good], workers=1)
    ((status, found, _), _) = living(dispatcher, dispatcher.ask)
    assert (status, found["by"]) == (200, 1)
    assert [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()] == ["hanging", "lost"]


def test_health_ready_and_requests_without_a_worker(tmp_path):
    dispatcher = Played(tmp_path, [dies_when_asked, never_ready], workers=1, seconds=0.3, concurrent=2)

    async def body():
        before = await dispatcher.ask("/ready")
        dispatcher.counters.add("in_flight", 2)
        busy = await dispatcher.ask("/ready")
        lost = await dispatcher.ask()
        return before, busy, lost, await dispatcher.ask("/ready"), await dispatcher.ask("/health")

    (before, busy, lost, after, health), told = living(dispatcher, body)
    assert before[:2] == (200, {"status": "ready"})
    assert busy[:2] == (503, {"status": "busy"})
    assert lost[0] == 503
    assert after[:2] == (503, {"status": "not predicting"})
    assert health[:2] == (200, {"status": "ok"})
    assert told[-1] == "lifespan.shutdown.complete"


@pytest.mark.parametrize(
    ("part", "why"), [(refuses, "no run"), (dies, "a worker ended with code -9 before it was ready")]
)
def test_a_run_that_cannot_be_served_ends_the_server_before_it_takes_requests(tmp_path, part, why):
    dispatcher = Played(tmp_path, [part], workers=1)
    _, told = living(dispatcher, None)
    assert told == ["lifespan.startup.failed"]
    assert dispatcher.refused == why


def test_shutting_down_answers_what_was_taken(tmp_path):
    async def slow(dispatcher, pid, reader, writer):
        send_frame(writer, {"ready": True})
        head, _ = await next_frame(reader)
        assert await next_frame(reader) is None  # the dispatcher closes its side, and still hears the answer
        send_frame(writer, {"number": head["number"], "status": 200, "headers": [], "log": {}}, b"{}")

    dispatcher = Played(tmp_path, [slow], workers=1)

    async def body():
        asked = asyncio.create_task(dispatcher.ask())
        await asyncio.sleep(0.1)
        return asked

    asked, told = living(dispatcher, body)
    assert asked.done()
    assert asked.result()[0] == 200
    assert told[-1] == "lifespan.shutdown.complete"
