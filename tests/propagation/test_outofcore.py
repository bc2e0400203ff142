"""propagate out of core: the same numbers as in memory, and memory that does not grow."""

import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from labeldeconv.propagation import outofcore
from labeldeconv.propagation.adjacency import Adjacency, propagate
from labeldeconv.propagation.fixed_point import dequantize
from labeldeconv.propagation.outofcore import write_hops
from labeldeconv.stages.files import scratch
from tests.samples import random_edges


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint16])
@pytest.mark.parametrize("block", [1, outofcore.BLOCK_BYTES])
@pytest.mark.parametrize("one_hot", [False, True])
def test_in_blocks_equals_in_memory(tmp_path, monkeypatch, dtype, block, one_hot):
    n, d, hops = 400, 70, 3
    monkeypatch.setattr(outofcore, "BLOCK_BYTES", block)
    monkeypatch.setattr(outofcore, "free_memory_mib", lambda: 0.0)
    monkeypatch.setattr(outofcore, "ROW_BYTES", 5000)
    monkeypatch.setattr(outofcore, "JOINED_BYTES", 7000)
    adj = Adjacency.from_edges(random_edges(n, 1500), n)
    rng = np.random.default_rng(0)
    Y = np.eye(d, dtype=np.float32)[rng.integers(0, d, n)] if one_hot else rng.random((n, d), dtype=np.float32)
    x = scratch(tmp_path, "x", (n, d), np.dtype(np.float32))
    x[:] = Y
    out = scratch(tmp_path, "out", (n, hops + 1, d), np.dtype(dtype))
    told = []
    write_hops(adj, x, hops, out, tmp_path, told.append)
    expected = np.stack(list(propagate(adj, Y, hops)), axis=1)
    tolerance = {np.float32: 1e-6, np.float16: 6e-4, np.uint16: 2e-5}[dtype]
    np.testing.assert_allclose(dequantize(out), expected, atol=tolerance)
    assert sum(told) == (hops + 1) * d
    assert list(tmp_path.iterdir()) == []


def test_rows_of_one_negative_number_are_no_classes(tmp_path):
    """Standardised targets may be -1 and 0 alone: their largest entry is 0, as that of an empty row of a one-hot Y."""
    adj = Adjacency.from_edges(random_edges(30, 90), 30)
    x = np.zeros((30, 2), np.float32)
    x[::2, 0], x[1::4, 1] = -1, 1
    out = np.empty((30, 3, 2), np.float32)
    write_hops(adj, x, 2, out, tmp_path)
    np.testing.assert_allclose(out, np.stack(list(propagate(adj, x, 2)), axis=1), atol=1e-6)


def test_rows_of_a_map_keep_their_content_when_released(tmp_path):
    x = scratch(tmp_path, "x", (10_000, 64), np.dtype(np.float32))
    x[:] = np.arange(10_000)[:, None]
    outofcore.release(x, 100, 9000)
    outofcore.release(x[5:], 0, 100)
    np.testing.assert_array_equal(x[:, 3], np.arange(10_000))
    outofcore.release(np.zeros((5, 5)), 0, 5)  # not a memory map: nothing to give back


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("view", [False, True])
def test_exactly_the_rows_that_were_asked_for_are_released(tmp_path, view):
    """Of 64 MiB the middle half, or the same through a view that begins later."""
    x = scratch(tmp_path, "x", (16_384, 1024), np.dtype(np.float32))
    x[:] = 1
    before = resident()
    if view:
        outofcore.release(x[4096:], 0, 8192)
    else:
        outofcore.release(x, 4096, 12_288)
    assert (before - resident()) / x.nbytes == pytest.approx(0.5, abs=0.05)
    assert float(x[::512].mean()) == 1.0


