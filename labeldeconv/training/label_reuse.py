"""Label reuse: a GNN that reads labels is shown those of some train nodes, and its own predictions of all other nodes.

Every epoch shows a new random share of the train labels and learns from the other train nodes, so that no node is
taught the label that it reads. Before the pass with a gradient the GNN predicts some times without one, and the
predictions take the place of all labels that are not shown. At the end all train labels are shown. Labels of validation
and test nodes never are. From "Bag of Tricks for Node Classification" (Wang et al., 2021), as in the code of RevGAT.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from labeldeconv.gnns.base import GNN
from labeldeconv.graph.task import Task
from labeldeconv.settings.models import LabelReuseConfig
from labeldeconv.training.feed import Feed


@dataclass(frozen=True, eq=False)
class LabelReuse:
    """Sets the label inputs (n, c) of a feed of the whole graph.

    Args:
        task: what turns labels into inputs, and logits into probabilities.
        labels: (n,) or (n, c); only those of the train nodes are read.
        train: ids (m,) of the train nodes.
        config: how much is shown, and how often predictions are fed back.
    """

    task: Task
    labels: np.ndarray
    train: np.ndarray
    config: LabelReuseConfig

    def hide(self, gnn: GNN, feed: Feed, nodes: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Show some train labels, and return those of `nodes` (m,) to learn from: all that are not shown.

        At least one train node stays hidden.
        """
        chosen = generator.random(len(self.train)) < self.config.shown
        chosen[generator.integers(len(chosen))] &= not chosen.all()
        shown = self.train[chosen]
        self.show(gnn, feed, shown)
        return nodes[~np.isin(nodes, shown)]

    def show(self, gnn: GNN, feed: Feed, shown: np.ndarray) -> None:
        """Set the label inputs: labels of the train nodes `shown` (k,), predictions, by the GNN as it is, of others."""
        assert np.isin(shown, self.train).all(), "labels of train nodes only"
        everyone = np.arange(len(self.labels))
        inputs = np.zeros((len(everyone), self.task.num_classes), dtype=np.float32)
        inputs[shown] = np.nan_to_num(self.task.targets(self.labels[shown]))
        others = np.setdiff1d(everyone, shown)
        feed.label_inputs = inputs
        for _ in range(self.config.iterations):
            with torch.no_grad():
                likely = self.task.probabilities(feed.predict(gnn, others).float())
            inputs[others] = likely.cpu().numpy()
