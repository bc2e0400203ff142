"""`labeldeconv serve`: its options become what is served, and mistakes are one message."""

import pytest
from typer.testing import CliRunner

from labeldeconv.cli.app import app
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.serving import server

pytest.importorskip("uvicorn", reason="the extra 'serve' is not installed")


@pytest.fixture
def told(monkeypatch):
    """What the server would be given."""
    given = []
    monkeypatch.setattr(server, "serve", given.append)
    monkeypatch.delenv("LABELDECONV_TOKEN", raising=False)
    return given


def call(*words):
    return CliRunner().invoke(app, ["serve", *words])


def test_loopback_is_the_default(told):
    assert call("runs/x").exit_code == 0
    (serving,) = told
    assert (serving.host, serving.port, serving.token, serving.workers) == ("127.0.0.1", 8000, None, 1)


def test_options_are_passed_on(told):
    options = "--port 0 --workers 3 --max-body 1000 --max-text 20 --max-nodes 3 --max-edges 4 --max-concurrent 5"
    assert call("runs/x", *options.split(), "--batch-tokens", "600", "--no-access-log").exit_code == 0
    (serving,) = told
    limits = serving.limits
    assert (limits.body, limits.text, limits.nodes, limits.edges) == (1000, 20, 3, 4)
    assert (limits.concurrent, limits.batch_tokens, serving.workers) == (5, 600, 3)
    assert not serving.access_log


def test_the_token_comes_from_the_option_or_the_environment(told, monkeypatch):
    assert isinstance(call("runs/x", "--host", "0.0.0.0").exception, ConfigError)
    monkeypatch.setenv("LABELDECONV_TOKEN", "the token of the environment")
    call("runs/x", "--host", "0.0.0.0")
    call("runs/x", "--token", "the token of the option")
    assert [serving.token for serving in told] == ["the token of the environment", "the token of the option"]


def test_a_run_that_is_none(tmp_path):
    assert isinstance(call(str(tmp_path), "--port", "0").exception, DataError)


def test_without_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "uvicorn", None)
    assert "needs the extra 'serve'" in str(call(str(tmp_path), "--port", "0").exception)
