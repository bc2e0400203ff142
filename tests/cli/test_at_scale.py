import json

import numpy as np
import pytest
from typer.testing import CliRunner

from labeldeconv.cli.app import app
from labeldeconv.errors import ConfigError
from labeldeconv.labels.hops import hop_labels
from tests.samples import random_edges, write_parquet


def call(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


@pytest.fixture
def graph(tmp_path):
    edges, Y = random_edges(30, 80), np.arange(30) % 4
    nodes = write_parquet(tmp_path / "nodes.parquet", id=np.arange(30), label=Y)
    return nodes, write_parquet(tmp_path / "edges.parquet", source=edges[0], target=edges[1]), edges, np.eye(4)[Y]


def test_hops(graph, tmp_path):
    nodes, ends, edges, Y = graph
    told = call("hops", "--nodes", nodes.as_uri(), "--edges", ends, "--hops", 3, "--out", tmp_path / "K", "--json")
    assert json.loads(told.stdout)["hops"] == 3
    np.testing.assert_allclose(np.load(tmp_path / "K" / "K.npy"), hop_labels(edges, Y, 3), atol=1e-6)
    said = call("hops", "--nodes", nodes.as_uri(), "--edges", ends, "--hops", 3, "--out", tmp_path / "K").stdout
    assert "30 nodes" in said
    assert "4 classes, 3 hops by local" in said


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--normalization", "column"], "row, symmetric expected"),
        (["--store", "int8"], "float32, uint16 expected"),
        (["--engine", "dask"], "local, spark expected"),
        (["--spark", "executor.cores=4"], r"spark\.NAME=VALUE expected"),
        (["--spark", "spark.executor.cores"], r"spark\.NAME=VALUE expected"),
    ],
)
def test_hops_refuses(graph, tmp_path, options, told):
    with pytest.raises(ConfigError, match=told):
        call("hops", "--nodes", graph[0], "--edges", graph[1], "--out", tmp_path / "K", *options)


def test_encode(tmp_path):
    path = write_parquet(tmp_path / "t.parquet", id=np.arange(3), text=np.array(["a", "b", "c"], dtype=object))
    arguments = ("encode", "--texts", path, "--out", tmp_path / "X", "--encoder", "tiny")
    told = json.loads(call(*arguments, "--set", "encoder.layers=1", "--json").stdout)
    assert (told["nodes"], told["dim"]) == np.load(tmp_path / "X" / "X.npy").shape
    assert "3 texts, features of" in call(*arguments, "--set", "encoder.layers=1").stdout
    with pytest.raises(ConfigError, match="one of --run RUN and --encoder NAME"):
        call(*arguments, "--run", tmp_path)


def test_plan():
    size = ("plan", "--nodes", "1e9", "--edges", "1e10", "--classes", 172, "--gpus", 64)
    told = json.loads(call(*size, "--set", "block=1e9", "--json").stdout)
    assert told["inputs"]["block"] == 1e9
    lines = {line["name"]: line for line in told["lines"]}
    assert lines["a"]["value"] == 2e10
    assert lines["sums"]["formula"] == "M * (4 * c + 4)"
    said = call(*size, "--directed").stdout
    assert "ways * e" in said
    assert "7.73 TB" in said  # shuffle per hop: 1e10 sums of 692 bytes, vectors of 712 GB, entries of 104 GB
    assert "engine: spark" in said


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--set", "networks=1"], "did you mean 'network'"),
        (["--set", "network=fast"], "network must be a number"),
        (["--nodes", "many"], "n must be a number, such as 1e9"),
        (["--nodes", "0"], "n must be a number above 0"),
    ],
)
def test_plan_refuses(options, told):
    with pytest.raises(ConfigError, match=told):
        call("plan", "--nodes", "1e9", "--edges", "1e10", "--classes", 172, *options)
