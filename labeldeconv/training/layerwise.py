"""Inference layer by layer over the whole graph: every step of a GNN over blocks of rows, never sampled.

Memory is set by the block; what a layer gives (n, .) goes to a memory map. The next block is read in a thread while
this one is computed. A step works on all sources of its block, and on a dense graph every block has nearly all nodes as
sources, so blocks are as large as memory allows: 79 M entries of ogbn-proteins in 19 blocks.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from labeldeconv.encoders.tokens import ahead
from labeldeconv.gnns.base import GNN
from labeldeconv.gnns.workload import keeps_messages
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.hop_rows import read_rows
from labeldeconv.propagation.outofcore import release
from labeldeconv.propagation.sampling import row_blocks, sample_rows
from labeldeconv.stages import ranks
from labeldeconv.stages.files import scratch
from labeldeconv.stages.shared_arrays import shared_array

BLOCK_ENTRIES = 1 << 22  # entries of A-hat per block: 1.3 GB for GAT with 6 heads and edge features, 320 bytes each
BLOCK_BYTES = 1 << 28  # inputs of a block, as float32; of two blocks at a time
FIXED = 128 << 20  # bytes of training or inference whatever the graph, beside what a limit always spares
LARGE = 1 << 22  # entries of A-hat from which a trained GNN is evaluated layer by layer: ogbn-arxiv has 2.5 million


def infer(
    gnn: GNN, features: np.ndarray, adj: Adjacency, nodes: np.ndarray, folder: Path, device: torch.device
) -> Tensor:
    """Logits (m, c) of `nodes` (m,), distinct, from features (n, d).

    Where ranks of one machine ask together, each computes its rows of every layer, into maps that all of them read.
    """
    steps = gnn.steps()
    assert steps is not None
    h = features
    everyone = np.arange(adj.num_nodes)
    for i, step in enumerate(steps):
        targets = nodes if i == len(steps) - 1 else everyone
        out: np.ndarray | None = None
        place, end = _own_rows(adj, targets)
        blocks = row_blocks(adj, targets[place:end], BLOCK_ENTRIES, max(1, BLOCK_BYTES // (4 * h.shape[1])))
        for rows, x in ahead(partial(_read, adj, h), blocks):
            part = step(x.to(device), rows).float().cpu().numpy()
            if out is None:
                out = _layer(folder, i, (len(targets), part.shape[1]))
            out[place : place + len(part)] = part
            release(out, place, place + len(part))
            place += len(part)
        out = _layer(folder, i, (0, 0)) if out is None else out  # no row is this rank's: it opens that of rank 0
        if ranks.world() > 1:
            ranks.meet(f"layer {i}")  # the next one reads rows of all
            if ranks.leads():
                _file(folder, i).unlink()
        h = out
    return torch.from_numpy(np.array(h))


def inference_bytes(gnn: GNN, num_nodes: int, entries: int) -> float:
    """Memory of `infer` at its peak: inputs of two blocks, what a step makes of one, and its entries.

    With a GCN of width 256 it took 325 MiB on 30,000 nodes and 624 on 100,000: 4.3 times a layer's outputs, and 200 MiB
    that do not grow.
    """
    width = max(gnn.in_dim, *(p.shape[0] for p in gnn.parameters() if p.ndim == 2))
    attention = 320 if keeps_messages(gnn) else 16  # bytes of an entry
    return FIXED + 5 * min(BLOCK_BYTES, 4 * num_nodes * width) + attention * min(BLOCK_ENTRIES, entries)


def _own_rows(adj: Adjacency, targets: np.ndarray) -> tuple[int, int]:
    """The first of the targets (m,) that this rank computes and the one behind its last: equal numbers of entries."""
    if ranks.world() == 1:
        return 0, len(targets)
    ends = np.cumsum(adj.indptr[targets + 1] - adj.indptr[targets] + 1)
    cuts = np.searchsorted(ends, np.linspace(0, ends[-1] if len(ends) else 0, ranks.world() + 1))
    cuts[0], cuts[-1] = 0, len(targets)
    cuts[1] = max(cuts[1], min(1, len(targets)))  # rank 0, which makes the map, knows its width from a row
    cuts = np.maximum.accumulate(cuts)
    return int(cuts[ranks.rank()]), int(cuts[ranks.rank() + 1])


def _layer(folder: Path, i: int, shape: tuple[int, int]) -> np.ndarray:
    """A map (m, d) of what layer i gives, one for all ranks; only rank 0 needs to know its shape."""
    if ranks.world() > 1:
        return shared_array(_file(folder, i), shape, np.dtype(np.float32))
    return scratch(folder, f"layer-{i}", shape, np.dtype(np.float32))


def _file(folder: Path, i: int) -> Path:
    return folder / f"layer-{i}.tmp.npy"


def take_rows(x: np.ndarray, ids: np.ndarray) -> Tensor:
    """x[ids] (m, d) as float32, from x (n, d) perhaps on disk."""
    if x.dtype == np.float16:
        return torch.from_numpy(read_rows(x[:, None], ids)[:, 0])
    return torch.from_numpy(np.asarray(x[ids], dtype=np.float32))


def _read(adj: Adjacency, h: np.ndarray, ids: np.ndarray) -> tuple[Adjacency, Tensor]:
    """The rows (t, s) of a block and its inputs (s, d)."""
    sources, rows = sample_rows(adj, ids, None)
    return rows, take_rows(h, sources)
