"""`labeldeconv cache`: list, verify, prune."""

import json

import pytest
from typer.testing import CliRunner

from labeldeconv import Cache, fit
from labeldeconv.cli.app import app
from labeldeconv.cli.housekeeping import _bytes, _size
from labeldeconv.errors import ConfigError


@pytest.fixture
def run(tmp_path):
    return fit("planted:40", method="pne", encoder="tiny", gnn__epochs=2, out=tmp_path / "run").run


def invoke(*args, code=0):
    result = CliRunner().invoke(app, ["cache", *args])
    assert result.exit_code == code, result.output
    return result.output


def test_list(run):
    told = json.loads(invoke("list", "--json"))
    by_name = {stage["stage"]: stage for stage in told["stages"]}
    assert {"graph", "tokens", "features", "gnn"} == set(by_name)
    assert by_name["gnn"]["used_by"] == [str(run)]
    assert by_name["gnn"]["bytes"] > 100
    assert "4 stages" in invoke("list")


def test_verify_and_a_flipped_byte(run):
    assert "4 stages, 0 broken" in invoke("verify")
    kept = next(k for k in Cache().stages() if k.stage == "features")
    path = kept.path / "values.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    assert "another content" in invoke("verify", code=1)
    told = json.loads(invoke("verify", "--json", code=1))
    assert [broken["stage"] for broken in told["broken"]] == ["features"]


def test_prune(run):
    result = CliRunner().invoke(app, ["cache", "prune"])
    assert isinstance(result.exception, ConfigError)
    assert "0 stages deleted" in invoke("prune", "--older", "1")
    assert json.loads(invoke("prune", "--keep", "1T", "--json"))["deleted"] == []
    assert "3 stages deleted" in invoke("prune", "--run", str(run))  # the graph is not the run's alone to keep
    assert "1 stages deleted" in invoke("prune", "--keep", "0")
    again = fit("planted:40", method="pne", encoder="tiny", gnn__epochs=2, out=run)
    assert again.cached == []


@pytest.mark.parametrize(("text", "count"), [("20G", 20 << 30), ("1.5M", 3 << 19), ("7", 7), ("2kB", 2048)])
def test_sizes(text, count):
    assert _bytes(text) == count


def test_wrong_size():
    with pytest.raises(ConfigError, match="--keep much: a size such as 20G"):
        _bytes("much")
    assert (_size(12), _size(12_300), _size(3e12)) == ("12 B", "12.3 kB", "3.0 TB")
