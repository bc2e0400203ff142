"""SCR: predictions of unlabelled nodes should agree with the averaged ones of a slowly moving teacher.

loss += weight * mean over confident nodes of D(p, sharpen(t)), where p is the GNN's prediction and t the mean of some
predictions of the teacher under dropout. The teacher is the moving average of the GNN (SCR-m, mean teacher). D is
KL(p || t) = sum_c p_c log(p_c / t_c), as in the code of SCR, or the squared distance. Who is confident is asked of t at
every step; the code of SCR asks the GNN, every few epochs.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from labeldeconv.gnns.base import GNN
from labeldeconv.graph.task import Task
from labeldeconv.settings.models import ConsistencyConfig
from labeldeconv.stages import ranks
from labeldeconv.training.feed import Batch

FLOOR = 1e-8  # added to a sharpened probability before its logarithm, which may be 0 in float32


class Consistency:
    """The consistency term and the teacher it needs.

    Args:
        gnn: the student; the teacher starts as its copy.
        config: weight, temperature, thresholds and speed.
        task: multi-class.
    """

    def __init__(self, gnn: GNN, config: ConsistencyConfig, task: Task) -> None:
        self.config, self.task = config, task
        self.teacher = copy.deepcopy(gnn).requires_grad_(False).train()  # with dropout: its predictions are averaged

    def loss(self, gnn: GNN, batch: Batch, epoch: int, progress: float) -> Tensor:
        """Weighted scalar loss on a batch of nodes without labels; 0 during the warm-up."""
        c = self.config
        if epoch <= c.warmup_epochs:
            return torch.zeros((), device=next(gnn.parameters()).device)
        with torch.no_grad():
            likely = sum(batch.logits(self.teacher).float().softmax(-1) for _ in range(c.predictions)) / c.predictions
            assert isinstance(likely, Tensor)  # (b, c)
            threshold = c.threshold + (c.final_threshold - c.threshold) * progress
            sure = (likely.max(-1).values > threshold).float()
            sure_ones = sure.sum()
            ranks.add_up(sure_ones)  # where ranks have shares of the batch
            sharp = self.task.normalize(likely.pow(1.0 / c.temperature))
        log_p = batch.logits(gnn).float().log_softmax(-1)
        if c.distance == "kl":
            apart = (log_p.exp() * (log_p - (sharp + FLOOR).log())).sum(-1)  # (b,)
        else:
            apart = (log_p.exp() - sharp).square().sum(-1)
        return c.weight * (apart * sure).sum() / sure_ones.clamp_min(1)

    @torch.no_grad()
    def follow(self, gnn: GNN) -> None:
        """Move the teacher towards the GNN after a step; counters and statistics are copied."""
        for mine, its in zip(self.teacher.parameters(), gnn.parameters(), strict=True):
            mine.lerp_(its, 1.0 - self.config.teacher_decay)
        for buffer, its_buffer in zip(self.teacher.buffers(), gnn.buffers(), strict=True):
            buffer.copy_(its_buffer)
