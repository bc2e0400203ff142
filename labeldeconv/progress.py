"""Progress bars on stderr: speed and time left on a terminal, silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

console = Console(stderr=True)


class _Speed(TextColumn):
    """Units per second."""

    def __init__(self, unit: str) -> None:
        super().__init__("")
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {self.unit}/s", style="progress.data.speed")


@contextmanager
def bar(label: str, total: float, unit: str = "nodes", done: int = 0) -> Iterator[Callable[..., None]]:
    """Show `label` until `total` units are done; yields advance(amount, note="").

    Example:
        with bar("encode", total=n) as advance:
            advance(32, "loss 0.71")
    """
    if not sys.stderr.isatty():
        yield lambda amount=1, note="": None
        return
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(bar_width=28),
        TaskProgressColumn(),
        _Speed(unit),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", style="dim"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(label, total=total, completed=done, note="")
        yield lambda amount=1, note="": progress.update(task, advance=amount, note=note)


def say(message: str) -> None:
    """A line for the person at the terminal, on stderr; nothing when it is not a terminal."""
    if sys.stderr.isatty():
        console.print(message, highlight=False)
