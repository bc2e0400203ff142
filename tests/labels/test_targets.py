"""Targets as arguments of the encoder phase: what each builds, by hand, and what tells them apart in keys."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from labeldeconv.graph.task import Task
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.labels.targets import HopTargets, InverseTargets, SoftTargets, TrueLabels, TrueTargets
from labeldeconv.stages.keys import token

TASK = Task("multiclass", 2)
Y = np.array([[1.0, 0.0], [0.25, 0.75], [0.5, 0.5]], dtype=np.float32)
K = np.stack([Y, Y[::-1]], axis=1)  # (3, 2, 2)


@dataclass
class Kept:
    """An array as a stage's artefact: with a key."""

    values: np.ndarray
    content_key: str = "k"


def test_true_labels_are_one_hot_and_missing_ones_are_nan():
    module = TrueTargets(np.array([1, 0, -1]), TASK).build()
    assert isinstance(module, TrueLabels)
    np.testing.assert_array_equal(module(np.array([2, 0])), [[np.nan, np.nan], [0, 1]])
    assert not list(module.parameters())
    many = TrueTargets(np.array([[1, -1]], np.int8), Task("multilabel", 2)).build()
    np.testing.assert_array_equal(many(np.array([0])), [[1, np.nan]])


def test_soft_targets_are_rows_of_y():
    module = SoftTargets(Kept(Y), TASK).build()
    assert torch.equal(module(np.array([1, 0])), torch.from_numpy(Y[[1, 0]]))
    assert not list(module.parameters())


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_smoothing_is_torchs(smoothing):
    """The cross entropy with smoothed targets is torch's with its own label smoothing."""
    labels, logits = np.array([1, 0, 1]), torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    module = TrueTargets(labels, TASK, smoothing).build()
    expected = F.cross_entropy(logits, torch.from_numpy(labels), label_smoothing=smoothing, reduction="none")
    torch.testing.assert_close(TASK.loss(logits, module(np.arange(3))), expected)
    many = TrueTargets(np.array([[1, -1, 0]], np.int8), Task("multilabel", 3), smoothing).build()
    np.testing.assert_allclose(many(np.array([0])), [[1 - smoothing / 2, np.nan, smoothing / 2]], atol=1e-7)


def test_only_gold_rows_are_smoothed():
    module = SoftTargets(Kept(Y), TASK, 0.2, np.array([0, 2])).build()
    np.testing.assert_allclose(module(np.array([2, 1, 0])), [[0.5, 0.5], [0.25, 0.75], [0.9, 0.1]], atol=1e-7)
    np.testing.assert_array_equal(Y[0], [1, 0])  # what is given stays as it is


def test_inverse_targets_by_hand():
    """Node 0 at the uniform start: (K_0 + K_1) / 2 = (0.75, 0.25), half of it and half of Y = (0.875, 0.125)."""
    module = InverseTargets(Kept(K), 0.5, TASK).build()
    assert isinstance(module, InverseLabels)
    torch.testing.assert_close(module(np.array([0])), torch.tensor([[0.875, 0.125]]))
    assert module.gamma_logits.requires_grad
    kept = InverseTargets(Kept(K), 1.0, TASK, [0.0, 1.0]).build()
    torch.testing.assert_close(kept(np.array([0])), torch.tensor([[0.5, 0.5]]), atol=1e-5, rtol=0)
    assert not kept.gamma_logits.requires_grad


def test_keys_tell_targets_apart():
    given = [
        TrueTargets(np.array([0, 1]), TASK),
        TrueTargets(np.array([1, 1]), TASK),
        SoftTargets(Kept(Y, "a"), TASK),
        SoftTargets(Kept(Y, "b"), TASK),
        SoftTargets(Kept(Y, "b"), TASK, 0.1, np.array([0])),
        SoftTargets(Kept(Y, "b"), TASK, 0.1, np.array([1])),
        TrueTargets(np.array([0, 1]), TASK, 0.1),
        InverseTargets(Kept(K, "a"), 1.0, TASK),
        InverseTargets(Kept(K, "a"), 0.5, TASK),
        InverseTargets(Kept(K, "a"), 1.0, TASK, [0.5, 0.5]),
        InverseTargets(Kept(K, "a"), 1.0, Task("multilabel", 2)),
    ]
    keys = [str(token(targets)) for targets in given]
    assert len(set(keys)) == len(keys)
    assert str(token(InverseTargets(Kept(K, "a"), 1.0, TASK))) == keys[7]


def test_hop_targets_count_their_heads_and_tell_them_apart():
    kept = Kept(K)
    plain, both = HopTargets(kept, TASK), HopTargets(kept, TASK, Kept(K, "back"))
    assert (plain.heads, both.heads) == (2, 3)
    logits = torch.zeros(2, 4)
    torch.testing.assert_close(plain.build()(logits, np.array([0, 2])), torch.full((2,), float(np.log(2))))
    labels = np.array([1, -1, -1])
    others = [plain, both, HopTargets(kept, TASK, None, labels), HopTargets(kept, TASK, weights=[1.0, 2.0])]
    assert len({str(token(target)) for target in others}) == 4
