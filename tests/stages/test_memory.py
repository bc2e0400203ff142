"""Memory: peaks since a reset, of the process and of accelerators, and what is free in a container."""

import ctypes
import subprocess
import sys

import numpy as np
import pytest
import torch

from labeldeconv.stages.memory import (
    free_memory_mib,
    peak_accelerator_mib,
    peak_memory_mib,
    reset_peak_memory,
    resident_memory_mib,
    return_freed_memory,
    total_memory_mib,
)


@pytest.mark.skipif(peak_memory_mib() is None, reason="this system does not tell")
def test_the_peak_starts_again_after_a_reset():
    held = np.ones(80 << 17)  # 80 MiB
    reset_peak_memory()
    before = peak_memory_mib()
    assert before == pytest.approx(resident_memory_mib(), abs=8)
    more = np.ones(80 << 17)
    assert 70 < peak_memory_mib() - before < 100
    del more, held
    return_freed_memory()
    reset_peak_memory()
    assert peak_memory_mib() < before - 70


class TwoDevices:
    """What torch knows of two accelerators; the numbers are of the last stage."""

    def __init__(self):
        self.peaks = [3 << 20, 700 << 20]
        self.resets, self.emptied = [], 0

    def is_available(self):
        return True

    def device_count(self):
        return 2

    def max_memory_allocated(self, index):
        return self.peaks[index]

    def reset_peak_memory_stats(self, index):
        self.resets.append(index)

    def empty_cache(self):
        self.emptied += 1


def test_the_fullest_accelerator_counts(monkeypatch):
    devices = TwoDevices()
    monkeypatch.setattr(torch, "accelerator", devices)
    assert peak_accelerator_mib() == 700.0
    reset_peak_memory()
    assert devices.resets == [0, 1]
    return_freed_memory()
    assert devices.emptied == 1


def test_before_torch_2_9_cuda_tells(monkeypatch):
    monkeypatch.delattr(TwoDevices, "max_memory_allocated")
    monkeypatch.setattr(torch, "accelerator", TwoDevices())
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda index: (index + 1) << 20)
    assert peak_accelerator_mib() == 2.0


def test_without_an_accelerator_or_torch_there_is_no_number(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert peak_accelerator_mib() is None
    monkeypatch.delitem(sys.modules, "torch")
    assert peak_accelerator_mib() is None
    reset_peak_memory()


@pytest.mark.skipif(free_memory_mib() is None, reason="this system does not tell")
def test_a_container_s_limit_counts_where_it_is_less(tmp_path):
    whole = free_memory_mib(tmp_path)
    assert whole > 10
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text(f"{4 << 20}\n")
    assert free_memory_mib(tmp_path) == pytest.approx(whole, rel=0.2)
    (tmp_path / "memory.max").write_text(f"{10 << 20}\n")
    assert free_memory_mib(tmp_path) == 6.0
    (tmp_path / "memory.current").write_text(f"{11 << 20}\n")
    assert free_memory_mib(tmp_path) == 0.0


@pytest.mark.skipif(total_memory_mib() is None, reason="this system does not tell")
def test_the_whole_is_the_machine_s_or_the_container_s(tmp_path):
    whole = total_memory_mib(tmp_path)
    assert whole > (free_memory_mib(tmp_path) or 0.0)
    (tmp_path / "memory.max").write_text("max\n")
    assert total_memory_mib(tmp_path) == whole
    (tmp_path / "memory.max").write_text(f"{10 << 20}\n")
    assert total_memory_mib(tmp_path) == 10.0


KEPT = """
import resource
import torch
from labeldeconv.stages.memory import freed_memory_kept, resident_memory_mib

def faults():
    "Pages that the system had to hand out for 80 MiB, of at most 20,480."
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.full((80 << 17,), 1.5, dtype=torch.float64)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = resident_memory_mib()
with freed_memory_kept():
    # A freed block may be a few bytes too small for the next one, until two of them join.
    assert min(faults() for _ in range(60)) < 2000
    with freed_memory_kept():  # an inner one changes nothing
        pass
    assert min(faults() for _ in range(60)) < 2000
    assert resident_memory_mib() > before + 70
assert resident_memory_mib() < before + 20
assert faults() > 10_000  # all of it comes from the system again
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
def test_freed_memory_is_kept_inside_and_given_back_after():
    # In a process of its own: after an allocation that failed, glibc serves a thread from heaps of at most 64 MiB.
    subprocess.run([sys.executable, "-c", KEPT], check=True)


RETURNED = """
import sys
from labeldeconv.stages.memory import resident_memory_mib, return_large_blocks

def left():
    "MiB that stay resident when ten blocks of 8 MiB are freed under a small one that stays."
    del_first = b"x" * (16 << 20)  # whose end raises glibc's bound
    del del_first
    before = resident_memory_mib()
    blocks = [b"x" * (8 << 20) for _ in range(10)]
    assert resident_memory_mib() > before + 70
    stays = [b"x" * 10_000 for _ in range(100)]
    blocks.clear()
    return resident_memory_mib() - before

if sys.argv[1] == "kept":
    assert left() > 60
else:
    return_large_blocks()
    assert left() < 15
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
@pytest.mark.parametrize("how", ["kept", "returned"])
def test_large_blocks_go_back_where_that_is_asked_for(how):
    subprocess.run([sys.executable, "-c", RETURNED, how], check=True)
