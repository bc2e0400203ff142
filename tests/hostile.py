"""The command line in this process, as a user meets it: what it says and its exit code, never a traceback."""

import contextlib
import io
import sys
from dataclasses import dataclass

import pytest

from labeldeconv.cli.app import main


@dataclass(frozen=True)
class Answer:
    code: int | None
    out: str
    err: str


def answer(*args: object) -> Answer:
    """What `labeldeconv ARGS` answers; an exception that is not told in words is raised, and so fails the test."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["labeldeconv", *map(str, args)])
        try:
            main()
        except SystemExit as end:
            code = end.code
    return Answer(code, out.getvalue(), err.getvalue())


def refusal(*args: object) -> str:
    """The one message of a command that must refuse its input: exit code 1 or 2, nothing on stdout."""
    got = answer(*args)
    assert got.code in (1, 2), got
    assert "Traceback" not in got.err + got.out
    assert not got.out.strip(), got.out
    return got.err
