"""What a server takes: where it listens, and the most of everything that a client may ask of it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from labeldeconv.errors import ConfigError

TOKEN_VARIABLE = "LABELDECONV_TOKEN"  # nosec B105 (where the token is, not the token)
LEAST_TOKEN = 16  # characters: a guess of 2^64 and more, if it was drawn at random


@dataclass(frozen=True)
class Limits:
    """The most of everything in one request, and of requests at a time.

    Args:
        body: bytes of a request's body.
        text: characters of one text, or of all cells of a record together.
        nodes: new nodes of one request.
        edges: edges of one request, those to `neighbors` included.
        concurrent: requests taken and not answered yet, per worker.
        batch_tokens: tokens that go through the encoder at a time; one request may have more.
        seconds: within which a body has to arrive, and running requests have to be answered after SIGTERM.
    """

    body: int = 1 << 20
    text: int = 20_000
    nodes: int = 64
    edges: int = 1_024
    concurrent: int = 128
    batch_tokens: int = 2_048
    seconds: float = 30.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise ConfigError(f"serve: limit '{name}': above 0 expected, got {value}")


@dataclass(frozen=True)
class Serving:
    """All that a worker needs to know; it travels to the workers' processes.

    Args:
        run: the run directory.
        host: the address to listen on; any but a loopback one needs a token.
        port: 0 takes a free one.
        token: what clients send as `Authorization: Bearer TOKEN`; None asks for none.
        workers: processes.
        access_log: whether every request becomes a JSON line on stdout.
        counters: the folder in which workers keep their counters; None for one of the server's own.
    """

    run: Path
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = field(default=None, repr=False)
    workers: int = 1
    limits: Limits = field(default_factory=Limits)
    access_log: bool = True
    counters: Path | None = None

    def __post_init__(self) -> None:
        if self.token is not None and (len(self.token) < LEAST_TOKEN or not self.token.isprintable()):
            raise ConfigError(f"serve: a token of {LEAST_TOKEN} printable characters or more expected")
        if self.token is None and not is_loopback(self.host):
            raise ConfigError(
                f"serve: --host {self.host} can be reached by others and needs a token: set {TOKEN_VARIABLE} or "
                f"--token ({LEAST_TOKEN} characters or more), or listen on 127.0.0.1"
            )
        if self.workers < 1:
            raise ConfigError(f"serve: --workers of 1 or more expected, got {self.workers}")

    @property
    def most_at_a_time(self) -> int:
        """Requests that all workers together have taken and not answered yet."""
        return self.workers * self.limits.concurrent


def is_loopback(host: str) -> bool:
    """Whether an address, or a name, is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
