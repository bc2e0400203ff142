"""The exceptions users may catch; the command line prints their message without a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class LabelDeconvError(Exception):
    """Base of every error that is the input's fault, not the program's."""


class DataError(LabelDeconvError):
    """The data cannot be used. `problems` lists everything that is wrong, each with file, row and column."""

    def __init__(self, title: str, problems: Sequence[str] = ()) -> None:
        self.problems = list(problems)
        super().__init__("\n".join([title, *(f"  - {p}" for p in self.problems)]))


class ConfigError(LabelDeconvError):
    """A setting has an unknown name or a value that is not accepted."""


class NotFinite(LabelDeconvError):
    """A loss, a feature, a logit or a weight is NaN or infinite. The message names the stage and the nodes."""


class MissingExtra(LabelDeconvError):
    """An optional dependency is needed. The message names the extra to install."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the extra '{extra}': pip install 'labeldeconv[{extra}]'")


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a mistyped `name`: the nearest of the `known` ones, then all of them."""
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"{hint}known: {', '.join(options)}"
