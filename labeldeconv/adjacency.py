"""A-hat and propagate: the one graph convolution of the project.

K_i = A-hat^i Y (eqn:preprocess), the hop features of GAMLP and SAGN and the spectral GNNs are all `propagate`.
A-hat = diag(left) P diag(right) with a binary CSR pattern P, so that 1/degree is never stored per edge: row-normalised
(D^-1 A, left = 1/deg) or symmetric (D^-1/2 A D^-1/2). A row without neighbours gets itself as its only neighbour, so
that K_i of an isolated node is its K_0.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numba
import numpy as np
import torch

from labeldeconv.config import AdjacencyConfig
from labeldeconv.edge_features import EdgeFeatures

Array = TypeVar("Array", np.ndarray, torch.Tensor)


@dataclass(frozen=True, eq=False)
class Adjacency:
    """A normalised adjacency matrix A-hat (n, n) in CSR: row i averages over indices[indptr[i]:indptr[i + 1]].

    Some rows of it, as mini-batches use them, are (t, s): `sources` is then s, of which the first t are the targets.
    """

    indptr: np.ndarray
    indices: np.ndarray
    left: np.ndarray | None
    right: np.ndarray | None
    symmetric: bool
    sources: int | None = None
    edge_features: EdgeFeatures | None = None
    _on: dict[tuple[str, torch.device], torch.Tensor] = field(default_factory=dict, repr=False)

    @classmethod
    def from_edges(cls, edges: np.ndarray, num_nodes: int, config: AdjacencyConfig | None = None) -> Adjacency:
        """Build A-hat from edges (2, e): row = target, column = source; duplicates and given self-loops are dropped."""
        config = config or AdjacencyConfig()
        source, target = edges[0], edges[1]
        kept = source != target
        if not kept.all():
            source, target = source[kept], target[kept]
        rows, cols = target, source
        if config.undirected:
            rows, cols = np.concatenate([rows, cols]), np.concatenate([cols, rows])
        indptr, indices = _csr(rows, cols, num_nodes)
        missing = np.ones(num_nodes, bool) if config.self_loops else np.diff(indptr) == 0
        if missing.any():
            indptr, indices = _insert_diagonal(indptr, indices, missing)
        degree = np.diff(indptr).astype(np.float64)
        if config.normalization == "row":
            return cls(indptr, indices, (1.0 / degree).astype(np.float32), None, config.undirected)
        # Columns carry their own in-degree's root; on a directed graph that is the row degree of that node.
        root = (1.0 / np.sqrt(degree)).astype(np.float32)
        return cls(indptr, indices, root, root, config.undirected)

    @property
    def num_nodes(self) -> int:
        """n, or t: the rows."""
        return len(self.indptr) - 1

    @property
    def num_sources(self) -> int:
        """n, or s: the columns."""
        return self.num_nodes if self.sources is None else self.sources

    def with_edge_features(self, edges: np.ndarray, values: np.ndarray) -> Adjacency:
        """The same A-hat whose entries know the features (e, k) of the edges (2, e) they come from."""
        aligned = EdgeFeatures.align(values, edges, self.indptr, self.indices)
        return replace(self, edge_features=aligned, _on={})

    @cached_property
    def transposed(self) -> Adjacency:
        """A-hat^T, which carries gradients back through A-hat."""
        if self.symmetric:
            return Adjacency(self.indptr, self.indices, self.right, self.left, True)
        rows = np.repeat(np.arange(self.num_nodes, dtype=self.indices.dtype), np.diff(self.indptr))
        indptr, indices = _csr(self.indices, rows, self.num_sources)
        return Adjacency(indptr, indices, self.right, self.left, False, self.num_nodes)

    def __matmul__(self, x: np.ndarray) -> np.ndarray:
        """A-hat x (t, d) for x (s, d) float32 or float64. Bit-equal whatever the number of threads."""
        x = np.ascontiguousarray(x)
        if self.right is not None:
            x = x * self.right[:, None].astype(x.dtype)
        out = np.zeros((self.num_nodes, x.shape[1]), x.dtype)
        with torch_threads():
            _gather(self.indptr, self.indices, _balanced(self.indptr), x, out)
        if self.left is not None:
            out *= self.left[:, None].astype(x.dtype)
        return out

    def dense(self) -> np.ndarray:
        """A-hat as a dense float64 matrix (n, n), for small graphs."""
        out = np.zeros((self.num_nodes, self.num_sources))
        out[np.repeat(np.arange(self.num_nodes), np.diff(self.indptr)), self.indices] = 1.0
        if self.left is not None:
            out *= self.left[:, None]
        return out if self.right is None else out * self.right

    def on(self, device: torch.device) -> torch.Tensor:
        """A-hat as a torch sparse CSR tensor (t, s), for PyG layers; made once per device."""
        return self._once("matrix", device, self._torch_csr)

    def edge_index(self, device: torch.device) -> torch.Tensor:
        """The entries as PyG writes them: (2, e) int64, sources above targets."""
        return self._once("edge_index", device, self._edge_index)

    def edge_values(self, device: torch.device) -> torch.Tensor | None:
        """Features (e, k) float32 of the entries, or None."""
        features = self.edge_features
        return None if features is None else self._once("edge_values", device, features.tensor)

    def _once(self, what: str, device: torch.device, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        if (what, device) not in self._on:
            self._on[what, device] = make().to(device)
        return self._on[what, device]

    def _edge_index(self) -> torch.Tensor:
        targets = np.repeat(np.arange(self.num_nodes), np.diff(self.indptr))
        return torch.from_numpy(np.stack([self.indices.astype(np.int64), targets]))

    def _torch_csr(self) -> torch.Tensor:
        values = np.ones(len(self.indices), dtype=np.float32)
        if self.left is not None:
            values *= np.repeat(self.left, np.diff(self.indptr))
        if self.right is not None:
            values *= self.right[self.indices]
        with warnings.catch_warnings():  # torch announces once per process that sparse CSR is in beta
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(
                torch.from_numpy(self.indptr.astype(np.int64)),
                torch.from_numpy(self.indices.astype(np.int64)),
                torch.from_numpy(values),
                size=(self.num_nodes, self.num_sources),
                check_invariants=False,
            )


def propagate(adj: Adjacency, x: Array, hops: int) -> Iterator[Array]:
    """Yield x, A-hat x, ..., A-hat^hops x: hops + 1 arrays (n, d), one at a time.

    numpy in, numpy out; a torch tensor stays on the autograd tape.
    """
    yield x
    for _ in range(hops):
        x = adj @ x if isinstance(x, np.ndarray) else convolve(adj, x)
        yield x


def convolve(adj: Adjacency, x: torch.Tensor) -> torch.Tensor:
    """A-hat x for a torch tensor x (n, d), differentiable in x."""
    return _Convolve.apply(x, adj)


class _Convolve(torch.autograd.Function):
    """y = A-hat x; the gradient of x is A-hat^T times the gradient of y."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, adj: Adjacency) -> torch.Tensor:
        ctx.adj = adj
        return torch.from_numpy(adj @ x.detach().cpu().numpy()).to(x.device)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (grad,) = grads
        return torch.from_numpy(ctx.adj.transposed @ grad.detach().cpu().numpy()).to(grad.device), None


