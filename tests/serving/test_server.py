"""One worker and SIGTERM; two workers as processes, one of which is killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from labeldeconv.errors import ConfigError
from labeldeconv.serving.limits import Limits, Serving
from tests.serving.running import ENVIRONMENT, Client, answers, events, start, stop, wait_for

from labeldeconv.serving.server import address, bound, serve  # isort: skip


def test_a_worker_that_is_killed_is_replaced_and_no_client_sees_it(ld_run, tmp_path):
    process, client, lines = start(ld_run, tmp_path, "--workers", "2")
    try:
        wait_for(lambda: len(events(lines, "ready")) == 2, process, tmp_path)
        wait_for(lambda: answers(client), process, tmp_path)
        workers = {event["worker"] for event in events(lines, "ready")}
        if Path("/proc/self/maps").exists():  # both map one file
            mapped = [Path(f"/proc/{pid}/maps").read_text().splitlines() for pid in workers]
            inodes = [{line.split()[4] for line in lines if "features.npy" in line} for lines in mapped]
            assert inodes[0] == inodes[1] != set()

        def one(i):
            return client.predict([{"text": f"river {i}", "neighbors": [i % 80]}]).status

        victim = min(workers)
        with ThreadPoolExecutor(8) as pool:
            statuses = [pool.submit(one, i) for i in range(200)]
            while sum(future.done() for future in statuses) < 50:
                time.sleep(0.005)
            os.kill(victim, signal.SIGKILL)
            assert [future.result() for future in statuses] == [200] * 200
        wait_for(lambda: len(events(lines, "ready")) == 3, process, tmp_path)
        assert events(lines, "ready")[2]["worker"] not in workers
        assert "labeldeconv_workers 2" in client.get("/metrics").body.decode()
    finally:
        assert stop(process) == 0
    answered = [line for line in lines if line.get("path") == "/predict"]
    assert [line["status"] for line in answered] == [200] * 200
    assert {line["worker"] for line in answered} >= workers  # both had taken some
    assert [(line["worker"], line["exit_code"]) for line in events(lines, "lost")] == [(victim, -signal.SIGKILL)]
    assert len(events(lines, "stopped")) == 2


def test_a_run_that_workers_cannot_load_ends_in_words(ld_run, tmp_path):
    shutil.copytree(ld_run, tmp_path / "run")
    (tmp_path / "run" / "features.npy").unlink()
    command = [sys.executable, "-m", "labeldeconv", "serve", str(tmp_path / "run"), "--port", "0", "--workers", "2"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **ENVIRONMENT})
    assert ended.returncode == 1
    assert "features.npy" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


def test_sigterm_ends_a_single_worker_and_leaves_the_signals_as_they_were(ld_run, capsys):
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread alone")
    before, told = signal.getsignal(signal.SIGTERM), []

    def client(port):
        while not answers(Client(port)):
            time.sleep(0.05)
        told.append(Client(port).predict([{"text": "x" * 21}]).status)
        os.kill(os.getpid(), signal.SIGTERM)

    with bound(Serving(ld_run, port=0)) as listener:
        port = listener.getsockname()[1]
    asking = threading.Thread(target=client, args=(port,))
    asking.start()
    serve(Serving(ld_run, port=port, limits=Limits(text=20), access_log=False))
    asking.join()
    assert told == [413]
    events = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    assert events == ["bound", "ready", "stopped"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_addresses(tmp_path):
    with bound(Serving(tmp_path, port=0)) as listener:
        port = listener.getsockname()[1]
        assert listener.getsockname()[0] == "127.0.0.1"
        listener.listen()
        taken = bound(Serving(tmp_path, port=port))
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port}: Address already in use"):
            taken.__enter__()
    assert address(Serving(tmp_path, "::1", 80)) == "http://[::1]:80"
