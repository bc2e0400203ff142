"""A linear head to very many outputs, a row of weights each: only the rows that a batch uses are computed and moved.

GIANT's head: its outputs are clusters, down to single nodes. Weights and the optimiser's two moments take 12 (d + 1)
bytes an output (1.8 GB for 200,000 nodes and d = 768); a step costs what its own outputs cost, however many there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from labeldeconv.graph.task import smoothed_share
from labeldeconv.labels.neighbours import NeighbourOutputs
from labeldeconv.training.moments import MOMENTS, CompactAdamW, lower, raised


class HasHead(Protocol):
    """An artefact with a trained head's weights."""

    @property
    def head(self) -> Path:
        """The file of the weights."""
        ...

    @property
    def content_key(self) -> str:
        """The key of the stage that trained it."""
        ...


class OutputRows(nn.Module):
    """Features (b, d) and outputs (m,) to logits (b, m); gradients are sparse, of the rows (m, d) alone."""

    def __init__(self, dim: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(dim)  # as nn.Linear starts
        self.weight = nn.Parameter(torch.empty(outputs, dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(outputs, 1))

    def forward(self, x: Tensor, outputs: Tensor) -> Tensor:
        """Logits (b, m) of the outputs (m,)."""
        outputs = outputs.to(self.weight.device)
        rows, offsets = (F.embedding(outputs, table, sparse=True) for table in (self.weight, self.bias))
        return x @ rows.T + offsets[:, 0]


@dataclass(frozen=True, eq=False)
class RowsHead:
    """A row for every output, whose bias starts at the output's frequency.

    Without that start the encoder learns the offset first and loses all else on the way.

    Args:
        outputs: how many.
        start: the head of a coarser level, whose rows these begin as; None begins at random.
        parents: for every output the row (outputs,) of `start` to begin as.
    """

    outputs: int
    start: HasHead | None = None
    parents: np.ndarray | None = field(default=None, metadata={"idle": True})  # the key of the targets has the tree

    def build(self, dim: int, targets: nn.Module, nodes: np.ndarray) -> OutputRows:
        """The rows for features of width `dim`; the frequencies are those among `nodes` (m,)."""
        assert isinstance(targets, NeighbourOutputs)
        head = OutputRows(dim, self.outputs)
        with torch.no_grad():
            head.bias[:, 0] = smoothed_share(targets.counts(nodes), len(nodes)).logit()
            if self.start is not None and self.parents is not None:
                head.weight.copy_(load_file(self.start.head)["weight"][torch.from_numpy(self.parents.astype(np.int64))])
        return head


class RowAdamW(CompactAdamW):
    """AdamW that also takes sparse gradients: rows with one move, by moments and a count of steps of their own.

    Rows never decay. Where every row has a gradient at every step it is AdamW without decay.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; sparse gradients are gone afterwards."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter.grad.is_sparse:
                    self._move_rows(parameter, group)
                    parameter.grad = None
        return super().step(closure)

    def _move_rows(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(len(parameter), dtype=torch.float32, device=parameter.device)
            state.update(self.start(parameter))
        assert parameter.grad is not None
        given = parameter.grad.coalesce()
        rows, gradient = given.indices()[0], given.values()
        beta1, beta2 = group["betas"]
        moments = [raised(state, name, rows) for name in MOMENTS]
        first = moments[0].lerp_(gradient, 1 - beta1)
        second = moments[1].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        count = state["step"][rows][:, None] + 1
        even1, even2 = (1 - beta**count for beta in (beta1, beta2))  # what zeros at the start have taken
        parameter[rows] -= group["lr"] * (first / even1) / ((second / even2).sqrt() + group["eps"])
        state["step"][rows] = count[:, 0]
        for name, moment in zip(MOMENTS, moments, strict=True):
            lower(state, name, rows, moment, count)
