"""Samples of the benchmarks of docs/trust.md: faults at file operations, damaged files, many processes on one cache."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.audit import argued, outcomes, verdict

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


def test_processes_on_a_file_system_without_locks_and_links_give_the_right_results():
    """Some of NFS: each process builds what it needs in a folder of its own, and the first to finish wins."""
    found, done = run("shared_cache", "--processes", "3", "--fits", "12", "--seeds", "1", "--without-locks")
    assert done.returncode == 0, done.stderr
    assert found["fits"] == 12
    assert found["built"] >= found["stages"] > 8
    assert (found["failed"], found["with_different_results"], found["left_behind"]) == (0, 0, 0)


def test_bandit_finds_nothing_that_is_not_argued():
    pytest.importorskip("bandit", reason="needs the extra audit")
    found, done = run("audit", "--only", "bandit")
    assert (found["findings"], found["stale"], done.returncode) == ([], [], 0)


def test_an_audit_without_advisories_is_neither_clean_nor_vulnerable():
    """pip-audit ends well where nothing answers: every package is then skipped."""
    skipped = {"name": "a", "skip_reason": "Dependency not found on PyPI and could not be audited: a (1)"}
    clean = {"name": "b", "version": "1", "vulns": []}
    wrong = {"name": "c", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
    assert verdict([], [], outcomes([clean])) == 0
    assert verdict([], [], outcomes([clean, skipped])) == 3
    assert verdict([], [], outcomes([wrong, skipped])) == 1
    assert outcomes([wrong])["vulnerable"] == ["c 2: PYSEC-1, mended in: 3"]
    assert verdict(["found"], [], outcomes([])) == verdict([], ["stale"], outcomes([])) == 1


def test_a_finding_passes_only_where_it_is_argued():
    sql = {"test_id": "B608", "line_number": 3, "issue_text": "SQL"}
    findings, stale = argued([{**sql, "filename": "labeldeconv/data/tables/rows.py"}])
    assert findings == []
    assert "B608 in labeldeconv/data/*.py" not in stale
    findings, _ = argued([{**sql, "filename": "labeldeconv/graph/attributed.py"}])
    assert findings == ["labeldeconv/graph/attributed.py:3: B608 SQL"]
