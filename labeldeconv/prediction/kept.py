"""Activations of the old nodes after every step but the last: computed once, kept in the cache, memory-mapped.

They cost n times the width of a step in float32, 65 MB for a GCN of two layers on Debian's 63,620 packages, and save
an exact prediction whatever new nodes do not change, a fast one everything but the new nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from labeldeconv.gnns.base import Step
from labeldeconv.progress import bar
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.sampling import row_blocks, sample_rows
from labeldeconv.stages.stage import Artefact, Folder, open_array, stage
from labeldeconv.training.layerwise import BLOCK_BYTES, BLOCK_ENTRIES, take_rows


class HasSteps(Protocol):
    """Steps, what goes into them (n, d), the graph they go along, and a key of all of it."""

    @property
    def steps(self) -> Sequence[Step]:
        """The steps, first to last."""
        ...

    @property
    def inputs(self) -> np.ndarray:
        """Inputs of the first one (n, d)."""
        ...

    @property
    def adj(self) -> Adjacency:
        """A-hat (n, n)."""
        ...

    @property
    def content_key(self) -> str:
        """Hash of all that decides about the activations."""
        ...


@dataclass(frozen=True, eq=False)
class Activations(Artefact):
    """The folder of step-1.npy, step-2.npy, ..., each (n, .) float32, and how many there are."""

    folder: Path
    count: int

    def open(self) -> list[np.ndarray]:
        """The outputs of the steps 1..count, memory-mapped."""
        return [open_array(self.folder / f"step-{i + 1}.npy") for i in range(self.count)]


@stage(version=1)
def activations(out: Folder, model: HasSteps) -> Activations:
    """Outputs of all steps but the last, of all nodes, in blocks of rows."""
    h, adj = model.inputs, model.adj
    folder = out.path / "steps"
    folder.mkdir(exist_ok=True)
    everyone = np.arange(adj.num_nodes)
    count = max(0, len(model.steps) - 1)
    with torch.inference_mode(), bar(out.label, total=count * adj.num_nodes) as advance:
        for i, step in enumerate(model.steps[:count]):
            written: np.ndarray | None = None
            place = 0
            for block in row_blocks(adj, everyone, BLOCK_ENTRIES, max(1, BLOCK_BYTES // (4 * h.shape[1]))):
                sources, rows = sample_rows(adj, block, None)
                part = step(take_rows(h, sources), rows).float().numpy()
                if written is None:
                    shape = (adj.num_nodes, part.shape[1])
                    path = folder / f"step-{i + 1}.npy"
                    written = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
                written[place : place + len(part)] = part
                place += len(part)
                advance(len(part))
            assert written is not None
            h = written
    return Activations(folder, count)
