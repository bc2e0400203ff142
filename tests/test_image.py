"""The image that `make image` has built: its container starts, predicts what this machine does, and ends when asked."""

import json
import os
import shlex
import shutil
import subprocess
import time

import numpy as np
import pytest

from labeldeconv import Predictor
from tests.serving.running import Client, answers

pytestmark = pytest.mark.image
ENGINE = os.environ.get("ENGINE", "podman")
OPTIONS = shlex.split(os.environ.get("RUN_OPTIONS", ""))
TOKEN = "sixteen characters and more"
START = 300  # seconds


def engine(*words):
    done = subprocess.run([ENGINE, *words], capture_output=True, text=True, timeout=START, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def run(ld_run, tmp_path_factory):
    """The run where a user without rights may read it."""
    folder = shutil.copytree(ld_run, tmp_path_factory.mktemp("mounted") / "run")
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
    return folder


@pytest.fixture(scope="module")
def container(run):
    """A container of the image with its own command, by name, and a client of it."""
    mounts = ["--volume", f"{run}:/run:ro", "--publish", "127.0.0.1::8000", "--env", f"LABELDECONV_TOKEN={TOKEN}"]
    name = engine("run", "--detach", *mounts, *OPTIONS, "labeldeconv")
    try:
        client = Client(int(engine("port", name, "8000").rpartition(":")[2]), TOKEN)
        end = time.monotonic() + START
        while not answers(client):
            assert time.monotonic() < end, engine("logs", name)
            assert json.loads(engine("inspect", name))[0]["State"]["Running"], engine("logs", name)
            time.sleep(0.2)
        yield name, client
    finally:
        engine("rm", "--force", name)


def test_it_predicts_what_this_machine_does(container, run):
    _, client = container
    asked = [{"id": "a", "text": "amber river", "neighbors": [1, 2]}, {"id": "b", "text": "quiet drum"}]
    got = client.predict(asked, [["b", "a"]], features=True)
    assert got.status == 200, got.body
    told = Predictor.load(run).predict(["amber river", "quiet drum"], [(1, "a"), (2, "a"), ("b", "a")], ids=["a", "b"])
    assert [node["prediction"] for node in got.json["nodes"]] == told.classes
    np.testing.assert_allclose([node["probabilities"] for node in got.json["nodes"]], told.probabilities, atol=1e-4)
    np.testing.assert_allclose([node["features"] for node in got.json["nodes"]], told.features, atol=2e-2)


def test_it_asks_for_its_token(container):
    _, client = container
    assert Client(client.port).predict([{"text": "river"}]).status == 401


def test_it_is_healthy_and_nobody_in_particular(container):
    name, _ = container
    check = json.loads(engine("inspect", name))[0]["Config"]["Healthcheck"]
    assert engine("exec", name, *check["Test"][1:]) == ""
    assert engine("exec", name, "id", "-un") == "serve"
    assert engine("exec", name, "sh", "-c", "touch /run/x || echo no").endswith("no")


def test_it_holds_the_package_and_nothing_of_who_built_it(container):
    name, _ = container
    code = "import labeldeconv, torch; print(labeldeconv.__file__); assert torch.version.cuda is None"
    assert "site-packages" in (where := engine("exec", name, "python", "-c", code)) or "dist-packages" in where
    history = engine("history", "--no-trunc", "labeldeconv")
    assert TOKEN not in history
    assert engine("exec", name, "sh", "-c", "cat /etc/pip.conf 2>/dev/null; true") == ""


def test_it_ends_gracefully(container):
    name, client = container
    assert client.get("/health").status == 200
    engine("stop", "--time", "60", name)
    state = json.loads(engine("inspect", name))[0]["State"]
    assert state["ExitCode"] == 0, state
    assert json.loads(engine("logs", name).splitlines()[-1])["event"] == "stopped"