def _csr(rows: np.ndarray, cols: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """CSR pattern with sorted, unique columns per row: counting sort by row, then a sort inside each row."""
    indptr, indices = _counting_sort(rows, cols, n)
    with torch_threads():
        counts = _sort_rows(indptr, indices)
    if counts.sum() == len(indices):
        return indptr, indices
    return _squeeze(indptr, indices, counts)


@contextmanager
def torch_threads() -> Iterator[None]:
    """Run numba with torch's number of threads, and leave torch with it.

    Both share one OpenMP runtime: a numba kernel would otherwise reset torch's threads, and with them the last bits of
    every later sum, so that a resumed run would differ from a straight one.
    """
    threads = torch.get_num_threads()
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _balanced(indptr: np.ndarray, chunks: int = 256) -> np.ndarray:
    """Row boundaries (chunks + 1,) that give every chunk about the same number of edges."""
    targets = np.linspace(0, indptr[-1], chunks + 1)
    bounds = np.searchsorted(indptr, targets).astype(np.int64)
    bounds[0], bounds[-1] = 0, len(indptr) - 1
    return bounds


@numba.njit(cache=True, nogil=True)
def _counting_sort(rows: np.ndarray, cols: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    indptr = np.zeros(n + 1, np.int64)
    for r in rows:
        indptr[r + 1] += 1
    for i in range(n):
        indptr[i + 1] += indptr[i]
    position = indptr[:-1].copy()
    indices = np.empty(len(rows), cols.dtype)
    for k in range(len(rows)):
        indices[position[rows[k]]] = cols[k]
        position[rows[k]] += 1
    return indptr, indices


@numba.njit(cache=True, parallel=True, nogil=True)
def _sort_rows(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Sort every row in place and move its unique columns to the front; returns how many each row has."""
    n = len(indptr) - 1
    counts = np.zeros(n, np.int64)
    for i in numba.prange(n):
        row = indices[indptr[i] : indptr[i + 1]]
        row.sort()
        k = 0
        for p in range(len(row)):
            if p == 0 or row[p] != row[k - 1]:
                row[k] = row[p]
                k += 1
        counts[i] = k
    return counts


@numba.njit(cache=True, nogil=True)
def _squeeze(indptr: np.ndarray, indices: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = len(counts)
    out_indptr = np.zeros(n + 1, np.int64)
    for i in range(n):
        out_indptr[i + 1] = out_indptr[i] + counts[i]
    out = np.empty(out_indptr[n], indices.dtype)
    for i in range(n):
        out[out_indptr[i] : out_indptr[i + 1]] = indices[indptr[i] : indptr[i] + counts[i]]
    return out_indptr, out


@numba.njit(cache=True, nogil=True)
def _insert_diagonal(indptr: np.ndarray, indices: np.ndarray, missing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Add the entry (i, i) to every row with missing[i], keeping columns sorted."""
    n = len(missing)
    out_indptr = np.zeros(n + 1, np.int64)
    for i in range(n):
        out_indptr[i + 1] = out_indptr[i] + indptr[i + 1] - indptr[i] + (1 if missing[i] else 0)
    out = np.empty(out_indptr[n], indices.dtype)
    for i in range(n):
        q = out_indptr[i]
        placed = not missing[i]
        for p in range(indptr[i], indptr[i + 1]):
            if not placed and indices[p] > i:
                out[q] = i
                q += 1
                placed = True
            out[q] = indices[p]
            q += 1
        if not placed:
            out[q] = i
    return out_indptr, out


@numba.njit(cache=True, parallel=True, nogil=True)
def _gather(indptr: np.ndarray, indices: np.ndarray, bounds: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """out[i] = sum of x[j] over the neighbours j of i, in CSR order; chunks are balanced by edges."""
    d = x.shape[1]
    for chunk in numba.prange(len(bounds) - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for p in range(indptr[i], indptr[i + 1]):
                j = indices[p]
                for k in range(d):
                    out[i, k] += x[j, k]
