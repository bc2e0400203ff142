import numpy as np
import pytest
import torch
from torch import nn

from labeldeconv.labels.true import TrueLabels
from labeldeconv.task import Task
from labeldeconv.train.objective import Objective


class Fixed(nn.Module):
    """Stands for an encoder: 'tokens' are the features."""

    def forward(self, input_ids, attention_mask):
        return input_ids


def loss(pseudo_weight, ids, gold):
    x = torch.tensor([[2.0, 0], [0, 1], [1, 1]])
    targets = TrueLabels(np.array([0, 0, 1]), Task("multiclass", 2))
    objective = Objective(Fixed(), nn.Identity(), targets, Task("multiclass", 2), 0.0, pseudo_weight, gold)
    return float(objective(ids, x[ids], torch.ones(len(ids), 1)))


def test_split_weighting_of_the_authors():
    ids, gold = np.arange(3), np.array([True, False, False])
    each = [loss(None, np.array([i]), gold) for i in ids]
    assert loss(None, ids, gold) == pytest.approx(np.mean(each))
    assert loss(0.8, ids, gold) == pytest.approx(0.2 * each[0] + 0.8 * np.mean(each[1:]))
    assert loss(0.8, np.array([0]), gold) == pytest.approx(0.2 * each[0])  # an empty group counts nothing
