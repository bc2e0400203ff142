"""A run says what it was made with: command, seeds, versions, hardware, threads and the state of the source."""

import json
import os
import platform
import subprocess
import sys

import torch

from labeldeconv import __version__, fit
from labeldeconv.runs.provenance import git_state, version_of


def test_result_json_says_seeds_versions_hardware_git_and_command(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/labeldeconv", "fit", "planted:40", "--seed", "7"])
    before = torch.get_num_threads()
    quick = {"encoder": "tiny", "gnn__epochs": 1, "out": tmp_path / "run"}
    result = fit("planted:40", method="pne", seed=7, data_seed=3, **quick)
    told = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (told["settings"]["seed"], told["settings"]["data_seed"]) == (7, 3)
    assert told["provenance"] == result.provenance
    made = told["provenance"]
    assert made["command"] == ["labeldeconv", "fit", "planted:40", "--seed", "7"]
    assert made["versions"]["version"] == __version__
    assert made["versions"]["python"] == platform.python_version()
    assert made["versions"]["torch"] == torch.__version__
    assert made["hardware"]["cores"] == os.cpu_count()
    assert made["hardware"]["vector instructions"] == torch.backends.cpu.get_cpu_capability()
    assert made["threads"] == torch.get_num_threads() == before  # to ask numba for its threads would set torch's
    assert made["git"] == git_state()


def test_the_state_of_a_checkout_is_its_commit_and_whether_it_was_changed(tmp_path):
    assert git_state(tmp_path) is None  # no checkout
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    (tmp_path / "file").write_text("1")
    for words in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    git_state.cache_clear()
    assert git_state(tmp_path) == commit
    (tmp_path / "file").write_text("2")
    git_state.cache_clear()
    assert git_state(tmp_path) == f"{commit}-dirty"


def test_a_package_that_is_missing_has_no_version():
    assert version_of("no-such-package-anywhere") is None
    assert version_of("torch") == torch.__version__
