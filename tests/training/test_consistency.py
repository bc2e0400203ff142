"""SCR: the loss by hand, the warm-up, and the teacher that follows."""

import numpy as np
import pytest
import torch
from torch import nn

from labeldeconv.gnns.gcn import GCN
from labeldeconv.gnns.sagn import SAGN
from labeldeconv.graph.task import Task
from labeldeconv.settings.models import ConsistencyConfig
from labeldeconv.training.consistency import Consistency
from labeldeconv.training.feed import Batch

TASK = Task("multiclass", 2)
# The teacher is sure of node 0 (0.9), not of node 1 (0.6).
TEACHER = torch.tensor([[0.9, 0.1], [0.6, 0.4]]).log()
STUDENT = torch.tensor([[0.5, 0.5], [0.2, 0.8]]).log()


class Two(nn.Module):
    """Logits of a student that is told apart from its teacher by whether it learns; a teacher gives `said` in turn."""

    def __init__(self, said=(TEACHER,)):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.said, self.asked = said, 0

    def logits(self):
        if self.weight.requires_grad:
            return STUDENT + 0 * self.weight
        self.asked += 1
        return self.said[(self.asked - 1) % len(self.said)]


BATCH = Batch(np.arange(2), lambda gnn: gnn.logits())


def config(**settings):
    defaults = {"weight": 2.0, "temperature": 0.5, "threshold": 0.8, "final_threshold": 0.5, "warmup_epochs": 3}
    return ConsistencyConfig(**{**defaults, **settings})


def test_loss_by_hand():
    """Node 0 alone: KL of (0.5, 0.5) from the sharpened (0.81, 0.01) / 0.82, twice."""
    gnn = Two()
    loss = Consistency(gnn, config(), TASK).loss(gnn, BATCH, 4, progress=0.0)
    kl = 0.5 * np.log(0.5 / (0.81 / 0.82)) + 0.5 * np.log(0.5 / (0.01 / 0.82))
    assert loss.item() == pytest.approx(2.0 * kl, rel=1e-5)


def test_squared_distance_by_hand():
    gnn = Two()
    loss = Consistency(gnn, config(distance="mse"), TASK).loss(gnn, BATCH, 4, progress=0.0)
    apart = (0.5 - 0.81 / 0.82) ** 2 + (0.5 - 0.01 / 0.82) ** 2
    assert loss.item() == pytest.approx(2.0 * apart, rel=1e-5)


def test_thresholds_move_with_progress():
    """At the end the threshold is 0.5: node 1 counts too, with (0.36, 0.16) / 0.52 against (0.2, 0.8)."""
    gnn = Two()
    loss = Consistency(gnn, config(), TASK).loss(gnn, BATCH, 4, progress=1.0)
    sharp = torch.tensor([[0.81, 0.01], [0.36, 0.16]])
    sharp /= sharp.sum(1, keepdim=True)
    torch.testing.assert_close(loss, 2.0 * nn.functional.kl_div(sharp.log(), STUDENT.exp(), reduction="batchmean"))


def test_predictions_of_the_teacher_are_averaged():
    """(0.9, 0.1) and (0.7, 0.3): node 0 is taught (0.8, 0.2), sharpened; of the average it must be sure, too."""
    said = (TEACHER, torch.tensor([[0.7, 0.3], [0.6, 0.4]]).log())
    for threshold, taught in ((0.79, True), (0.81, False)):
        gnn = Two(said)
        consistency = Consistency(gnn, config(threshold=threshold, predictions=2, final_threshold=threshold), TASK)
        loss = consistency.loss(gnn, BATCH, 4, 0.0)
        kl = 0.5 * np.log(0.5 / (0.64 / 0.68)) + 0.5 * np.log(0.5 / (0.04 / 0.68))
        assert loss.item() == pytest.approx(2.0 * kl * taught, rel=1e-5)
        assert consistency.teacher.asked == 2


def test_predictions_of_the_teacher_are_under_dropout():
    torch.manual_seed(0)
    gnn = SAGN(3, 2, hidden=8)
    x = torch.randn(6, 3, 3)
    batch = Batch(np.arange(6), lambda asked: asked(x))
    teacher = Consistency(gnn, config(), TASK).teacher
    assert not torch.equal(batch.logits(teacher), batch.logits(teacher))


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
