"""A worker's loop in this process, with the socket of a dispatcher that the test plays."""

import asyncio
import json
import socket

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

from labeldeconv.serving import worker
from labeldeconv.serving.frames import next_frame, send_frame
from labeldeconv.serving.limits import Serving

POST = {"method": "POST", "path": "/predict", "query": "", "headers": [["content-type", "application/json"]]}


def hand_over(run, *requests):
    """What a worker says of these requests, and then the end of its connection."""

    async def both():
        here, there = socket.socketpair()
        answering = asyncio.create_task(worker._answer_all(Serving(run), there))
        reader, writer = await asyncio.open_connection(sock=here)
        told = [await next_frame(reader)]
        for number, (request, body) in enumerate(requests):
            send_frame(writer, {**request, "number": number}, body)
        writer.write_eof()  # all of them are answered nevertheless
        while (frame := await next_frame(reader)) is not None:
            told.append(frame)
        await answering
        writer.close()
        return told

    return asyncio.run(both())


def test_all_that_was_handed_over_is_answered_by_its_number(ld_run, capsys):
    body = json.dumps({"nodes": [{"text": "river", "neighbors": [1]}]}).encode()
    search = {"method": "GET", "path": "/nodes", "query": "q=river&limit=1", "headers": []}
    ready, *answers = hand_over(ld_run, (POST, body), (POST, b"no json"), (search, b""))
    assert ready == ({"ready": True}, b"")
    told = {head["number"]: (head["status"], head["log"], json.loads(body)) for head, body in answers}
    assert [told[i][0] for i in range(3)] == [200, 422, 200]
    assert told[0][1] == {"nodes": 1}
    assert told[0][2]["nodes"][0]["by"] == "gnn"
    assert len(told[2][2]["nodes"]) == 1
    assert ["content-type", "application/json"] in answers[0][0]["headers"]
    events = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    assert events == ["ready", "stopped"]


def test_a_run_that_cannot_be_served_is_refused_in_words(tmp_path):
    ((head, _),) = hand_over(tmp_path)
    assert str(tmp_path) in head["refused"]


def test_an_error_of_ours_is_a_500_and_the_worker_goes_on(ld_run, monkeypatch, caplog):
    monkeypatch.setattr("labeldeconv.serving.application.find_nodes", lambda *_: 1 / 0)
    search = {"method": "GET", "path": "/nodes", "query": "q=a", "headers": []}
    run = {"method": "GET", "path": "/run", "query": "", "headers": []}
    _, *answers = hand_over(ld_run, (search, b""), (run, b""))
    assert {head["number"]: head["status"] for head, _ in answers} == {0: 500, 1: 200}
    assert "ZeroDivisionError" in caplog.text
