"""Ranks: the processes that `torchrun` starts, which make one run together; with one process all of it does nothing.

    torchrun --nproc-per-node 2 -m labeldeconv fit DATA ...

All ranks run the same program. A stage is made by rank 0 while the others wait for word of it, unless it is declared
`parallel`: then all ranks work in its folder (stages/stage.py). What ranks tell each other goes through the store that
they met at, as JSON, and is waited for as long as the other side gives signs of life; tensors go through the process
group (gloo between CPUs, nccl between GPUs). A rank that fails leaves its message in the store, and the others stop
without one; a rank that gives no sign of life, or that does not come to where the others wait, is named.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labeldeconv.errors import ConfigError, LabelDeconvError
from labeldeconv.progress import quiet

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

TIMEOUT = "LABELDECONV_RANK_TIMEOUT"  # seconds without a sign of life, or in one exchange of tensors
PATIENCE = 600.0  # its default: a checkpoint of 10 GB, for which the others wait, takes a tenth of it
BEAT = 1.0  # seconds between two signs of life
LINGER = 5.0  # seconds that a failed rank waits for the others to hear of it
POLL = 0.02  # seconds between two looks into the store, at first; ten times as many later


class Lost(LabelDeconvError):
    """The rank cannot go on because of another one; `told` where that one has said why."""

    def __init__(self, message: str, told: bool = False) -> None:
        super().__init__(message)
        self.told = told


@dataclass
class Together:
    """The ranks of this run as one of them sees them."""

    store: Any
    rank: int
    world: int
    patience: float
    exchanges: int = 0  # of tensors so far: who has fewer than another is late
    place: str = "the start"
    alone: int = 0  # how many stages deep rank 0 works by itself
    messages: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def beat(self) -> None:
        """Give signs of life until the end. A rank that hangs when another has failed, or is gone, is ended here."""
        number = 0
        try:
            while not self.ended.wait(BEAT):
                number += 1
                self.sign(number)
                if self.store.check(["failed"]):
                    break
        except RuntimeError:  # the store is gone, and with it the run
            pass
        if not self.ended.wait(2 * LINGER):
            os._exit(1)

    def sign(self, number: int) -> None:
        """A sign of life: its number, the exchanges so far, and the place."""
        self.store.set(f"beat/{self.rank}", json.dumps([number, self.exchanges, self.place]))

    def seen(self, rank: int) -> list[Any] | None:
        """The last sign of life of a rank: its number, exchanges so far, and the place."""
        return self.get(f"beat/{rank}")

    def get(self, name: str) -> Any:
        """What the store has under a name; None where nothing is."""
        try:
            return json.loads(self.store.get(name)) if self.store.check([name]) else None
        except RuntimeError:
            raise Lost("rank 0 is gone, and with it the store through which ranks meet") from None

    def wait(self, name: str, whom: int) -> Any:
        """What rank `whom` will leave in the store, as long as it gives signs of life."""
        start = changed = time.monotonic()
        last: list[Any] | None = None
        while (value := self.get(name)) is None:
            if (failed := self.get("failed")) is not None:
                raise Lost(failed, told=True)
            now = time.monotonic()
            if (seen := self.seen(whom)) != last:
                changed, last = now, seen
            if now - changed > self.patience:
                raise Lost(f"rank {whom} gave no sign of life for {self.patience:g} s, in {_place(last)}")
            time.sleep(POLL if now - start < 1 else 10 * POLL)
        return value

    def exchange(self, action: Callable[[], None]) -> None:
        """Exchange tensors; if that fails, say because of which rank."""
        self.exchanges += 1
        try:
            action()
        except RuntimeError as error:  # a closed connection, or the time is up
            raise self.blame() from error

    def blame(self) -> Lost:
        """Why an exchange has failed, as far as that can be known."""
        return self.culprit() or Lost(f"ranks lost each other in {self.place}")

    def culprit(self) -> Lost | None:
        """The rank that told of its failure, is gone, or is late; None where all are here."""
        before = {rank: self.seen(rank) for rank in range(self.world)}
        until = time.monotonic() + 3 * BEAT
        while time.monotonic() < until:
            if (failed := self.get("failed")) is not None:
                return Lost(failed, told=True)
            time.sleep(POLL)
        now = {rank: self.seen(rank) for rank in range(self.world)}
        others = [rank for rank in range(self.world) if rank != self.rank]
        gone = [rank for rank in others if now[rank] == before[rank]]
        late = [rank for rank in others if (now[rank] or [0, 0])[1] < self.exchanges]
        for ranks, what in ((gone, "was killed or hangs, it gives no sign of life"), (late, "did not come")):
            if ranks:
                places = ", ".join(f"rank {rank} (last in {_place(now[rank])})" for rank in ranks)
                return Lost(f"{places} {what}; waited in {self.place}, at most {self.patience:g} s")
        return None

    def fail(self, error: BaseException) -> bool:
        """Leave word of an error; whether this rank is the first to, and so the one to say it."""
        import torch.distributed as dist

        told = isinstance(error, Lost) and error.told
        try:
            own = json.dumps(f"rank {self.rank}: {error}")
            first = not told and self.store.compare_set("failed", "", own).decode() == own
            self.store.set(f"heard/{self.rank}", "1")
            dist.destroy_process_group()  # so that nobody waits for this rank
            until = time.monotonic() + LINGER
            while time.monotonic() < until and (not first or self.rank == 0):  # rank 0 may have the store
                if first and self.store.check([f"heard/{rank}" for rank in range(self.world)]):
                    break
                time.sleep(POLL)
        except RuntimeError:
            return not told
        return first


_together: Together | None = None


def started() -> int:
    """How many processes a launcher has started for this run: 1 without one."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def rank() -> int:
    """The number of this process, 0 without a launcher."""
    return int(os.environ.get("RANK") or 0) if started() > 1 else 0


