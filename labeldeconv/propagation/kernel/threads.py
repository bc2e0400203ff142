"""Threads for numba kernels: plain Python threads over chunks with equally many edges.

Not numba's own: its OpenMP pool is torch's too, and using it resets torch's number of threads, and with it the last
bits of every later sum.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import torch

CHUNKS = 16  # per thread, so that a slow chunk does not hold up the end


def balanced(indptr: np.ndarray, per_thread: int = CHUNKS) -> np.ndarray:
    """Row boundaries (chunks + 1,) that give every chunk about the same number of edges."""
    chunks = per_thread * torch.get_num_threads()
    bounds = np.searchsorted(indptr, np.linspace(0, indptr[-1], chunks + 1)).astype(np.int64)
    bounds[0], bounds[-1] = 0, len(indptr) - 1
    return bounds


def run_chunks(work: Callable[[int, int], object], bounds: np.ndarray, alone: bool = False) -> None:
    """work(lo, hi) for every pair of neighbouring bounds, in torch's number of threads; `alone` in this one."""
    threads = torch.get_num_threads()
    if alone or threads == 1:
        work(int(bounds[0]), int(bounds[-1]))
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda pair: work(*pair), pairwise(bounds.tolist())))
