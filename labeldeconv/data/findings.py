"""Findings: everything that is wrong or odd about some data, collected so that it can be told at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph

EXAMPLES = 5  # how many rows a message names


@dataclass(frozen=True)
class Loaded:
    """A graph and what is odd about the files it was made of."""

    graph: AttributedGraph
    warnings: list[str]


class Findings:
    """Errors, which stop, and oddities, which warn; each says file, row and column."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []

    def error(self, problem: str) -> None:
        """Note something that makes the data unusable."""
        self.errors.append(problem)

    def warn(self, oddity: str) -> None:
        """Note something that the user should know."""
        self.warnings.append(oddity)

    def stop(self, where: str) -> NoReturn:
        """Raise a `DataError` with all errors, then all oddities."""
        title = f"{where}: {len(self.errors)} wrong, {len(self.warnings)} odd"
        raise DataError(title, self.errors + [f"warning: {oddity}" for oddity in self.warnings])


def shown(names: list[str]) -> str:
    """The first few names, quoted, and an ellipsis when there are more."""
    dots = ", ..." if len(names) > EXAMPLES else ""
    return ", ".join(f"'{name}'" for name in names[:EXAMPLES]) + dots
