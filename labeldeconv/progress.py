"""Progress bars on stderr: speed, time left and score so far on a terminal, silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

console = Console(stderr=True)


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
    if not sys.stderr.isatty():
        yield lambda amount=1, note="", tokens=0: None
        return
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        _Speed(unit),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", style="dim"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(label, total=total, completed=done, note="", tokens=0)  # type: ignore[arg-type]
        seen = 0

        def advance(amount: float = 1, note: str = "", tokens: int = 0) -> None:
            nonlocal seen
            seen += tokens
            progress.update(task, advance=amount, note=note, tokens=seen)

        yield advance


def say(message: str) -> None:
    """A line for the person at the terminal, on stderr; nothing when it is not a terminal."""
    if sys.stderr.isatty():
        console.print(message, highlight=False)
