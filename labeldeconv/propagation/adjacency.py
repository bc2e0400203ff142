"""A-hat and propagate: the one graph convolution of the project.

K_i = A-hat^i Y (eqn:preprocess), the hop features of GAMLP and SAGN and the spectral GNNs are all `propagate`.
A-hat = diag(left) P diag(right) with a binary CSR pattern P, so that 1/degree is never stored per edge: row-normalised
(D^-1 A, left = 1/deg) or symmetric (D^-1/2 A D^-1/2). A row without neighbours gets itself as its only neighbour, so
that K_i of an isolated node is its K_0.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numba
import numpy as np
import torch

from labeldeconv.propagation.edge_features import EdgeFeatures
from labeldeconv.propagation.kernel.csr import build_csr, transpose_csr
from labeldeconv.propagation.kernel.gather import gather, padded, rows_aligned
from labeldeconv.settings.models import AdjacencyConfig

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
        indptr, indices = build_csr(edges[1], edges[0], num_nodes, config.undirected, config.self_loops)
        indptr, indices = with_own_neighbour(indptr, indices)
        left, right = scales(np.diff(indptr), config.normalization)
        return cls(indptr, indices, left, right, config.undirected)

    @staticmethod
    def building_bytes(num_nodes: int, num_edges: int, config: AdjacencyConfig) -> int:
        """Memory at the peak of `from_edges`: keys of 8 bytes an entry and the columns sorted from them, and row ends.

        `held_bytes` are left of it.
        """
        return 12 * _entries(num_nodes, num_edges, config) + 32 * num_nodes

    @staticmethod
    def held_bytes(num_nodes: int, num_edges: int, config: AdjacencyConfig) -> int:
        """Memory of an A-hat at most: columns of 4 bytes, row ends and factors."""
        return 4 * _entries(num_nodes, num_edges, config) + 16 * num_nodes

    @classmethod
    def identity(cls, num_nodes: int) -> Adjacency:
        """I (n, n): every node is its own and only neighbour."""
        return cls(np.arange(num_nodes + 1), np.arange(num_nodes, dtype=np.int32), None, None, symmetric=True)

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
        indptr, indices = transpose_csr(self.indptr, self.indices, self.num_sources)
        return Adjacency(indptr, indices, self.right, self.left, False, self.num_nodes)

    def __matmul__(self, x: np.ndarray) -> np.ndarray:
        """A-hat x (t, d) for x (s, d) float32, float64, float16 or uint16 fixed point.

        Bit-equal for any number of threads. The result is of the type of x, but float32 for float16 under factors of
        columns, which would round once more. Its rows are on cache lines of their own, so that the next product reads
        it without a copy.
        """
        if x.dtype == np.float64:
            return self._in_float64(x)
        return gather(self.indptr, self.indices, self.left, _aligned(x, self.right))

    def rows_of(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The entries of the rows `nodes` (t,), row after row: indptr (t + 1,) and indices."""
        counts = self.indptr[nodes + 1] - self.indptr[nodes]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return indptr, self.indices[np.repeat(self.indptr[nodes] - indptr[:-1], counts) + np.arange(indptr[-1])]

    def _in_float64(self, x: np.ndarray) -> np.ndarray:
        out = np.zeros((self.num_nodes, x.shape[1]))
        _gather_float64(self.indptr, self.indices, x if self.right is None else x * self.right[:, None], out)
        return out if self.left is None else out * self.left[:, None]

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


def _entries(num_nodes: int, num_edges: int, config: AdjacencyConfig) -> int:
    """Entries of A-hat at most, before duplicates go."""
    return num_edges * (2 if config.undirected else 1) + (num_nodes if config.self_loops else 0)


def with_own_neighbour(indptr: np.ndarray, indices: np.ndarray, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The same rows, those of the nodes from `first` on, but each without an entry gets its node."""
    missing = np.diff(indptr) == 0
    return _insert_diagonal(indptr, indices, missing, first) if missing.any() else (indptr, indices)


def scales(degree: np.ndarray, normalization: str) -> tuple[np.ndarray, np.ndarray | None]:
    """The factors (n,) float32 of rows and of columns of A-hat, from the entries of every row (n,)."""
    if normalization == "row":
        return (1.0 / degree.astype(np.float64)).astype(np.float32), None
    # Columns carry their own in-degree's root; on a directed graph that is the row degree of that node.
    root = (1.0 / np.sqrt(degree.astype(np.float64))).astype(np.float32)
    return root, root


def propagate(adj: Adjacency, x: Array, hops: int) -> Iterator[Array]:
    """Yield x, A-hat x, ..., A-hat^hops x: hops + 1 arrays (n, d), one at a time.

    numpy in, numpy out; a torch tensor stays on the autograd tape.
    """
    yield x
    for _ in range(hops):
        x = adj @ x if isinstance(x, np.ndarray) else convolve(adj, x)
        yield x


def convolve(adj: Adjacency, x: torch.Tensor) -> torch.Tensor:
    """A-hat x for a torch tensor x (n, d), differentiable: the own kernel on a CPU, torch's sparse one elsewhere.

    A-hat is float32, and so is the result for x of lower precision, under autocast too: sums over neighbours are long.
    """
    with torch.autocast(x.device.type, enabled=False):
        x = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
        return _Convolve.apply(x, adj) if x.device.type == "cpu" else adj.on(x.device) @ x


class _Convolve(torch.autograd.Function):
    """y = A-hat x; the gradient of x is A-hat^T times the gradient of y."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, adj: Adjacency) -> torch.Tensor:
        ctx.adj = adj
        return torch.from_numpy(adj @ x.detach().numpy())

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (grad,) = grads
        return torch.from_numpy(ctx.adj.transposed @ grad.detach().numpy()), None


def _aligned(x: np.ndarray, factor: np.ndarray | None) -> np.ndarray:
    """x (s, d), times factor (s,), with rows on cache lines of their own: x itself where that is so already."""
    if factor is None and rows_aligned(x):
        return x
    kept = x.dtype == np.uint16 or (x.dtype == np.float16 and factor is None)
    out = padded(len(x), x.shape[1], x.dtype if kept else np.float32)
    np.multiply(x, 1 if factor is None else factor[:, None], out=out, casting="unsafe")
    return out


@numba.njit(cache=True, nogil=True)
def _insert_diagonal(
    indptr: np.ndarray, indices: np.ndarray, missing: np.ndarray, first: int
) -> tuple[np.ndarray, np.ndarray]:
    """Add the entry (i, first + i) to every row with missing[i], keeping columns sorted."""
    n = len(missing)
    out_indptr = np.zeros(n + 1, np.int64)
    for i in range(n):
        out_indptr[i + 1] = out_indptr[i] + indptr[i + 1] - indptr[i] + (1 if missing[i] else 0)
    out = np.empty(out_indptr[n], indices.dtype)
    for i in range(n):
        q = out_indptr[i]
        placed = not missing[i]
        for p in range(indptr[i], indptr[i + 1]):
            if not placed and indices[p] > first + i:
                out[q] = first + i
                q += 1
                placed = True
            out[q] = indices[p]
            q += 1
        if not placed:
            out[q] = first + i
    return out_indptr, out


@numba.njit(cache=True, nogil=True)
def _gather_float64(indptr: np.ndarray, indices: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """out[i] = sum of x[j] over the neighbours j of i: for checks, not for speed."""
    for i in range(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            for k in range(x.shape[1]):
                out[i, k] += x[indices[p], k]
