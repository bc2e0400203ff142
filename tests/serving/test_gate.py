"""The gate: tokens, hosts, bodies, concurrency, headers and the log, around an application of three lines."""

import asyncio
import json

import pytest

from labeldeconv.serving.counters import Counters
from labeldeconv.serving.gate import DRAINED, Gate
from labeldeconv.serving.limits import Limits, Serving

TOKEN = "a long and secret token"


async def echo(scope, receive, send):
    """Says the length of the body."""
    message = await receive()
    if message["body"] == b"crash":
        raise RuntimeError("broken")
    body = str(len(message["body"])).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def ask(tmp_path):
    """Send a request to a gate: status, headers and body of the answer."""

    def go(path="/predict", parts=(b"",), headers=None, token=None, app=echo, gate=None, **limits):
        serving = Serving(tmp_path, token=token, limits=Limits(**limits))
        gate = gate or Gate(app, serving, Counters(tmp_path))
        sent, left = [], list(parts)

        async def receive():
            if not left:
                await asyncio.sleep(3600)
            part = left.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(left) or part is SLOW}

        async def send(message):
            sent.append(message)

        given = {b"host": b"127.0.0.1:8000", **(headers or {})}
        scope = {"type": "http", "method": "POST", "path": path, "headers": list(given.items()), "client": ("::1", 1)}
        asyncio.run(gate(scope, receive, send))
        return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]

    return go


SLOW = b"slow"


def test_a_token_is_asked_for_and_compared(ask):
    for headers, status in (
        ({}, 401),
        ({b"authorization": b"Bearer wrong"}, 401),
        ({b"authorization": TOKEN.encode()}, 401),
        ({b"authorization": b"Basic " + TOKEN.encode()}, 401),
        ({b"authorization": b"Bearer \xff\xfe"}, 401),
        ({b"authorization": b"Bearer " + TOKEN.encode()}, 200),
        ({b"authorization": b"bearer " + TOKEN.encode()}, 200),
    ):
        assert ask(headers=headers, token=TOKEN)[0] == status, headers
    for path, status in (("/metrics", 401), ("/nodes", 401), ("/openapi.json", 401), ("/health", 200), ("/", 200)):
        assert ask(path, token=TOKEN)[0] == status, path
    assert ask(token=TOKEN)[1][b"www-authenticate"] == b"Bearer"
    assert ask(headers={b"host": b"example.org", b"authorization": b"Bearer " + TOKEN.encode()}, token=TOKEN)[0] == 200


def test_without_a_token_other_hosts_are_refused(ask):
    for host, status in (
        (b"localhost", 200), (b"localhost:80", 200), (b"[::1]:80", 200), (b"[::1]", 200), (b"127.0.0.1", 200),
        (b"evil.org", 421), (b"evil.org:80", 421), (b"127.0.0.1.evil.org", 421), (b"", 421), (b"10.0.0.1", 421),
    ):  # fmt: skip
        assert ask(headers={b"host": host})[0] == status, host


def test_bodies_up_to_their_size(ask):
    assert ask(parts=[b"x" * 6, b"y" * 4], body=10)[::2] == (200, b"10")
    status, headers, body = ask(parts=[b"x" * 6, b"y" * 5], body=10)
    assert status == 413
    assert b"connection" not in headers
    assert json.loads(body)["errors"] == [{"field": "body", "message": "a body of at most 10 bytes expected"}]
    endless = [b"x" * 10] * (DRAINED + 5)
    assert ask(parts=endless, body=10)[0] == 413
    told = ask(parts=[], headers={b"content-length": b"999999"}, body=10)  # nothing of it is read
    assert (told[0], told[1][b"connection"]) == (413, b"close")


def test_a_body_that_does_not_come(ask):
    status, headers, _ = ask(parts=[SLOW], seconds=0.05)
    assert (status, headers[b"connection"]) == (408, b"close")


def test_too_many_at_a_time(ask, tmp_path):
    counters = Counters(tmp_path)
    gate = Gate(echo, Serving(tmp_path, limits=Limits(concurrent=2)), counters)
    assert ask(gate=gate)[0] == 200
    counters.add("in_flight", 2)
    status, headers, _ = ask(gate=gate)
    assert (status, headers[b"retry-after"]) == (429, b"1")
    assert ask("/health", gate=gate)[0] == 200
    counters.add("in_flight", -1)
    assert ask(gate=gate)[0] == 200
    assert counters.in_flight == 1


def test_an_error_of_the_application_is_a_500_and_is_forgotten(ask, tmp_path, caplog):
    counters = Counters(tmp_path)
    gate = Gate(echo, Serving(tmp_path), counters)
    status, _, body = ask(parts=[b"crash"], gate=gate)
    assert status == 500
    assert b"broken" not in body
    assert "RuntimeError: broken" in caplog.text
    assert counters.in_flight == 0


def test_every_answer_has_the_headers_of_safety(ask):
    for status, headers, _ in (ask(), ask(headers={b"host": b"evil.org"})):
        policy = headers[b"content-security-policy"].decode()
        assert "default-src 'none'" in policy, status
        assert "unsafe" not in policy
        assert headers[b"x-content-type-options"] == b"nosniff"


def test_a_line_of_json_per_request_without_what_was_said(ask, capsys):
    ask("/nodes", parts=[b"private words"], headers={b"authorization": b"Bearer private"})
    ask("/\x1b[31m" + "y" * 500, headers={b"host": b"evil.org"})
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["method"], first["path"], first["status"], first["client"]) == ("POST", "/nodes", 200, "::1")
    assert first["ms"] >= 0
    assert first["time"].endswith("Z")
    assert "private" not in json.dumps(first)
    assert (second["status"], len(second["path"])) == (421, 200)


def test_a_request_is_logged_before_its_answer_is_complete(tmp_path, capsys):
    """A worker was killed between an answer and its line, and the line was lost."""
    written = []

    async def parts(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await send({"type": "http.response.body", "body": b"b"})

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        written.append(capsys.readouterr().out.count("\n"))

    scope = {"type": "http", "method": "GET", "path": "/nodes", "headers": [(b"host", b"127.0.0.1")], "client": None}
    asyncio.run(Gate(parts, Serving(tmp_path), Counters(tmp_path))(scope, receive, send))
    assert written == [0, 0, 1]
    assert capsys.readouterr().out == ""


def test_other_protocols_are_closed(tmp_path):
    sent = []

    async def send(message):
        sent.append(message)

    gate = Gate(echo, Serving(tmp_path), Counters(tmp_path))
    asyncio.run(gate({"type": "websocket"}, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]
