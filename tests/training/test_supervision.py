"""What a GNN is taught: losses by hand, confident predictions, and label inputs by dense powers."""

import numpy as np
import pytest
import torch

from labeldeconv.graph.split import Split
from labeldeconv.graph.task import Task
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import SelfTrainingConfig
from labeldeconv.training.supervision import SoftLabels, Supervision, confident
from tests.samples import random_edges

TASK = Task("multiclass", 2)
LABELS = np.array([0, 1, 1, 0])
LOGITS = torch.tensor([[0.75, 0.25], [0.5, 0.5], [0.9, 0.1], [0.2, 0.8]]).log()


def test_loss_is_the_mean_over_the_train_nodes():
    taught = Supervision(TASK, LABELS, np.array([0, 1]))
    assert taught.nodes.tolist() == [0, 1]
    found = taught.loss(LOGITS[:2], np.array([0, 1]))
    assert float(found) == pytest.approx(-(np.log(0.75) + np.log(0.5)) / 2)


def test_log_loss_of_revgats_code():
    """log(e + l) - log(e) with e = 1 - ln 2: 0 where l = 0, and at l = ln 2 log(1 / e); soft labels have it too."""
    taught = Supervision(TASK, LABELS, np.array([0, 1]), kind="log")
    epsilon = 1 - np.log(2)
    assert float(taught.loss(LOGITS[1:2], np.array([1]))) == pytest.approx(-np.log(epsilon), rel=1e-5)
    each = np.log(epsilon - np.log([0.75, 0.5])) - np.log(epsilon)
    assert float(taught.loss(LOGITS[:2], np.array([0, 1]))) == pytest.approx(each.mean(), rel=1e-5)
    soft = SoftLabels(np.full((4, 2), 0.5, np.float32), np.array([3]), weight=3.0)
    found = Supervision(TASK, LABELS, np.array([0, 1]), soft, "log").loss(LOGITS[[0, 3]], np.array([0, 3]))
    other = np.log(epsilon - (np.log(0.2) + np.log(0.8)) / 2) - np.log(epsilon)
    assert float(found) == pytest.approx(each[0] + 3 * other, rel=1e-5)


def test_soft_labels_have_a_mean_of_their_own():
    """Gold: nodes 0 and 1 as above. Node 3 is taught (0.5, 0.5), with weight 3; its true label is not read."""
    soft = SoftLabels(np.full((4, 2), 0.5, np.float32), np.array([3]), weight=3.0)
    for labels in (LABELS, np.array([0, 1, 1, 1])):
        taught = Supervision(TASK, labels, np.array([0, 1]), soft)
        assert taught.nodes.tolist() == [0, 1, 3]
        found = float(taught.loss(LOGITS[[3, 0, 1]], np.array([3, 0, 1])))
        gold = -(np.log(0.75) + np.log(0.5)) / 2
        assert found == pytest.approx(gold - 3 * (np.log(0.2) + np.log(0.8)) / 2, rel=1e-5)
    alone = Supervision(TASK, LABELS, np.array([0, 1]), soft).loss(LOGITS[:1], np.array([0]))
    assert float(alone) == pytest.approx(-np.log(0.75))  # a batch without soft labels divides by no zero


def test_confident_predictions_off_the_train_set():
    """Nodes 0 and 2 are sure, node 0 is a train node; an unlabelled node counts as any other."""
    split = Split(np.array([0, 1, -1, 2], np.int8))
    soft = confident(TASK, LOGITS.numpy(), split, SelfTrainingConfig(stages=2, threshold=0.7, weight=0.5))
    assert soft.ids.tolist() == [2, 3]
    assert soft.weight == 0.5
    np.testing.assert_allclose(soft.confidence, [0.75, 0.5, 0.9, 0.8], rtol=1e-5)
    np.testing.assert_allclose(soft.targets, LOGITS.exp(), rtol=1e-5)


def test_reliable_labels_count_by_confidence_as_in_gamlp():
    """The gradient of n1/(n1+n2) CE + gama n2/(n1+n2) mean of confidence * KL(teacher || GNN), written out."""
    torch.manual_seed(0)
    teacher = torch.randn(6, 3).mul(3).softmax(-1)
    roles, labels = np.array([0, 0, 1, 2, 2, 1], np.int8), np.array([0, 2, 0, 0, 0, 0])
    task, settings = Task("multiclass", 3), SelfTrainingConfig(stages=2, threshold=0.0, weight=0.1)
    soft = confident(task, teacher.log().numpy(), Split(roles), settings)
    taught = Supervision(task, labels, np.array([0, 1]), soft)
    assert sorted(taught.nodes) == [0, 1, 2, 3, 4, 5]
    logits, same = (torch.randn(6, 3, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in range(2))
    taught.loss(logits, np.arange(6)).backward()
    gold = torch.nn.functional.cross_entropy(same[:2], torch.from_numpy(labels[:2]))
    t = teacher[2:]
    kl = (t * (t.log() - same[2:].log_softmax(1))).sum(1) * t.max(1).values
    (2 / 6 * gold + 0.1 * 4 / 6 * kl.mean()).backward()
    torch.testing.assert_close(logits.grad, same.grad)


@pytest.mark.parametrize("hops", [1, 3])
def test_label_inputs_by_dense_powers(hops):
    n = 12
    adj = Adjacency.from_edges(random_edges(n, 20), n)
    labels, train = np.arange(n) % 2, np.array([0, 3, 7])
    Y = np.zeros((n, 2))
    Y[train, labels[train]] = 1
    dense = np.linalg.matrix_power(adj.dense(), hops)
    np.testing.assert_allclose(Supervision(TASK, labels, train).label_inputs(adj, hops), dense @ Y, atol=1e-6)
    soft = SoftLabels(np.full((n, 2), 0.5, np.float32), np.array([5]), 1.0)
    Y[5] = 0.5
    np.testing.assert_allclose(Supervision(TASK, labels, train, soft).label_inputs(adj, hops), dense @ Y, atol=1e-6)


def test_no_label_inputs_without_a_branch_and_missing_entries_are_zero():
    adj = Adjacency.identity(2)
    labels = np.array([[1, -1], [0, 1]], np.int8)
    taught = Supervision(Task("multilabel", 2), labels, np.array([0]))
    assert taught.label_inputs(adj, 0) is None
    assert taught.label_inputs(adj, 1).tolist() == [[1.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("kind", ["true", "soft", "confident"])
def test_parts_of_shares_add_up_to_the_loss_of_the_batch(kind):
    """Also where a share has no node, or none of one kind."""
    confidence = np.array([1.0, 1.0, 0.9, 0.8]) if kind == "confident" else None
    soft = SoftLabels(np.full((4, 2), 0.5, np.float32), np.array([2, 3]), 3.0, confidence)
    taught = Supervision(TASK, LABELS, np.array([0, 1]), None if kind == "true" else soft)
    ids = np.arange(2 if kind == "true" else 4)
    whole = float(taught.loss(LOGITS[ids], ids))
    for cut in range(len(ids) + 1):
        parts = [taught.loss(LOGITS[share], share, ids) for share in (ids[:cut], ids[cut:])]
        assert float(sum(parts)) == pytest.approx(whole, rel=1e-6)
