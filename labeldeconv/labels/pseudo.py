"""(Pseudo) labels Y: the true label on train nodes, softened predictions of a GNN or an encoder elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np
import torch

from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import Task
from labeldeconv.stages.keys import Reads
from labeldeconv.stages.memory_limit import check_room
from labeldeconv.stages.stage import Artefact, Folder, stage


class HasLogits(Protocol):
    """An artefact with predictions: logits (n, c)."""

    @property
    def logits(self) -> np.ndarray:
        """Logits (n, c)."""
        ...

    @property
    def content_key(self) -> str:
        """The key of the stage that made it."""
        ...


@dataclass(frozen=True, eq=False)
class Labels(Artefact):
    """Y `values` (n, c) float32."""

    values: np.ndarray


@stage(version=1)
def pseudo(
    out: Folder,
    predicted: HasLogits | None,
    graph: Annotated[AttributedGraph, Reads("train_labels", "split", "task", "num_classes")],
    temperature: float = 1.0,
) -> Labels:
    """Y (n, c): true on train nodes, softmax(logits / temperature) or sigmoid elsewhere.

    Without predictions every node must be a train node, as in the inductive setting; entries that are missing there are
    the mean of the others. Labels of validation and test nodes cannot be read here.
    """
    task = Task.of(graph)
    advice = "Y and two copies of it take it: take part of the graph (--max-nodes)"
    check_room(out.label, 12 * len(graph.split.roles) * graph.num_classes, advice)
    if predicted is not None:
        return Labels(pseudo_labels(task, graph.train_labels, graph.split.train, predicted.logits, temperature))
    Y = task.targets(graph.train_labels)
    return Labels(np.where(np.isnan(Y), np.nan_to_num(np.nanmean(Y, axis=0)), Y))


def pseudo_labels(
    task: Task, labels: np.ndarray, train: np.ndarray, logits: np.ndarray, temperature: float = 1.0
) -> np.ndarray:
    """Y (n, c) float32 from labels (n,) or (n, c), train node ids and logits (n, c).

    Entries missing on train nodes are predicted too. Labels of other nodes are never read.
    """
    Y = task.probabilities(torch.from_numpy(np.array(logits, dtype=np.float32)), temperature).numpy()
    true = task.targets(np.asarray(labels[train]))
    Y[train] = np.where(np.isnan(true), Y[train], true)
    return Y
