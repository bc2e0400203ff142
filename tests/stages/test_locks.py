"""Locks: one holder at a time, who is named; the dead hold nothing, and no file stays."""

import multiprocessing
import os
import signal
import socket
import time

import pytest

from labeldeconv.stages import locks
from labeldeconv.stages.locks import Held, locked


def holder(path):
    """A process that holds the lock until it is killed."""
    ready, told = os.pipe()
    child = os.fork()
    if not child:
        with locked(path):
            os.write(told, b"x")
            time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
    os.close(ready), os.close(told)
    return child


def end(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_the_second_is_told_who_has_it_and_the_dead_have_nothing(tmp_path):
    child = holder(tmp_path / "lock")
    try:
        with pytest.raises(Held, match=rf"process {child} on {socket.gethostname()}"), locked(tmp_path / "lock", False):
            pytest.fail("two have it")
    finally:
        end(child)
    with locked(tmp_path / "lock", False):
        assert (tmp_path / "lock").exists()
    assert not (tmp_path / "lock").exists()


def test_who_waits_says_for_whom_and_then_has_it(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    child = holder(tmp_path / "lock")
    ended = []

    def sleep(seconds, real=time.sleep):
        real(seconds)
        if caplog.records and not ended:
            ended.append(end(child))

    monkeypatch.setattr(locks.time, "sleep", sleep)
    with locked(tmp_path / "lock"):
        pass
    assert f"waiting for process {child} on" in caplog.text
    assert len(caplog.records) == 1


def test_nothing_is_said_of_a_short_wait_or_none(tmp_path, caplog):
    with locked(tmp_path / "lock"):
        pass
    assert not caplog.records


def test_a_lock_without_a_name_holds_too(tmp_path):
    with locked(tmp_path / "lock"):
        (tmp_path / "lock").write_text("")
        with pytest.raises(Held, match="another process"), locked(tmp_path / "lock", False):
            pytest.fail("two have it")


def count(path, number, rounds):
    for _ in range(rounds):
        with locked(path):
            value = int(number.read_text())
            time.sleep(0.001)
            number.write_text(str(value + 1))


def test_four_processes_never_lose_a_count(tmp_path):
    """The file is deleted by every owner: none may hold a deleted one while another holds the new one."""
    (tmp_path / "number").write_text("0")
    context = multiprocessing.get_context("fork")
    all_of_them = [context.Process(target=count, args=(tmp_path / "lock", tmp_path / "number", 20)) for _ in range(4)]
    for process in all_of_them:
        process.start()
    for process in all_of_them:
        process.join()
    assert (tmp_path / "number").read_text() == "80"


def test_a_file_system_without_locks_is_gone_without(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(locks.errno.ENOTSUP, "no locks")

    monkeypatch.setattr(locks.fcntl, "flock", none)
    with locked(tmp_path / "lock"):
        pass
