"""Spark in a cluster of two worker processes on this machine equals the engine 'local'; also where something dies.

`make test-spark` runs them; without Java or pyspark they are skipped, saying so.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labeldeconv import open_data
from labeldeconv.errors import DataError, LabelDeconvError, MissingExtra
from labeldeconv.labels.hop_tables import hops_of_tables
from labeldeconv.lake import spark as module
from labeldeconv.lake.spark import spark_session
from labeldeconv.lake.tables import Cluster, HopTables
from labeldeconv.settings.models import AdjacencyConfig
from tests.samples import random_edges, write_parquet

MASTER = "local-cluster[2,1,1024]"
# For little data: Java compiles little and has one thread for garbage, Spark compiles no queries.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK = (
    ("spark.driver.extraJavaOptions", JAVA),
    ("spark.executor.extraJavaOptions", JAVA),
    ("spark.sql.codegen.wholeStage", "false"),
    ("spark.sql.codegen.factoryMode", "NO_CODEGEN"),
)
CLUSTER = Cluster(MASTER, settings=QUICK)


def test_without_pyspark_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "py4j.protocol", None)
    with pytest.raises(MissingExtra, match=r"labeldeconv\[spark\]"), spark_session(CLUSTER):
        pass


def test_the_users_settings_stand_above_ours():
    told = module._settings(Cluster("spark://host:7077", "3g", (("spark.log.level", "INFO"),)))
    assert told["spark.log.level"] == "INFO"
    assert told["spark.executor.memory"] == "3g"
    assert "spark.driver.host" not in told  # the cluster must reach the driver
    assert module._settings(CLUSTER)["spark.driver.bindAddress"] == "127.0.0.1"


def test_the_reason_is_one_line():
    long = "An error occurred\n  File x\nValueError: rows of 3 numbers\n at org.apache.spark.Error: x"
    assert module._reason(Exception(long)) == "ValueError: rows of 3 numbers"
    assert module._reason(Exception("Master is away\n more")) == "Master is away"
    assert module._reason(Exception("")) == "Exception"


@pytest.fixture(scope="module")
def java():
    pytest.importorskip("pyspark", reason="comes with the extra spark")
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        pytest.skip("Spark needs Java")


@pytest.fixture(scope="module")
def session(java):
    """One cluster for all tests that kill no driver: Spark uses the session that is open."""
    with spark_session(CLUSTER) as opened:
        yield opened


def tables(folder: Path, edges: np.ndarray, label: np.ndarray, names: bool = False) -> HopTables:
    """Tables of n nodes in random order, whose ids are their numbers or, out of order, names."""
    n = len(label)
    order = np.random.default_rng(0).permutation(n)
    ids = np.array([f"v{(11 * i) % n:04d}" for i in range(n)], dtype=object) if names else np.arange(n)
    nodes = write_parquet(folder / "nodes.parquet", id=ids[order], label=label[order])
    ends = write_parquet(folder / "edges.parquet", source=ids[edges[0]], target=ids[edges[1]])
    return HopTables(str(nodes), str(ends), 2)


def both(asked: HopTables, folder: Path, cluster: Cluster = CLUSTER) -> tuple[np.ndarray, np.ndarray, dict]:
    """K.npy of both engines, and what Spark tells."""
    hops_of_tables(asked, str(folder / "local"))
    told = hops_of_tables(asked, (folder / "spark").as_uri(), "spark", cluster)
    return np.load(folder / "local" / "K.npy"), np.load(folder / "spark" / "K.npy"), told


def planted_edges() -> np.ndarray:
    """Those of a planted graph, and a hub; the last ten nodes of 210 have none."""
    graph = open_data("planted:200").graph
    star = np.stack([np.zeros(199, int), np.arange(1, 200)])
    return np.concatenate([np.asarray(graph.edges), star], axis=1)


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["classes", "several", "directed", "symmetric"])
def test_two_workers_equal_local(session, tmp_path, kind):
    rng = np.random.default_rng(1)
    edges, Y = planted_edges(), rng.integers(0, 5, 210)
    if kind == "classes":  # fixed point: equal to the bit
        asked = replace(tables(tmp_path, edges, Y), store="uint16")
    elif kind == "several":
        asked = tables(tmp_path, edges, (rng.random((210, 4)) < 0.4).astype(np.float32), names=True)
    elif kind == "directed":
        label = np.array([None, "red", "green", "blue", "black"], dtype=object)[Y]
        asked = replace(tables(tmp_path, edges, label), adjacency=AdjacencyConfig(undirected=False), backward=True)
    else:
        adjacency = AdjacencyConfig(normalization="symmetric", self_loops=True)
        asked = replace(tables(tmp_path, edges, rng.random((210, 3)), names=True), adjacency=adjacency)
    K, spark_K, told = both(asked, tmp_path, replace(CLUSTER, blocks=3))
    assert told["hubs"] >= (kind != "directed")  # turned round, the star's centre is a target alone
    if kind == "classes":
        assert spark_K.dtype == np.uint16
        np.testing.assert_array_equal(spark_K, K)
    np.testing.assert_allclose(spark_K, K, rtol=1e-6 if kind == "symmetric" else 0, atol=1e-6)  # there up to 3.5
    assert not (tmp_path / "spark" / "work").exists()
    assert told["shuffled"]["hop 1"] > 0


@pytest.mark.spark
def test_both_engines_refuse_the_same(session, tmp_path):
    asked = tables(tmp_path, random_edges(20, 50), np.arange(20) % 3)
    lost = tmp_path / "lost"
    lost.mkdir()
    unknown = tables(lost, np.array([[0, 1], [1, 77]]), np.arange(80) % 3)
    write_parquet(lost / "nodes.parquet", id=np.arange(70), label=np.arange(70) % 3)
    for number, each in enumerate([replace(asked, label="lable"), replace(asked, classes=2), unknown]):
        messages = []
        for engine in ("local", "spark"):
            with pytest.raises(DataError) as told:
                hops_of_tables(each, str(tmp_path / f"{engine}-{number}"), engine, CLUSTER)
            messages.append(str(told.value))
        assert messages[0] == messages[1]
        assert not (tmp_path / f"spark-{number}" / "asked.json").exists()


@pytest.mark.spark
def test_a_worker_that_fails_is_one_message(session, tmp_path):
    path = write_parquet(tmp_path / "t.parquet", id=np.arange(3), text=np.array(["a", "b", "c"], dtype=object))
    with pytest.raises(LabelDeconvError, match=r"Spark at .*ZeroDivisionError"):
        module.spark_encode(str(path), "id", "text", str(tmp_path / "X"), CLUSTER, lambda texts: [1 // 0], {})


@pytest.mark.spark
def test_texts_by_two_workers_equal_local(session, tmp_path, monkeypatch):
    from labeldeconv.prediction.encoded_tables import TableEncoder, encode_table
    from labeldeconv.settings.models import Config, EncoderConfig

    monkeypatch.setattr(module, "SLICE", 25)
    texts = np.array([f"a text of {i % 7} words" for i in range(40)], dtype=object)
    names = np.array([f"n{(3 * i) % 40}" for i in range(40)], dtype=object)
    path = str(write_parquet(tmp_path / "t.parquet", id=names, text=texts))
    encoder = TableEncoder.of(None, Config(encoder=EncoderConfig(name="tiny")))
    encode_table(path, str(tmp_path / "local"), encoder)
    told = encode_table(path, str(tmp_path / "spark"), encoder, "spark", CLUSTER)
    X, spark_X = (np.load(tmp_path / engine / "X.npy") for engine in ("local", "spark"))
    assert (told["nodes"], told["dim"]) == X.shape
    np.testing.assert_allclose(spark_X, X, atol=2e-3)  # float16
    assert len(list((tmp_path / "spark" / "X.parquet").glob("slice=*"))) == 2


def descendants(pid: int) -> list[int]:
    """Processes below a process."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def when_there(path: Path, seconds: float = 600.0) -> None:
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not come"
        time.sleep(0.02)


