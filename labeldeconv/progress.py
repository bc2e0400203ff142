"""What a run says while it goes on: the logger `labeldeconv` and, on a terminal or in a notebook, a bar per stage.

Everything is said through Python's `logging`. The command line shows it on stderr (`show`): on a terminal above the
bars, elsewhere (nohup, SLURM, CI) as lines with the time, where every bar becomes a line per half minute. In a program
of your own nothing is printed until it asks, as always: logging.basicConfig(level="INFO").
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.text import Text

# What a terminal would obey or that would turn lines around: control characters but tab and line feed, both signs of
# a CSI (\x1b, \x9b), Unicode's line ends and its changes of direction; and halves of characters, which no file takes.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""A text of unknown origin as it may go to a terminal: what would be obeyed is shown, such as \x1b."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


class PlainConsole(Console):
    """A console that shows texts and obeys none: no markup, no emoji codes, no escapes but those of its own styles.

    Ids, texts, class names and paths are others' and may hold anything; styles are given as `Text` or `style=`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """A text without any meaning but itself."""
        return super().render_str(printable(text), **{**options, "markup": False, "emoji": False})

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        """The last step before the terminal: whatever came in as `Text` is made printable here."""
        return super()._render_buffer(
            segment if segment.control else Segment(printable(segment.text), segment.style) for segment in buffer
        )


logger = logging.getLogger("labeldeconv")
console = PlainConsole(stderr=True)
_wanted = {"bars": True}
_said: set[str] = set()
EVERY = 30.0  # seconds between lines of progress off a terminal


class _Lines(logging.Handler):
    """Records as lines on stderr: on a terminal above the bars, elsewhere with the time; never taken for markup."""

    def emit(self, record: logging.LogRecord) -> None:
        if sys.stderr.isatty():
            style = "yellow" if record.levelno >= logging.WARNING else "dim"
            console.print(Text(record.getMessage(), style=style), soft_wrap=True)
        else:
            moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
            sys.stderr.write(f"{moment} {printable(record.getMessage())}\n")
            sys.stderr.flush()


def show(verbosity: int = 0) -> None:
    """Show the log on stderr: -1 only warnings, 0 a line per stage and its progress, 1 everything."""
    _wanted["bars"] = verbosity >= 0
    logger.handlers = [_Lines()]
    logger.propagate = False
    logger.setLevel({-1: logging.WARNING, 0: logging.INFO}.get(verbosity, logging.DEBUG))


@contextmanager
def quiet(asked: bool = True) -> Iterator[None]:
    """Inside, if asked, this process says nothing and draws no bars: another one speaks for it."""
    before, bars = logger.disabled, _wanted["bars"]
    logger.disabled, _wanted["bars"] = before or asked, bars and not asked
    try:
        yield
    finally:
        logger.disabled, _wanted["bars"] = before, bars


def say_once(message: str, level: int = logging.WARNING) -> None:
    """Log a message, unless this process has logged it before: every stage loads its encoder anew."""
    if message not in _said:
        _said.add(message)
        logger.log(level, "%s", message)


def _draws_bars() -> bool:
    """Whether bars can be drawn and are wanted: on a terminal or in a notebook, unless `show` said otherwise."""
    return (sys.stderr.isatty() or console.is_jupyter) and _wanted["bars"]


class Advance(Protocol):
    """Moves a bar: units done, what to write behind it, tokens among them."""

    def __call__(self, amount: float = 1, note: str = "", tokens: int = 0) -> None:
        """Advance by `amount` units."""
        ...


class _Speed(ProgressColumn):
    """Units per second and, where there are some, tokens per second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed, tokens = task.finished_speed or task.speed, task.fields["tokens"]
        parts = [] if not speed else [rate(speed, self.unit)]
        if tokens and task.elapsed:
            parts.append(rate(tokens / task.elapsed, "tokens"))
        return Text(" ".join(parts), style="progress.data.speed")


def rate(speed: float, unit: str) -> str:
    """'1,200 nodes/s', '2.5 epochs/s', or below one a second '40.0 s/epoch'."""
    if speed >= 1:
        return f"{speed:,.0f} {unit}/s" if speed >= 10 else f"{speed:.1f} {unit}/s"
    return f"{1 / speed:.1f} s/{unit.removesuffix('s')}"


@contextmanager
def bar(label: str, total: float, unit: str = "nodes", done: float = 0) -> Iterator[Advance]:
    """Show `label` until `total` units are done, of which `done` were before; yields advance(amount, note, tokens).

    Example:
        with bar("encode", total=n) as advance:
            advance(32, "loss 0.71", tokens=900)
    """
    if not _draws_bars():
        yield _Reporter(label, total, unit, done)
        return
    columns = (
        TextColumn("{task.description:<10}", markup=False),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        _Speed(unit),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", style="dim", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(label, total=total, completed=done, note="", tokens=0)  # type: ignore[arg-type]
        seen = 0

        def advance(amount: float = 1, note: str = "", tokens: int = 0) -> None:
            nonlocal seen
            seen += tokens
            progress.update(task, advance=amount, note=note, tokens=seen)

        yield advance


class _Reporter:
    """A bar off a terminal: a line of the log whenever EVERY seconds have passed."""

    def __init__(self, label: str, total: float, unit: str, done: float) -> None:
        self.label, self.total, self.unit, self.done, self.before = label, total, unit, done, done
        self.tokens = 0
        self.start = self.told = time.monotonic()

    def __call__(self, amount: float = 1, note: str = "", tokens: int = 0) -> None:
        self.done += amount
        self.tokens += tokens
        now = time.monotonic()
        if now - self.told < EVERY:
            return
        self.told = now
        speed = (self.done - self.before) / (now - self.start)
        parts = [f"{self.done / max(self.total, 1e-9):.0%}", rate(speed, self.unit)] if speed else []
        if self.tokens:
            parts.append(rate(self.tokens / (now - self.start), "tokens"))
        if speed:
            parts.append(f"{duration((self.total - self.done) / speed)} left")
        logger.info("%s: %s", self.label, ", ".join([*parts, *([note] if note else [])]))


def duration(seconds: float) -> str:
    """'40 s', '12 min' or '3.5 h'."""
    if seconds < 90:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
