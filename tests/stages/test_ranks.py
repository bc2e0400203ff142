"""Ranks are real processes that meet on loopback: one makes a stage, failures are told once, who hangs is named."""

import os
import signal
import time
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from labeldeconv.errors import ConfigError, DataError
from labeldeconv.progress import logger
from labeldeconv.stages import ranks
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.stage import Artefact, Folder, session, stage
from tests.launched import launch


@dataclass(frozen=True, eq=False)
class Number(Artefact):
    values: np.ndarray
    maker: int
    world: int


@stage(version=1)
def single(out: Folder, x: int) -> Number:
    return Number(np.arange(x), os.getpid(), ranks.world())


@stage(version=1)
def made_of_others(out: Folder, x: int) -> Number:
    return Number(np.array(single(x).values), os.getpid(), ranks.world())


@stage(version=1, parallel=True)
def shared(out: Folder, x: int) -> Number | None:
    total = torch.tensor([float(ranks.rank() + x)])
    ranks.add_up(total)
    return Number(total.numpy(), os.getpid(), ranks.world()) if ranks.leads() else None


shared._hints["return"] = Number


@stage(version=1)
def refuses(out: Folder, x: int) -> Number:
    raise DataError("no such thing")


def stages(cache):
    with ranks.joined(), session(Cache(cache)):
        assert ranks.world() == 2
        made = [single(4), made_of_others(3), shared(1), shared(1)]
        told = ""
        try:
            refuses(1)
        except (DataError, ranks.Lost) as error:  # caught by all alike: the run goes on
            told = str(error)
        ranks.meet("here")
        makers = [number.maker for number in made]
        said = [number.values.tolist() for number in made], [number.world for number in made], told
        return [os.getpid(), makers, said, logger.disabled]


def test_one_rank_makes_a_stage_and_all_open_it(tmp_path):
    zero, one = launch(stages, tmp_path / "ranks", tmp_path / "cache")
    assert (zero.code, one.code) == (0, 0)
    assert zero.value[1] == one.value[1] == [zero.value[0]] * 4  # all were made by rank 0
    values, worlds, told = zero.value[2]
    assert [values, worlds, told] == one.value[2]
    assert values == [[0, 1, 2, 3], [0, 1, 2], [3.0], [3.0]]  # 0 + 1 and 1 + 1 were added up, by both ranks
    assert worlds == [1, 1, 2, 2]
    assert told == "no such thing"
    assert [zero.value[3], one.value[3]] == [False, True]  # rank 1 says nothing


def test_one_process_needs_nobody(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("RANK", "3")  # of something else
    with ranks.joined():
        assert (ranks.world(), ranks.rank(), ranks.leads()) == (1, 0, True)
        ranks.agree("anything", {"a": "b"})
        ranks.tell({"nobody": "listens"})


def uneasy(case, folder):
    with ranks.joined(), session(Cache(folder / "cache")):
        if case == "settings":
            ranks.agree("ranks", {"setting hops": str(2 + ranks.rank()), "version of torch": "2"})
        elif case == "folders":
            ranks.same_folder(folder / str(ranks.rank()), "cache folder")
        elif case == "fails":
            refuses(1)
        elif case == "other input":
            single(1 + ranks.rank())
        elif ranks.rank() == 1:
            if case == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        ranks.at("the last exchange")
        ranks.add_up(torch.ones(1))


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("settings", "all ranks need the same setting hops; rank 0 has 2, rank 1 has 3"),
        ("folders", "all ranks need the same cache folder"),
        ("fails", "no such thing"),
        ("other input", "single: rank 1 differs from rank 0 in x"),
        ("killed", "rank 1 (last in the start) was killed or hangs, it gives no sign of life; waited in the last"),
        ("hangs", "rank 1 (last in the start) did not come; waited in the last exchange, at most 2 s"),
    ],
)
def test_what_goes_wrong_is_told_once_and_ends_all(tmp_path, monkeypatch, case, message):
    monkeypatch.setenv(ranks.TIMEOUT, "2" if case == "hangs" else "20")
    monkeypatch.setattr(ranks, "LINGER", 2.0)  # seconds after which a rank that hangs is ended
    start = time.monotonic()
    ended = launch(uneasy, tmp_path / "ranks", case, tmp_path)
    assert all(each.code for each in ended)
    speakers = [each for each in ended if each.error and not each.told]
    assert len(speakers) == 1, ended
    assert message in speakers[0].message
    assert time.monotonic() - start < 60


def test_a_group_of_somebody_else_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with pytest.raises(ConfigError, match="a process group already"), ranks.joined():
        pass
