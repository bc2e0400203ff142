"""What a page is built of: sections of texts, facts, tables and figures, as plain values. The page draws them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from labeldeconv.graph.metrics import NUMBERS, score_text, score_unit
from labeldeconv.report.wording import NOTHING


@dataclass(frozen=True)
class Text:
    """A paragraph; `lead` sets it larger."""

    kind: ClassVar[str] = "text"
    text: str
    lead: bool = False


@dataclass(frozen=True)
class Facts:
    """Names and values side by side."""

    kind: ClassVar[str] = "facts"
    facts: list[tuple[str, str]]


@dataclass(frozen=True)
class Cell:
    """A table cell; `strong` marks the best of its kind."""

    text: str
    strong: bool = False


@dataclass(frozen=True)
class PageTable:
    """A table; `numeric` columns are aligned to the right, the `prose` one may break lines."""

    kind: ClassVar[str] = "table"
    title: str
    columns: list[str]
    rows: list[list[Cell]]
    numeric: list[bool]
    note: str = ""
    colors: list[int] = field(default_factory=list)
    prose: int | None = None


@dataclass(frozen=True)
class Figure:
    """A chart, or one chart of several to choose from: `variants` are names with what charts.js draws."""

    kind: ClassVar[str] = "figure"
    title: str
    variants: list[tuple[str, dict[str, Any]]]
    note: str = ""
    wide: bool = False
    choose: str = "Group"
    start: int = 0


@dataclass(frozen=True)
class Command:
    """Text to copy into a terminal or a file; `folded` hides it behind its title."""

    kind: ClassVar[str] = "command"
    title: str
    text: str
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Explorer:
    """The node explorer; `data` is what explorer.js searches."""

    kind: ClassVar[str] = "explorer"
    data: dict[str, Any]
    note: str


Block = Text | Facts | PageTable | Figure | Command | Explorer


@dataclass(frozen=True)
class Section:
    """A tab of the page."""

    key: str
    title: str
    blocks: Sequence[Block]


def axis(title: str, form: str = "num", **more: Any) -> dict[str, Any]:
    """An axis of a chart: its title with the unit, and how numbers are written ('num', 'pct', 'int')."""
    return {"title": title, "form": form, **more}


def series(name: str, color: int, points: Sequence[Sequence[Any]], **more: Any) -> dict[str, Any]:
    """A named line or set of points; a point is [x, y], [x, y, error] or [x, y, error, name]."""
    return {"name": name, "color": color, "points": [[_round(v) for v in p] for p in points], **more}


def number(value: float | None) -> float:
    """A value as a chart takes it: NaN where there is none, or none that is finite."""
    return math.nan if value is None or not math.isfinite(value) else float(value)


def percent(value: float | None, digits: int = 2) -> str:
    """A fraction in percent, a dash where there is none."""
    return NOTHING if value is None or math.isnan(value) else f"{100 * value:.{digits}f}"


def shown(metric: str, value: float | None) -> str:
    """A score of a metric, by its title: shares in percent, others as they are; a dash where there is none."""
    return NOTHING if value is None or math.isnan(value) else score_text(metric, value)


def spread(mean: float, std: float, seeds: int, metric: str = "accuracy") -> str:
    """Mean and, over several seeds, standard deviation, as `shown`."""
    return shown(metric, mean) if seeds < 2 or math.isnan(mean) else f"{shown(metric, mean)} ± {shown(metric, std)}"


def score_axis(what: str, metric: str) -> dict[str, Any]:
    """The axis of a score, such as 'test accuracy (%)'."""
    return axis(f"{what} {metric}{score_unit(metric)}", "num" if metric in NUMBERS else "pct")


def thinned(points: Sequence[Any], most: int = 240) -> list[Any]:
    """At most `most` of the points, evenly, the last one always."""
    if len(points) <= most:
        return list(points)
    step = (len(points) - 1) / (most - 1)
    return [points[round(i * step)] for i in range(most)]


def plain(value: Any) -> Any:
    """A value that is valid JSON: NaN and infinities become None, numpy numbers become Python's."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def embedded(value: Any) -> str:
    """JSON that is safe inside a script element: nothing in it can close the element or start a comment."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _round(value: Any) -> Any:
    """Five significant digits are more than a chart shows."""
    return float(f"{value:.5g}") if isinstance(value, float) and math.isfinite(value) else value
