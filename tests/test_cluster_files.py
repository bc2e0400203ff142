"""The files under docs/cluster are well formed, and the commands in them run in miniature."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from labeldeconv import fit
from labeldeconv.cli.app import app
from labeldeconv.labels.hop_tables import hops_of_tables
from labeldeconv.lake.tables import HopTables
from tests.lake.test_spark import QUICK, java
from tests.samples import random_edges, write_parquet

FOLDER = Path(__file__).parents[1] / "docs" / "cluster"
__all__ = ["java"]  # a fixture


@pytest.fixture
def graph(tmp_path) -> HopTables:
    edges = random_edges(60, 200)
    nodes = write_parquet(tmp_path / "nodes.parquet", id=np.arange(60), label=np.arange(60) % 4)
    ends = write_parquet(tmp_path / "edges.parquet", source=edges[0], target=edges[1])
    return HopTables(str(nodes), str(ends), 4)


def shims(folder: Path, **programs: str) -> dict[str, str]:
    """Programs that stand in for those of a cluster, first in PATH, with this Python and this package."""
    folder.mkdir()
    root = FOLDER.parents[1]
    programs |= {"python": f'exec {sys.executable} "$@"', "labeldeconv": f'exec {sys.executable} -m labeldeconv "$@"'}
    for name, script in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{script}\n")
        (folder / name).chmod(stat.S_IRWXU)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(root)}


@pytest.mark.parametrize("script", sorted(FOLDER.glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_well_formed(script):
    assert subprocess.run(["bash", "-n", script], capture_output=True, text=True).stderr == ""
    assert "#SBATCH" in script.read_text()


def test_the_command_of_kubernetes_runs(graph, tmp_path):
    """With the places and the engine of this machine; all other options as they stand in the file."""
    documents = list(yaml.safe_load_all((FOLDER / "kubernetes-hops.yaml").read_text()))
    assert [each["kind"] for each in documents] == ["ServiceAccount", "Role", "RoleBinding", "Job"]
    (driver,) = documents[-1]["spec"]["template"]["spec"]["containers"]
    here = {"--nodes": graph.nodes, "--edges": graph.edges, "--out": str(tmp_path / "K"), "--engine": "local"}
    arguments = [f"{name}={here.get(name, value)}" for name, _, value in (a.partition("=") for a in driver["args"])]
    told = CliRunner().invoke(app, [*driver["command"][1:], *arguments], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    assert np.load(tmp_path / "K" / "K.npy").shape == (60, 5, 4)


def test_every_task_encodes_its_files(tmp_path):
    run = fit("planted:40", encoder="tiny", train__epochs=1, gnn__epochs=2, out=tmp_path / "run").run
    (tmp_path / "texts").mkdir()
    for k in range(3):
        texts = np.array([f"text {k}", "b"], dtype=object)
        write_parquet(tmp_path / "texts" / f"{k}.parquet", id=np.arange(2) + 2 * k, text=texts)
    env = shims(tmp_path / "bin") | {"SLURM_ARRAY_TASK_COUNT": "2", "SLURM_ARRAY_TASK_ID": "0"}
    command = ["bash", FOLDER / "slurm-encode.sh", tmp_path / "texts", run, tmp_path / "X"]
    subprocess.run(command, env=env, check=True, capture_output=True)
    assert sorted(p.parent.name for p in (tmp_path / "X").glob("*/X.npy")) == ["0", "2"]


@pytest.mark.spark
def test_slurms_job_in_miniature(java, graph, tmp_path):
    """A real master, a real worker and a real driver; only srun and scontrol are ours."""
    env = shims(tmp_path / "bin", srun='shift; exec "$@"', scontrol="echo 127.0.0.1")
    env |= {"SLURM_JOB_NODELIST": "one", "SLURM_CPUS_PER_TASK": "1", "SLURM_MEM_PER_NODE": "4096", "SLURM_NNODES": "1"}
    env |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_PORT": str(20_000 + os.getpid() % 20_000), "TMPDIR": str(tmp_path)}
    env |= {"SPARK_WORKER_DIR": str(tmp_path / "worker"), "SPARK_WORKER_OPTS": QUICK[0][1]}
    settings = [
        part for key, value in (*QUICK, ("spark.driver.host", "127.0.0.1")) for part in ("--spark", f"{key}={value}")
    ]
    command = ["bash", FOLDER / "slurm-hops.sh", graph.nodes, graph.edges, tmp_path / "K", "--hops", "4", *settings]
    ended = subprocess.run(command, env=env, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-2000:]
    hops_of_tables(graph, str(tmp_path / "local"))
    K, expected = (np.load(tmp_path / name / "K.npy") for name in ("K", "local"))
    np.testing.assert_allclose(K, expected, rtol=0, atol=1e-6)
