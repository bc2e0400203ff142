"""Arrays in files of which every rank writes a part: one map on one machine, and rows sent as bytes on several.

A network file system may lose what two machines write into one page of a memory map. What is written into a file as
bytes it keeps, since it knows which bytes they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from labeldeconv.errors import StorageError
from labeldeconv.stages import ranks
from labeldeconv.stages.files import map_array, scratch

PIECE = 1 << 24  # bytes written at a time


def shared_array(path: Path, shape: tuple[int, ...], dtype: np.typing.DTypeLike) -> np.memmap:
    """A new .npy file of zeros that rank 0 makes and all ranks of one machine have memory-mapped for writing."""
    made = map_array(path, shape, dtype) if ranks.leads() else None
    told = ranks.of_first({"array": str(path)})
    return np.load(told["array"], mmap_mode="r+", allow_pickle=False) if made is None else made


@contextmanager
def rows_of_all(path: Path, shape: tuple[int, ...], dtype: np.typing.DTypeLike, rows: slice) -> Iterator[np.ndarray]:
    """A new .npy file of which every rank writes its own `rows`: inside they are an array of zeros.

    At the end of it all of them are in the file, which every rank may open.
    """
    if ranks.one_machine():
        whole = shared_array(path, shape, dtype)
        yield whole[rows]
        whole.flush()
    else:
        own = scratch(path.parent, f"{path.stem}-of-rank-{ranks.rank()}", (rows.stop - rows.start, *shape[1:]), dtype)
        yield own
        if ranks.leads():
            map_array(path, shape, dtype)
        _write_rows(Path(ranks.of_first({"array": str(path)})["array"]), own, rows.start)
    ranks.meet(f"the file {path.name}")


def _write_rows(path: Path, values: np.ndarray, start: int) -> None:
    """Put rows into a .npy file from row `start` on, byte by byte, and bring them to the disk."""
    if not ranks.appears(path):
        raise StorageError(f"{path}: not to be seen by rank {ranks.rank()}; ranks of several machines share a folder")
    with path.open("r+b") as file:
        version = np.lib.format.read_magic(file)
        assert version == (1, 0)  # of `map_array`
        np.lib.format.read_array_header_1_0(file)
        flat = values.reshape(-1).view(np.uint8)
        file.seek(start * (flat.size // max(1, len(values))), os.SEEK_CUR)
        for lo in range(0, flat.size, PIECE):
            file.write(flat[lo : lo + PIECE].data)
        file.flush()
        os.fsync(file.fileno())
