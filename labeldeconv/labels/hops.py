"""Hop labels K_i = A-hat^i Y, i = 0..N (eqn:preprocess): computed once, node-major (n, h, c) with h = N + 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.labels.kept_hops import KeptHops
from labeldeconv.labels.pseudo import Labels
from labeldeconv.progress import bar, logger
from labeldeconv.propagation.adjacency import Adjacency, propagate
from labeldeconv.propagation.changed_hops import write_changed_hops
from labeldeconv.propagation.hop_blocks import RowBlock, blocks_fit, write_hops_together
from labeldeconv.propagation.outofcore import block_bytes, write_hops
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.stages import ranks
from labeldeconv.stages.files import map_array
from labeldeconv.stages.keys import Idle, Reads
from labeldeconv.stages.memory_limit import check_room
from labeldeconv.stages.shared_arrays import rows_of_all
from labeldeconv.stages.stage import Artefact, Folder, stage


@dataclass(frozen=True, eq=False)
class HopLabels(Artefact):
    """K `values` (n, h, c): uint16 fixed point, which `dequantize` reads, or float32."""

    values: np.ndarray


def by_blocks(arguments: Mapping[str, Any]) -> bool:
    """Whether ranks make hop labels together."""
    graph = arguments["graph"]
    return blocks_fit(graph.num_nodes, graph.edges.shape[1], arguments["adjacency"])


@stage(version=2, parallel=by_blocks)
def hops(
    out: Folder,
    Y: Labels,
    graph: Annotated[AttributedGraph, Reads("edges", "num_nodes")],
    adjacency: AdjacencyConfig,
    number: int,
    store: str = "uint16",
    backward: bool = False,
    kept: Annotated[KeptHops | None, Idle] = None,
) -> HopLabels:
    """K_i = A-hat^i Y for i = 0..number (Algorithm 1, line 4); `backward` turns all edges round first.

    Rows that cannot have changed since an earlier run are copied from its `kept` K, with the same result to the bit.
    """
    edges = graph.edges[::-1] if backward else graph.edges
    size = (graph.num_nodes, edges.shape[1], adjacency)
    path, advice = out.path / "values.npy", "A-hat takes it: labels.adjacency.undirected=false halves its entries"
    if ranks.world() > 1:
        check_room(out.label, RowBlock.building_bytes(*size) + block_bytes(graph.num_nodes), advice)
        block = RowBlock.from_edges(edges, graph.num_nodes, adjacency)
        return HopLabels(write_hop_labels_together(block, Y.values, number, path, store))
    needed = max(Adjacency.building_bytes(*size), Adjacency.held_bytes(*size) + block_bytes(graph.num_nodes))
    check_room(out.label, needed, advice)
    adj = Adjacency.from_edges(edges, graph.num_nodes, adjacency)
    if kept is not None:
        for earlier in kept.found(hops, backward, adjacency=adjacency, number=number, store=store):
            K = map_array(path, (graph.num_nodes, number + 1, Y.values.shape[1]), kept_type(adj, store))
            count = write_changed_hops(adj, adjacency, edges, Y.values, K, earlier)
            if count is not None:
                rows = f"{count:,} of {K.shape[0] * K.shape[1]:,} rows of hop labels"
                logger.info("%s: %s computed anew, the others from %s", out.label, rows, kept.run)
                return HopLabels(K)
            logger.info("%s: all hop labels are computed, since half or more may differ from %s", out.label, kept.run)
    return HopLabels(write_hop_labels(adj, Y.values, number, path, store))


def hop_labels(edges: np.ndarray | torch.Tensor, Y: np.ndarray | torch.Tensor, hops: int) -> np.ndarray:
    """K (n, hops + 1, c) float32 in memory, from edges (2, e), used both ways, and labels Y (n, c)."""
    Y = np.asarray(Y, dtype=np.float32)
    return np.stack(list(propagate(Adjacency.from_edges(np.asarray(edges), len(Y)), Y, hops)), axis=1)


def write_hop_labels(adj: Adjacency, Y: np.ndarray, hops: int, path: Path, store: str = "uint16") -> np.ndarray:
    """Write K (n, hops + 1, c) to a .npy file: float32, or uint16 fixed point that `dequantize` reads.

    uint16 is for labels in [0, 1] and a row-normalised A-hat, whose products stay there; float32 is taken for others.
    """
    n, c = Y.shape
    K = map_array(path, (n, hops + 1, c), kept_type(adj, store))
    with bar("hop labels", total=(hops + 1) * c, unit="columns") as advance:
        write_hops(adj, Y, hops, K, path.parent, advance)
    K.flush()
    return K


def write_hop_labels_together(block: RowBlock, Y: np.ndarray, hops: int, path: Path, store: str) -> np.ndarray:
    """The same by all ranks, each its own rows of K: equal to the bit."""
    n, c = Y.shape
    with (
        rows_of_all(path, (n, hops + 1, c), kept_type(block, store), block.rows) as own,
        bar("hop labels", total=(hops + 1) * c, unit="columns") as advance,
    ):
        write_hops_together(block, Y, hops, own, path.parent, advance)
    return np.load(path, mmap_mode="r", allow_pickle=False)


def kept_type(adj: Adjacency | RowBlock, store: str) -> np.dtype:
    """The type of K: fixed point only where it is asked for and A-hat is normalised by rows."""
    fits = adj.right is None and adj.left is not None
    return np.dtype(np.uint16 if store == "uint16" and fits else np.float32)