def leads() -> bool:
    """Whether this process prints and writes: rank 0 of those that have joined, or the only one."""
    return _together is None or _together.rank == 0


def world() -> int:
    """How many ranks work on what is being done here; 1 in a stage that rank 0 makes by itself."""
    return 1 if _together is None or _together.alone else _together.world


@contextmanager
def joined() -> Iterator[None]:
    """Inside, the processes of a launcher are ranks of one run; does nothing for one process, or inside another."""
    global _together
    if started() == 1 or _together is not None:
        yield
        return
    group = _together = _meet()
    threading.Thread(target=group.beat, daemon=True).start()
    try:
        with quiet(group.rank > 0):
            yield
            _part(group)
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            _part(group)
            raise
        if not group.fail(error) and not isinstance(error, Lost):
            raise Lost(str(error), told=True) from error
        raise
    finally:
        group.ended.set()
        _together = None


def _meet() -> Together:
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        raise ConfigError("torch.distributed has a process group already: labeldeconv opens its own; close that first")
    patience = float(os.environ.get(TIMEOUT) or PATIENCE)
    limit = timedelta(seconds=patience)
    try:
        store, own, world = next(dist.rendezvous("env://", timeout=limit))
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK") or 0) % torch.cuda.device_count())
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=own, world_size=world, timeout=limit)
    except (RuntimeError, ValueError) as error:
        raise Lost(f"rank {rank()} did not meet the other ranks: {error}") from error
    if (own, world) != (rank(), started()) or dist.get_world_size() != world:
        raise Lost(f"rank {rank()} of {started()} expected, got rank {own} of {world}")
    group = Together(dist.PrefixStore("labeldeconv", store), own, world, patience)
    group.sign(0)
    return group


def _part(group: Together) -> None:
    """Leave together: rank 0, whose process may have the store, last."""
    import torch.distributed as dist

    group.store.set(f"end/{group.rank}", "1")
    for other in range(group.world if group.rank == 0 else 0):
        group.wait(f"end/{other}", other)
    dist.destroy_process_group()


@contextmanager
def by_itself() -> Iterator[None]:
    """Inside, rank 0 works while the others wait: for them there is one process."""
    if _together is None:
        yield
        return
    _together.alone += 1
    try:
        yield
    finally:
        _together.alone -= 1


def at(place: str) -> None:
    """Say where this rank is, for errors."""
    if _together is not None:
        _together.place = place


def tell(message: Mapping[str, Any]) -> None:
    """Rank 0 leaves a message, plain JSON, for all others."""
    if world() > 1:
        assert _together is not None
        _together.messages += 1
        _together.store.set(f"message/{_together.messages}", json.dumps(message))


def hear() -> dict[str, Any]:
    """The next message of rank 0, for the others."""
    assert _together is not None
    _together.messages += 1
    return _together.wait(f"message/{_together.messages}", 0)


