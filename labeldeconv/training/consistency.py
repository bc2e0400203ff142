"""SCR: predictions of unlabelled nodes should agree with those of a slowly moving teacher.

loss += weight * mean over confident nodes of l(GNN, sharpen(teacher)). The teacher is the moving average of the GNN
(SCR-m, mean teacher), evaluated without dropout on the same batch.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from labeldeconv.gnns.base import GNN
from labeldeconv.graph.task import Task
from labeldeconv.settings.models import ConsistencyConfig
from labeldeconv.training.feed import Batch


class Consistency:
    """The consistency term and the teacher it needs.

    Args:
        gnn: the student; the teacher starts as its copy.
        config: weight, temperature, thresholds and speed.
        task: multi-class.
    """

    def __init__(self, gnn: GNN, config: ConsistencyConfig, task: Task) -> None:
        self.config, self.task = config, task
        self.teacher = copy.deepcopy(gnn).requires_grad_(False).eval()

    def loss(self, gnn: GNN, batch: Batch, epoch: int, progress: float) -> Tensor:
        """Weighted scalar loss on a batch of nodes without labels; 0 during the warm-up."""
        c = self.config
        if epoch <= c.warmup_epochs:
            return torch.zeros((), device=next(gnn.parameters()).device)
        with torch.no_grad():
            likely = batch.logits(self.teacher).softmax(-1)  # (b, c)
            threshold = c.threshold + (c.final_threshold - c.threshold) * progress
            sure = (likely.max(-1).values > threshold).float()
            sharp = self.task.normalize(likely.pow(1.0 / c.temperature))
        return c.weight * (self.task.loss(batch.logits(gnn), sharp) * sure).sum() / sure.sum().clamp_min(1)

    @torch.no_grad()
    def follow(self, gnn: GNN) -> None:
        """Move the teacher towards the GNN after a step; counters and statistics are copied."""
        for mine, its in zip(self.teacher.parameters(), gnn.parameters(), strict=True):
            mine.lerp_(its, 1.0 - self.config.teacher_decay)
        for buffer, its_buffer in zip(self.teacher.buffers(), gnn.buffers(), strict=True):
            buffer.copy_(its_buffer)
