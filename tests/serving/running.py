"""A server in a thread of the test or in a process, on a free port of the loopback address."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
uvicorn = pytest.importorskip("uvicorn", reason="the extra 'serve' is not installed")

from labeldeconv.serving.application import application  # noqa: E402
from labeldeconv.serving.limits import Limits, Serving  # noqa: E402
from labeldeconv.serving.server import address, bound, options  # noqa: E402


@dataclass
class Reply:
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def fields(self):
        """The fields that a refusal names."""
        return [error["field"] for error in self.json["errors"]]


@dataclass
class Client:
    port: int
    token: str | None = None
    address: str = ""
    server: object = None

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        own = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if body is not None and not isinstance(body, bytes):
            body, own["Content-Type"] = json.dumps(body).encode(), "application/json"
        try:
            connection.request(method, path, body, {**own, **(headers or {})})
            answer = connection.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.ask("GET", path, headers=headers)

    def predict(self, nodes, edges=(), **more):
        return self.ask("POST", "/predict", {"nodes": nodes, "edges": list(edges), **more})


@contextmanager
def served(predictor, token=None, access_log=False, **limits):
    """The predictor behind HTTP; afterwards it is shut down as SIGTERM would."""
    serving = Serving(predictor.run.path, port=0, token=token, limits=Limits(**limits), access_log=access_log)
    with bound(serving) as listener:
        port = listener.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(application(serving, predictor), **options(serving)))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        try:
            yield Client(port, token, address(serving).replace(":0", f":{port}"), server)
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
START = 300  # seconds: several processes load torch on a machine that may be busy


def start(run, tmp_path, *options):
    """A server in a process of its own; its client, and the lines of its log as they come."""
    command = [sys.executable, "-m", "labeldeconv", "serve", str(run), "--port", "0", *options]
    environment = {**os.environ, **ENVIRONMENT}
    environment.pop("LABELDECONV_TOKEN", None)
    with (tmp_path / "stderr").open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    lines: list[dict] = []
    threading.Thread(target=lambda: lines.extend(map(json.loads, process.stdout)), daemon=True).start()
    wait_for(lambda: events(lines, "bound"), process, tmp_path)
    port = int(events(lines, "bound")[0]["address"].rpartition(":")[2])
    return process, Client(port), lines


def events(lines, name):
    return [line for line in list(lines) if line.get("event") == name]


def wait_for(condition, process, tmp_path):
    end = time.monotonic() + START
    while not condition():
        assert process.poll() is None, (tmp_path / "stderr").read_text()
        assert time.monotonic() < end, (tmp_path / "stderr").read_text()
        time.sleep(0.05)


def answers(client):
    try:
        return client.get("/ready").status == 200
    except OSError:
        return False


def stop(process):
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(60)
    finally:
        process.kill()
        time.sleep(0.2)  # the last lines of its log
        process.stdout.close()
