"""torchrun as a user starts it: a rank is killed, the job restarts by itself and goes on from its checkpoint."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError, safe_open

from labeldeconv import fit
from tests.launched import launch

ROOT = Path(__file__).parents[1]
SETTINGS = {
    "encoder.max_tokens": 16, "train.epochs": 25, "train.batch_nodes": 8, "train.checkpoint_minutes": 0.0,
    "gnn.hidden": 8, "gnn.epochs": 2,
}  # fmt: skip


def torchrun(folder, out):
    """Start two ranks of `fit` that may be restarted, with the rendezvous that docs/distributed.md names."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "2"]
    launcher += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}"]
    command = ["-m", "labeldeconv", "fit", "planted:60", "--method", "fne", "--gnn", "mlp", "--encoder", "tiny"]
    sets = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    own = {"LABELDECONV_CACHE": folder / "cache", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": 1, "PYTHONPATH": ROOT}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **{name: str(value) for name, value in own.items()}}
    with (folder / "log").open("w") as log:
        return subprocess.Popen(
            [*launcher, *command, *sets, "--out", str(out)], cwd=folder, env=environment, stdout=log, stderr=log
        )


def step_of(cache):
    """The step of the checkpoint in a cache; None where there is none."""
    for path in cache.rglob("checkpoint.safetensors"):
        try:
            with safe_open(path, framework="np") as file:
                return int(json.loads(file.metadata()["state"])["step"])
        except (OSError, SafetensorError):  # the training has ended meanwhile
            return None
    return None


def process_of(rank, launcher):
    """The process of a rank, found among the launcher's children by what it was started with."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(status.read_text().rpartition(")")[2].split()[1]) != launcher:
                continue
            if f"RANK={rank}".encode() in (status.parent / "environ").read_bytes().split(b"\0"):
                return int(status.parent.name)
        except OSError:
            continue
    raise AssertionError(f"no rank {rank} below {launcher}")


def undisturbed(folder):
    result = fit(
        "planted:60", method="fne", gnn="mlp", encoder="tiny", out=folder / "whole", cache=folder / "other cache",
        **{name.replace(".", "__"): value for name, value in SETTINGS.items()},
    )  # fmt: skip
    return [result.val, result.logits.tolist()]


@pytest.mark.thorough
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ranks are found in /proc")
def test_a_killed_rank_is_restarted_and_goes_on_from_the_checkpoint(tmp_path, monkeypatch):
    job = torchrun(tmp_path, tmp_path / "run")
    try:
        until, steps, killed = time.monotonic() + 400, [], 0
        while job.poll() is None and time.monotonic() < until:
            step = step_of(tmp_path / "cache")
            if step is not None and not killed and step >= 3:
                os.kill(process_of(1, job.pid), signal.SIGKILL)
                killed = step
            elif step is not None and killed:
                steps.append(step)
            time.sleep(0.02)
    finally:
        if job.poll() is None:
            job.terminate()
        job.wait(30)
    said = (tmp_path / "log").read_text()
    assert job.returncode == 0, said
    assert killed
    assert "Signal 9 (SIGKILL)" in said or "exitcode: -9" in said, said
    assert steps == sorted(steps)  # from zero, the file would have had step 1 again
    assert min(steps) >= killed
    assert max(steps) > killed + 10
    kept = json.loads((tmp_path / "run" / "result.json").read_text())
    logits = np.load(next((tmp_path / "run").rglob("logits.npy")))
    monkeypatch.chdir(tmp_path)
    zero, one = launch(undisturbed, tmp_path / "ranks", tmp_path, seconds=200)
    assert (zero.code, one.code) == (0, 0), zero.message or one.message
    assert kept["val"] == pytest.approx(zero.value[0])
    np.testing.assert_allclose(logits, zero.value[1], atol=1e-5)
