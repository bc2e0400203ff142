"""The Dockerfile, read line by line: what it copies is in git, what it installs and runs is what the project knows.

`make image` builds it, which takes minutes and a network; tests/test_image.py is about what comes of it.
"""

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from labeldeconv.cli.app import app
from labeldeconv.errors import ConfigError

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def lines():
    """Instructions and their arguments, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.M).replace("\\\n", " ")
    return [line.split(None, 1) for line in text.splitlines() if line.strip()]


def those(lines, name):
    return [rest.strip() for instruction, rest in lines if instruction == name]


@pytest.fixture(scope="module")
def kept():
    """All files in git."""
    told = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if told.returncode:
        pytest.skip("not a git repository")
    return told.stdout.splitlines()


def test_every_instruction_is_one(lines):
    known = {
        "FROM",
        "ARG",
        "ENV",
        "RUN",
        "WORKDIR",
        "COPY",
        "USER",
        "EXPOSE",
        "HEALTHCHECK",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
    }
    assert {instruction for instruction, _ in lines} == known
    assert lines[0][0] == "FROM"


def test_what_it_copies_is_in_git_and_enough_to_build(lines, kept):
    copied = [source for rest in those(lines, "COPY") for source in rest.split()[:-1]]
    for source in copied:
        assert any(name == source or name.startswith(f"{source}/") for name in kept), source
        assert f"!{source}" in (ROOT / ".dockerignore").read_text().splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = ["pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]]
    needed += project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(needed) <= set(copied)


def test_it_installs_what_the_project_names(lines):
    installs = [shlex.split(run) for run in those(lines, "RUN") if run.startswith("pip install")]
    pinned = re.search(r"torch==[\d.]+", (ROOT / "Makefile").read_text())[0]
    assert installs[0][2:] == [pinned, "--index-url", "$TORCH_INDEX"]
    assert those(lines, "ARG") == ["TORCH_INDEX=https://download.pytorch.org/whl/cpu"]  # the CPU builds' own
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = re.fullmatch(r"\.\[([\w,]+)\]", installs[1][2])[1].split(",")
    assert "serve" in wanted
    assert set(wanted) <= set(extras)


def test_it_runs_as_nobody_in_particular(lines):
    assert those(lines, "USER") == ["serve"]
    order = [instruction for instruction, _ in lines]
    assert order.index("USER") < order.index("ENTRYPOINT")
    assert "useradd --uid 10001" in " ".join(those(lines, "RUN"))
    assert not any("TOKEN" in rest for rest in those(lines, "ENV"))


def test_its_command_is_one_and_asks_for_a_token(lines, monkeypatch):
    entry, words = (json.loads(those(lines, name)[0]) for name in ("ENTRYPOINT", "CMD"))
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert entry[0] in scripts
    monkeypatch.delenv("LABELDECONV_TOKEN", raising=False)
    told = CliRunner().invoke(app, [*entry[1:], *words])
    assert isinstance(told.exception, ConfigError)  # all options are known, and others can reach it
    assert "needs a token" in str(told.exception)


def test_its_health_is_asked_where_it_listens(lines):
    (check,) = those(lines, "HEALTHCHECK")
    command = json.loads(check.partition("CMD")[2])
    compile(command[2], "healthcheck", "exec")
    port = json.loads(those(lines, "CMD")[0])[-1]
    assert f"http://127.0.0.1:{port}/health" in command[2]
    assert those(lines, "EXPOSE") == [port]
