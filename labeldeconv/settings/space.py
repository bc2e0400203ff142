"""What a search may try of a setting: some values, or a range of numbers.

--search train.lr=1e-5..1e-3:log --search gnn.hidden=64,128,256
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from labeldeconv.errors import ConfigError
from labeldeconv.settings.reading import SHORT_NAMES, parse_set

LOG = ":log"


@dataclass(frozen=True)
class Choices:
    """One of these values."""

    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        """Whether a value can be tried."""
        return value in self.values

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that are checked before anything runs: all."""
        return self.values


@dataclass(frozen=True)
class Range:
    """A number from low to high, both included: whole where both ends are; by its logarithm where `log` is set."""

    low: float
    high: float
    log: bool

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are tried."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def holds(self, value: Any) -> bool:
        """Whether a value can be tried."""
        number = isinstance(value, int if self.whole else int | float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that are checked before anything runs: the ends."""
        return self.low, self.high


Part = Choices | Range


def parse_search(text: str) -> tuple[str, Part]:
    """'train.lr=1e-5..1e-3:log' or 'gnn.hidden=64,128,256' to a setting's dotted name and what may be tried of it."""
    name, sign, values = text.partition("=")
    name = SHORT_NAMES.get(name.strip(), name.strip())
    wanted = ConfigError(
        f"--search {text}: KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=VALUE,VALUE expected, "
        "such as train.lr=1e-5..1e-3:log or gnn.hidden=64,128,256"
    )
    if not sign or not name or not values.strip():
        raise wanted
    if ".." in values:
        log = values.endswith(LOG)
        low, high = (_number(end) for end in values.removesuffix(LOG).split("..", 1))
        if low is None or high is None or low >= high or (log and low <= 0):
            raise wanted
        return name, Range(low, high, log)
    found = [value.strip() for value in values.split(",")]
    if not all(found):
        raise wanted
    return name, Choices(tuple(dict.fromkeys(parse_set(f"{name}={value}")[1] for value in found)))


def _number(text: str) -> int | float | None:
    """A finite number, whole where it is written so; None for others."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else None
    return None
