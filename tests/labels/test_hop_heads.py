"""Hop heads: the loss by loops, weights, both directions, and heads that learn from known labels alone."""

import numpy as np
import pytest
import torch

from labeldeconv.errors import ConfigError
from labeldeconv.graph.task import Task
from labeldeconv.labels.hop_heads import HopHeads
from labeldeconv.propagation.fixed_point import FULL

n, h, c = 9, 3, 4


def log_softmax(z):
    return z - z.max() - np.log(np.exp(z - z.max()).sum())


K = np.random.default_rng(0).random((n, h, c)).astype(np.float32)
K /= K.sum(2, keepdims=True)
IDS = np.array([8, 0, 3, 4, 1])


@pytest.fixture
def logits():
    return np.random.default_rng(1).normal(size=(5, h * c)).astype(np.float32)


def test_the_loss_is_the_mean_over_heads_of_cross_entropies(logits):
    found = HopHeads(K, Task("multiclass", c))(torch.from_numpy(logits), IDS)
    for row, node in enumerate(IDS):
        heads = [-K[node, i] @ log_softmax(logits[row, i * c : (i + 1) * c]) for i in range(h)]
        assert found[row] == pytest.approx(np.mean(heads), rel=1e-5)


def test_the_own_head_learns_known_labels_alone_at_full_weight(logits):
    """3 of 9 nodes have a label: each counts 3 times, so that head 0 weighs a third of the whole, as the others do."""
    labels = np.full(n, -1)
    labels[[3, 8, 6]] = [2, 0, 1]
    found = HopHeads(K, Task("multiclass", c), labels=labels)(torch.from_numpy(logits), IDS)
    for row, node in enumerate(IDS):
        heads = [-K[node, i] @ log_softmax(logits[row, i * c : (i + 1) * c]) for i in range(1, h)]
        own = 0.0 if labels[node] < 0 else -3 * log_softmax(logits[row, :c])[labels[node]]
        assert found[row] == pytest.approx((own + sum(heads)) / h, rel=1e-5)


def test_multi_label_heads_skip_missing_entries(logits):
    labels = np.full((n, c), -1)
    labels[3] = [1, -1, 0, -1]
    found = HopHeads(K, Task("multilabel", c), labels=labels)(torch.from_numpy(logits), IDS)
    p = 1 / (1 + np.exp(-logits.reshape(5, h, c)))
    each = -(K[IDS] * np.log(p) + (1 - K[IDS]) * np.log(1 - p)).mean(2)  # (5, h)
    each[:, 0] = 0
    each[2, 0] = n * -(np.log(p[2, 0, 0]) + np.log(1 - p[2, 0, 2])) / 2
    np.testing.assert_allclose(found, each.mean(1), rtol=1e-4)


def test_weights_count_by_their_ratios(logits):
    z = torch.from_numpy(logits)
    single = [HopHeads(K, Task("multiclass", c), weights=np.eye(h)[i])(z, IDS) for i in range(h)]
    mixed = HopHeads(K, Task("multiclass", c), weights=[2, 0, 6])(z, IDS)
    torch.testing.assert_close(mixed, 0.25 * single[0] + 0.75 * single[2])
    for wrong in ([1, 1], [0, 0, 0]):
        with pytest.raises(ConfigError, match="3 weights, not all 0"):
            HopHeads(K, Task("multiclass", c), weights=wrong)


def test_both_directions_have_heads_but_y_only_one(logits):
    back = np.ascontiguousarray(K[:, ::-1])
    both = HopHeads(K, Task("multiclass", c), back)
    np.testing.assert_array_equal(both.targets(IDS), np.concatenate([K[IDS], back[IDS, 1:]], 1))
    wide = torch.cat([torch.from_numpy(logits), torch.from_numpy(logits[:, c:])], 1)
    assert both(wide, IDS).shape == (5,)


def test_fixed_point_is_read(logits):
    fixed = np.round(K * FULL).astype(np.uint16)
    found = HopHeads(fixed, Task("multiclass", c))(torch.from_numpy(logits), IDS)
    torch.testing.assert_close(
        found, HopHeads(K, Task("multiclass", c))(torch.from_numpy(logits), IDS), atol=1e-3, rtol=0
    )
