"""Several real processes that meet on loopback, as a launcher would start them."""

import json
import multiprocessing
import os
import socket
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass
class Ended:
    """How a rank has ended: its exit code, what its function returned, and the error, by kind and message."""

    code: int | None
    value: Any = None
    error: str = ""
    message: str = ""
    told: bool = False


def launch(
    function: Callable[..., Any],
    folder: Path,
    *args: Any,
    world: int = 2,
    seconds: float = 90.0,
    machines: bool = False,
) -> list[Ended]:
    """Run function(*args) in `world` processes at a time and wait for their ends; it returns what JSON can hold.

    With `machines` each is told that it is alone on its machine. They are forks of this process, which has imported
    torch already: that takes seconds for each.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder.mkdir(exist_ok=True)
    local = 1 if machines else world
    context = multiprocessing.get_context("fork")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads that wait
        places = [(r, world, local, port) for r in range(world)]
        made = [context.Process(target=_child, args=(function, folder, *place, args)) for place in places]
        for process in made:
            process.start()
    ended = []
    for rank, process in enumerate(made):
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
        said = folder / f"{rank}.json"
        ended.append(Ended(process.exitcode, **(json.loads(said.read_text()) if said.exists() else {})))
        said.unlink(missing_ok=True)
    return ended


def _child(
    function: Callable[..., Any], folder: Path, rank: int, world: int, local: int, port: int, args: tuple[Any, ...]
) -> None:
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "LOCAL_RANK": rank % local}
    where |= {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": local}
    os.environ.update({name: str(value) for name, value in where.items()})
    torch.set_num_threads(1)  # GNU OpenMP's threads are gone after a fork; a rank hung once, perhaps on them
    try:
        told, code = {"value": function(*args)}, 0
    except BaseException as error:
        traceback.print_exc()
        kind, code = type(error).__name__, 1
        told = {"error": kind, "message": str(error), "told": getattr(error, "told", False)}
    (folder / f"{rank}.json").write_text(json.dumps(told))
    os._exit(code)