@pytest.mark.spark
def test_an_executor_that_is_killed_changes_nothing(session, tmp_path):
    asked = replace(tables(tmp_path, planted_edges(), np.arange(210) % 5), hops=4)
    killed = []

    def kill() -> None:
        when_there(tmp_path / "spark" / "K_1.parquet" / "_SUCCESS")
        executors = [pid for pid in descendants(os.getpid()) if "CoarseGrainedExecutorBackend" in command_of(pid)]
        os.kill(executors[0], signal.SIGKILL)
        killed.append(executors[0])

    thread = threading.Thread(target=kill)
    thread.start()
    K, spark_K, _ = both(asked, tmp_path)
    thread.join()
    assert killed
    np.testing.assert_allclose(spark_K, K, rtol=0, atol=1e-6)


@pytest.mark.spark
def test_a_driver_that_is_killed_is_started_again(java, tmp_path):
    """The second command goes on behind the hops that the first has completed."""
    asked = replace(tables(tmp_path, planted_edges(), np.arange(210) % 5), hops=3)
    hops_of_tables(asked, str(tmp_path / "local"))
    out = tmp_path / "spark"
    command = [sys.executable, "-m", "labeldeconv", "hops", "--engine", "spark", "--master", "local[2]", "--json"]
    command += ["--nodes", asked.nodes, "--edges", asked.edges, "--hops", "3", "--out", str(out)]
    command += [part for key, value in QUICK for part in ("--spark", f"{key}={value}")]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        when_there(out / "K_1.parquet" / "_SUCCESS")
        below = descendants(first.pid)
    finally:
        first.kill()
        first.wait()
    for pid in below:  # Java ends when its driver has: it would write on otherwise
        until = time.monotonic() + 60
        while "labeldeconv" in command_of(pid) and time.monotonic() < until:
            time.sleep(0.1)
    assert not (out / "hops.json").exists()
    written = {p: p.stat().st_mtime_ns for hop in (0, 1) for p in (out / f"K_{hop}.parquet").iterdir()}
    second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 0, second.stderr
    told = json.loads(second.stdout)
    assert "hop 1" not in told["seconds"]
    assert {p: p.stat().st_mtime_ns for p in written} == written
    np.testing.assert_allclose(np.load(out / "K.npy"), np.load(tmp_path / "local" / "K.npy"), rtol=0, atol=1e-6)
