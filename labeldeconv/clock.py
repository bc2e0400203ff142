"""Clock: where the time of a loop goes."""

from __future__ import annotations

import time


class Clock:
    """Seconds by part: `lap(part)` books the time since the last lap.

    On a GPU, where work is queued, waiting for it is booked on the part that waits: 'backward' for a training step.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def start(self) -> None:
        """Forget the time since the last lap."""
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """Book the time since the last lap on `part`."""
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
        self._last = now