def of_first(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message of rank 0, plain JSON, on all ranks; those of others are not looked at."""
    if world() > 1 and not leads():
        return hear()
    tell(message)
    return message


def agree(what: str, facts: Mapping[str, str]) -> None:
    """Refuse to go on unless all ranks have the same facts; the error names those that differ and where they do."""
    if world() == 1:
        return
    assert _together is not None
    _together.messages += 1
    place = f"facts/{_together.messages}"
    _together.store.set(f"{place}/{_together.rank}", json.dumps(dict(facts)))
    all_facts = [_together.wait(f"{place}/{other}", other) for other in range(_together.world)]
    for other, theirs in enumerate(all_facts):
        for name in sorted(facts.keys() | theirs.keys()):
            if (first := all_facts[0].get(name)) != theirs.get(name):
                raise ConfigError(
                    f"{what}: all ranks need the same {name}; rank 0 has {first}, rank {other} has {theirs.get(name)}"
                )


def same_folder(folder: Path, what: str) -> None:
    """Refuse to go on unless all ranks see one folder under this name, and not one on each machine."""
    if world() == 1:
        return
    assert _together is not None
    agree("folders", {what: str(folder.absolute())})
    mark = folder / f".ranks-{socket.gethostname()}-{os.getpid()}"
    if leads():
        folder.mkdir(parents=True, exist_ok=True)
        mark.touch()
        tell({"mark": mark.name})
    else:
        mark = folder / hear()["mark"]
    found = appears(mark)
    agree("folders", {what: f"{folder} of one machine" if found else f"another {folder}, on {socket.gethostname()}"})
    if leads():
        mark.unlink(missing_ok=True)


def appears(path: Path, seconds: float = 30.0) -> bool:
    """Whether a file that another rank has made can be seen here; a network file system may take a while to show it."""
    until = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > until:
            return False
        time.sleep(10 * POLL)
    return True


def one_machine() -> bool:
    """Whether all ranks are on one machine, as the launcher says."""
    return int(os.environ.get("LOCAL_WORLD_SIZE") or 0) == started()


def on_this_machine() -> int:
    """How many ranks the launcher has started here; all of them where it does not say."""
    return int(os.environ.get("LOCAL_WORLD_SIZE") or started())


def meet(place: str) -> None:
    """Go on when all ranks are here; one that is gone is found at once, by its closed connection."""
    if world() > 1:
        import torch

        at(place)
        add_up(torch.zeros(1))


def add_up(tensor: Tensor) -> None:
    """Replace a tensor, of one shape on all ranks, by its sum over the ranks."""
    if world() > 1:
        import torch.distributed as dist

        assert _together is not None
        _together.exchange(lambda: dist.all_reduce(tensor))


def swap(parts: list[np.ndarray]) -> list[np.ndarray]:
    """Give every rank its part (k, ...) of rows and get what each has for this one; rows are alike on all ranks."""
    if world() == 1:
        return parts
    import numpy as np
    import torch
    import torch.distributed as dist

    assert _together is not None
    group, like = _together, parts[0]
    width = like.itemsize * math.prod(like.shape[1:])
    mine = torch.tensor([len(part) for part in parts])
    theirs = torch.empty_like(mine)
    group.exchange(lambda: dist.all_to_all_single(theirs, mine))
    sent = torch.from_numpy(np.concatenate(parts).reshape(-1).view(np.uint8))  # rows of any type
    got = torch.empty(int(theirs.sum()) * width, dtype=torch.uint8)
    come, go = ([width * int(k) for k in counts] for counts in (theirs, mine))
    group.exchange(lambda: dist.all_to_all_single(got, sent, come, go))
    rows = got.numpy().view(like.dtype).reshape(-1, *like.shape[1:])
    return np.split(rows, np.cumsum(theirs.tolist())[:-1])


@contextmanager
def exchanging() -> Iterator[None]:
    """Inside, torch exchanges tensors by itself; an error because of another rank names that rank, others stay."""
    try:
        yield
    except RuntimeError as error:
        lost = _together.culprit() if world() > 1 and _together is not None else None
        if lost is None:
            raise
        raise lost from error


def _place(seen: list[Any] | None) -> str:
    return "an unknown place" if seen is None else str(seen[2])
