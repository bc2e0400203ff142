"""Samples of the benchmarks of docs/trust.md: faults at file operations, damaged files, many processes on one cache."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*words):
    """The JSON that a benchmark prints."""
    command = [sys.executable, "-m", f"benchmarks.{words[0]}", *words[1:], "--json"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}, capture_output=True, text=True
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout), done


def test_every_fault_of_a_sample_is_recovered_from():
    """About 60 runs: each fault is one that breaks and one that must give the undisturbed result."""
    found, done = run("faults", "--sample", "26", "--random", "1", "--seed", "3")
    assert found["lost"] == 0, done.stderr
    assert found["faults"] == 26 + 2 * 3
    assert found["told"] > 0
    assert min(found["operations"].values()) > 400


def test_every_damage_of_a_sample_is_found():
    found, done = run("corruption", "--sample", "14", "--seed", "1")
    assert found["not_found"] == 0, done.stderr
    assert found["damages"] > 10


@pytest.mark.parametrize("processes", [3])
def test_processes_that_share_a_cache_build_every_stage_once(processes):
    found, done = run("shared_cache", "--processes", str(processes), "--fits", "12", "--seeds", "1")
    assert done.returncode == 0, done.stderr
    assert found["fits"] == 12
    assert found["built"] == found["stages"] > 8
    assert (found["built_twice"], found["failed"], found["with_different_results"], found["left_behind"]) == (
        0,
        0,
        0,
        0,
    )
