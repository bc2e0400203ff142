import numpy as np
import pytest
import torch

from labeldeconv.config import EncoderConfig, TrainConfig
from labeldeconv.encoders.text import load_text_encoder
from labeldeconv.gnns.base import Psi
from labeldeconv.gnns.gcn import GCN
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.task import Task
from labeldeconv.train.objective import Objective
from labeldeconv.train.optim import autocast_type, make_optimizer, set_learning_rates


@pytest.fixture
def optimizer():
    targets = InverseLabels(np.ones((3, 2, 4), np.float32))
    objective = Objective(
        load_text_encoder(EncoderConfig(name="tiny")), Psi(GCN(32, 4)), targets, Task("multiclass", 4)
    )
    return objective, make_optimizer(objective, TrainConfig(lr=1e-5, psi_lr=1e-3, gamma_lr=1e-1, weight_decay=0.1))


def test_each_part_has_its_rate_and_only_matrices_decay(optimizer):
    objective, opt = optimizer
    rates = {id(p): (g["peak_lr"], g["weight_decay"]) for g in opt.param_groups for p in g["params"]}
    for part, lr in ((objective.encoder, 1e-5), (objective.psi, 1e-3)):
        for p in part.parameters():
            assert rates[id(p)] == (lr, 0.1 if p.ndim > 1 else 0.0)
    assert rates[id(objective.targets.gamma_logits)] == (1e-1, 0.0)


def test_warm_up_and_linear_decay(optimizer):
    _, opt = optimizer
    scales = [set_learning_rates(opt, p, warmup=0.2) for p in (0.0, 0.1, 0.2, 0.6, 1.0)]
    np.testing.assert_allclose(scales, [0, 0.5, 1, 0.5, 0], atol=1e-12)
    set_learning_rates(opt, 0.1, 0.2)
    assert opt.param_groups[0]["lr"] == pytest.approx(0.5e-5)


def test_precision():
    cpu = torch.device("cpu")
    assert autocast_type("float32", cpu) is None
    assert autocast_type("bfloat16", cpu) is torch.bfloat16
    assert autocast_type("auto", cpu) in (None, torch.bfloat16)
