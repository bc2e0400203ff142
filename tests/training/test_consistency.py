"""SCR: the loss by hand, the warm-up, and the teacher that follows."""

import numpy as np
import pytest
import torch
from torch import nn

from labeldeconv.gnns.gcn import GCN
from labeldeconv.graph.task import Task
from labeldeconv.settings.models import ConsistencyConfig
from labeldeconv.training.consistency import Consistency
from labeldeconv.training.feed import Batch

TASK = Task("multiclass", 2)
# The teacher is sure of node 0 (0.9), not of node 1 (0.6).
TEACHER = torch.tensor([[0.9, 0.1], [0.6, 0.4]]).log()
STUDENT = torch.tensor([[0.5, 0.5], [0.2, 0.8]]).log()


class Two(nn.Module):
    """Logits of a student that is told apart from its teacher by whether it learns."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def logits(self):
        return STUDENT + 0 * self.weight if self.weight.requires_grad else TEACHER


BATCH = Batch(np.arange(2), lambda gnn: gnn.logits())


def config(**settings):
    defaults = {"weight": 2.0, "temperature": 0.5, "threshold": 0.8, "final_threshold": 0.5, "warmup_epochs": 3}
    return ConsistencyConfig(**{**defaults, **settings})


def test_loss_by_hand():
    """Node 0 alone: sharpened (0.81, 0.01) / 0.82 against (0.5, 0.5), so log 2, twice."""
    gnn = Two()
    loss = Consistency(gnn, config(), TASK).loss(gnn, BATCH, 4, progress=0.0)
    assert loss.item() == pytest.approx(2.0 * np.log(2), rel=1e-5)


def test_thresholds_move_with_progress():
    """At the end the threshold is 0.5: node 1 counts too, with (0.36, 0.16) / 0.52 against (0.2, 0.8)."""
    gnn = Two()
    loss = Consistency(gnn, config(), TASK).loss(gnn, BATCH, 4, progress=1.0)
    second = -(0.36 * np.log(0.2) + 0.16 * np.log(0.8)) / 0.52
    assert loss.item() == pytest.approx(2.0 * (np.log(2) + second) / 2, rel=1e-5)


def test_nothing_during_the_warm_up_or_where_nobody_is_sure():
    gnn = Two()
    assert Consistency(gnn, config(), TASK).loss(gnn, BATCH, 3, 0.0).item() == 0.0
    strict = config(threshold=0.99, final_threshold=0.99)
    assert Consistency(gnn, strict, TASK).loss(gnn, BATCH, 4, 0.0).item() == 0.0


def test_the_teacher_follows_slowly_and_never_learns():
    torch.manual_seed(0)
    gnn = GCN(3, 2, hidden=4)
    consistency = Consistency(gnn, config(teacher_decay=0.75), TASK)
    start = {k: v.clone() for k, v in consistency.teacher.state_dict().items()}
    with torch.no_grad():
        for p in gnn.parameters():
            p += 1.0
        gnn.norms[0].running_mean += 5.0
    consistency.follow(gnn)
    for name, p in consistency.teacher.named_parameters():
        torch.testing.assert_close(p, start[name] + 0.25)
        assert not p.requires_grad
    torch.testing.assert_close(consistency.teacher.norms[0].running_mean, gnn.norms[0].running_mean)
    assert not consistency.teacher.training