@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_whole_number_labels_are_told_by_their_column(dtype):
    one = 65535 if dtype == np.uint16 else 1
    x = np.zeros((4, 3), dtype)
    x[0, 2] = x[1, 0] = x[3, 1] = one
    assert outofcore.classes_of(x).tolist() == [2, 0, 3, 1]  # row 2 is empty
    for spoiled in (np.array([0, one, one]), np.array([0, one // 2 + (one == 1) * 0.5, 0])):
        other = x.copy()
        other[2] = spoiled
        assert outofcore.classes_of(other) is None
    assert outofcore.classes_of(np.zeros((1, 1 << 16), dtype)) is None  # uint16 holds no such column
    assert outofcore.classes_of(np.zeros((1, (1 << 16) - 1), dtype)).tolist() == [(1 << 16) - 1]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_output(tmp_path):
    """1 GB of hops in a process that may hold a fraction of it."""
    script = f"""
import numpy as np
from pathlib import Path
from labeldeconv.propagation import outofcore
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.stages.files import scratch
from labeldeconv.stages.memory import peak_memory_mib
n, d, hops = 200_000, 256, 9
outofcore.BLOCK_BYTES, outofcore.free_memory_mib = 64 << 20, lambda: 0.0
rng = np.random.default_rng(0)
adj = Adjacency.from_edges(rng.integers(0, n, (2, 400_000)), n)
folder = Path({str(tmp_path)!r})
x = scratch(folder, "x", (n, d), np.dtype(np.float16))
out = scratch(folder, "out", (n, hops + 1, d), np.dtype(np.float16))
before = peak_memory_mib()
outofcore.write_hops(adj, x, hops, out, folder)
print(out.nbytes / 2**20, peak_memory_mib() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    size, grown = map(float, done.stdout.split())
    assert size > 900
    assert grown < 300


def test_a_block_takes_a_share_of_what_is_free_and_keeps_to_a_limit(monkeypatch):
    most = outofcore.BLOCK_BYTES
    for free, expected in ((None, most), (0.0, most), (80_000.0, 10_000 << 20)):
        monkeypatch.setattr(outofcore, "free_memory_mib", lambda free=free: free)
        assert outofcore._block_bytes() == expected
    for left, expected in ((10 << 20, 5 << 20), (1 << 40, most)):
        monkeypatch.setattr(outofcore, "room", lambda left=left: left)
        assert outofcore._block_bytes() == expected


def test_scratch_of_rows_is_cut_by_bytes(monkeypatch):
    """Rows of 40 bytes, 100 bytes at a time: two rows; a row longer than that comes alone; nothing for no rows."""
    monkeypatch.setattr(outofcore, "ROW_BYTES", 100)
    assert list(outofcore.row_chunks(np.zeros((5, 10), np.float32))) == [(0, 2), (2, 4), (4, 5)]
    assert list(outofcore.row_chunks(np.zeros((2, 99), np.float32))) == [(0, 1), (1, 2)]
    assert list(outofcore.row_chunks(np.zeros((0, 10), np.float32))) == []
    assert list(outofcore.row_chunks(np.zeros((101, 0), np.float32))) == [(0, 100), (100, 101)]


@pytest.mark.parametrize(("dtype", "size"), [(np.float32, 4), (np.uint16, 2)])
@pytest.mark.parametrize(("block", "lines"), [(1, 1), (2 * 64 * 50 * 2, 2), (2 * 64 * 50 * 3 - 1, 2)])
def test_blocks_have_whole_lines_of_columns(tmp_path, monkeypatch, dtype, size, block, lines):
    """Two hops of a block of 50 rows take BLOCK_BYTES at most, but for one line of 64 bytes, which is the least."""
    monkeypatch.setattr(outofcore, "BLOCK_BYTES", block)
    monkeypatch.setattr(outofcore, "free_memory_mib", lambda: 0.0)
    out = np.zeros((50, 2, 100), dtype)
    told = []
    write_hops(Adjacency.identity(50), np.zeros((50, 100), np.float32), 1, out, tmp_path, told.append)
    width = 64 // size * lines
    widths = [min(width, 100 - a) for a in range(0, 100, width)]
    assert told == [w for w in widths for _ in range(2)]
