"""Edge features on the entries of A-hat.

`Adjacency` drops duplicate edges and given self-loops and lets edges work both ways, so its CSR entries are not the
given edges. `EdgeFeatures` says for every entry which given edge it comes from, and gathers features only when asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numba
import numpy as np
import torch

from labeldeconv.propagation.kernel.threads import CHUNKS, run_chunks

SMALL = 1 << 18  # values below which a second thread costs more than it brings


@dataclass(frozen=True, eq=False)
class EdgeFeatures:
    """Features of the entries of A-hat.

    Args:
        values: (e, k), as given with the graph.
        index: (m,) the given edge of every entry; -1 for a self-loop, which has none.
        fill: (k,) what a self-loop gets: the mean of all edges.
    """

    values: np.ndarray
    index: np.ndarray
    fill: np.ndarray

    @classmethod
    def align(cls, values: np.ndarray, edges: np.ndarray, indptr: np.ndarray, indices: np.ndarray) -> EdgeFeatures:
        """From values (e, k) of edges (2, e), source above target, to the entries of a CSR pattern (row = target).

        An entry takes the first given edge of its own direction, else the first of the opposite one.
        """
        n = len(indptr) - 1
        keys = np.repeat(np.arange(n, dtype=np.int64), np.diff(indptr)) * n + indices  # ascending
        index = np.full(len(indices), -1, dtype=np.int32 if len(values) < 1 << 31 else np.int64)
        kept = np.flatnonzero(edges[0] != edges[1])[::-1]  # backwards: of duplicates the first is written last
        for source, target in ((edges[1], edges[0]), (edges[0], edges[1])):
            wanted = target[kept].astype(np.int64) * n + source[kept]
            place = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
            found = keys[place] == wanted
            index[place[found]] = kept[found]
        fill = values.mean(0, dtype=np.float64).astype(np.float32) if len(values) else np.zeros(values.shape[1:], "f4")
        return cls(values, index, fill)

    def tensor(self) -> torch.Tensor:
        """(m, k) float32."""
        if self.values.dtype == np.float16:  # which numba does not know
            known, out = self.index >= 0, np.tile(self.fill, (len(self.index), 1))
            out[known] = self.values[self.index[known]]
            return torch.from_numpy(out)
        out = np.empty((len(self.index), self.values.shape[1]), np.float32)
        bounds = np.linspace(0, len(out), CHUNKS + 1).astype(np.int64)
        fill = self.fill.astype(np.float32)
        run_chunks(partial(_fill, self.values, self.index, fill, out), bounds, alone=out.size < SMALL)
        return torch.from_numpy(out)


@numba.njit(nogil=True, cache=True)
def _fill(values: np.ndarray, index: np.ndarray, fill: np.ndarray, out: np.ndarray, lo: int, hi: int) -> None:
    for p in range(lo, hi):
        row = index[p]
        for k in range(out.shape[1]):
            out[p, k] = values[row, k] if row >= 0 else fill[k]
