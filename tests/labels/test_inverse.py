"""InverseLabels in anybody's training loop: ids and K of any kind, devices, types; the loss trains head and gamma'."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from labeldeconv.graph.task import Task
from labeldeconv.labels.hops import hop_labels
from labeldeconv.labels.inverse import InverseLabelLoss, InverseLabels
from labeldeconv.propagation.fixed_point import dequantize, quantize
from tests.elsewhere import DEVICE, elsewhere
from tests.samples import random_edges

n, c, h = 20, 3, 3
LABELS = np.random.default_rng(0).integers(0, c, n)
K = hop_labels(random_edges(n, 40), np.eye(c, dtype=np.float32)[LABELS], hops=h - 1)
IDS = np.array([4, 0, 4, 19])


def expected(gamma, alpha=1.0, rows=K, ids=IDS):
    """(1 - alpha) Y + alpha NORMALIZE(sum_i gamma_i K_i), in numpy."""
    mixed = np.einsum("h,bhc->bc", gamma, rows[ids].astype(np.float64))
    return (1 - alpha) * rows[ids, 0] + alpha * mixed / mixed.sum(1, keepdims=True)


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("ids", [IDS, IDS.astype(np.int32), torch.from_numpy(IDS), IDS.tolist()], ids=str)
@pytest.mark.parametrize("kept", [K, torch.from_numpy(K)], ids=["array", "tensor"])
def test_any_kind_of_ids_and_of_hop_labels(kept, ids, alpha):
    module = InverseLabels(kept, alpha)
    with torch.no_grad():
        module.gamma_logits.copy_(torch.tensor([0.0, 1.0, -1.0]))
    found = module(ids)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.detach(), expected(module.gamma.detach().numpy(), alpha), atol=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["array", "map", "tensor"])
def test_fixed_point_is_read_as_numbers(kind, alpha, tmp_path):
    """One true label is 1.0, not 65535, in an array, in a file and in a tensor."""
    np.save(tmp_path / "k.npy", quantize(K))
    opened = {"array": quantize(K), "map": np.load(tmp_path / "k.npy", mmap_mode="r")}
    given = opened.get(kind, torch.from_numpy(quantize(K)))
    found = InverseLabels(given, alpha)(IDS).detach().numpy()
    np.testing.assert_allclose(found, expected(np.ones(h) / h, alpha, dequantize(quantize(K))), atol=1e-6)
    assert found.max() <= 1 + 1e-6


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kept", [K, torch.from_numpy(K), torch.from_numpy(K).double()], ids=["array", "32", "64"])
def test_targets_have_the_type_of_gamma(kept, dtype):
    module = InverseLabels(kept).to(dtype)
    found = module(IDS)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), torch.from_numpy(expected(np.ones(h) / h)), atol=1e-2, rtol=1e-2)


def test_hop_labels_in_a_tensor_move_with_the_module():
    """torch's meta device stands for a GPU: K and gamma' are there together, and so are the targets of any ids."""
    module = InverseLabels(torch.from_numpy(K)).to("meta")
    assert module.hop_labels.device == module.gamma_logits.device == torch.device("meta")
    for ids in (torch.from_numpy(IDS).to("meta"), torch.from_numpy(IDS), IDS):
        found = module(ids)
        assert (found.device.type, tuple(found.shape)) == ("meta", (4, c))
    loss = InverseLabelLoss(torch.from_numpy(K), nn.Linear(5, c)).to("meta")
    assert {t.device.type for t in [*loss.parameters(), *loss.buffers()]} == {"meta"}
    assert loss(torch.zeros(4, 5, device="meta"), IDS).device.type == "meta"


def test_hop_labels_in_an_array_stay_and_their_rows_move():
    module = InverseLabels(K).to("meta")
    assert isinstance(module.hop_labels, np.ndarray)
    assert module(IDS).device.type == "meta"
    assert not list(module.buffers())


@pytest.mark.parametrize("alpha", [0.0, 0.4])
@pytest.mark.parametrize("kind", ["array", "tensor", "fixed point", "fixed point tensor"])
@pytest.mark.parametrize("place", ["there", "cpu", "numpy", "list"])
def test_on_another_device_the_numbers_are_the_same(kind, place, alpha):
    """Wherever K and the ids are: targets and loss, and their gradients, on the device of gamma' and the features."""
    kept = {"array": K, "tensor": torch.from_numpy(K), "fixed point": quantize(K)}.get(
        kind, torch.from_numpy(quantize(K))
    )
    with elsewhere():
        held = torch.from_numpy(IDS)
        ids = {"there": held.to(DEVICE), "cpu": held, "numpy": IDS, "list": IDS.tolist()}[place]
        features = torch.arange(20.0).reshape(4, 5) / 20
        here, there = (InverseLabelLoss(kept, nn.Linear(5, c), alpha) for _ in range(2))
        there.load_state_dict(here.state_dict())
        there.to(DEVICE)
        targets = there.targets(ids)
        assert targets.device == there.gamma.device == DEVICE
        np.testing.assert_allclose(targets.cpu().detach(), here.targets(IDS).detach(), atol=1e-7)
        loss, expected = there(features.to(DEVICE), ids), here(features, IDS)
        assert loss.device == DEVICE
        torch.testing.assert_close(loss.cpu(), expected)
        loss.backward()
        expected.backward()
        for p, q in zip(there.parameters(), here.parameters(), strict=True):
            assert (p.grad is None) == (q.grad is None)
            if q.grad is not None:
                torch.testing.assert_close(p.grad.cpu(), q.grad)


def test_ids_there_and_everything_else_here():
    """A batch whose ids are on a GPU, with targets that were never moved."""
    with elsewhere():
        for kept in (K, torch.from_numpy(K)):
            found = InverseLabels(kept)(torch.from_numpy(IDS).to(DEVICE))
            assert found.device.type == "cpu"
            np.testing.assert_allclose(found.detach(), expected(np.ones(h) / h), atol=1e-6)
        logits = torch.randn(4, c)  # features are logits already, and there
        torch.testing.assert_close(InverseLabelLoss(K)(logits.to(DEVICE), IDS).cpu(), InverseLabelLoss(K)(logits, IDS))


@pytest.mark.parametrize("kept", [K, torch.from_numpy(K)], ids=["array", "tensor"])
def test_only_gamma_is_trained_and_saved(kept):
    module = InverseLabels(kept)
    assert [name for name, _ in module.named_parameters()] == ["gamma_logits"]
    assert list(module.state_dict()) == ["gamma_logits"]
    module(IDS).square().sum().backward()
    assert module.gamma_logits.grad.abs().sum() > 0


def test_gamma_starts_uniform_or_as_given():
    np.testing.assert_allclose(InverseLabels(K).gamma.detach(), [1 / 3] * 3, rtol=1e-6)
    kept = InverseLabels(K, gamma=[0.2, 0.3, 0.5])
    np.testing.assert_allclose(kept.gamma, [0.2, 0.3, 0.5], rtol=1e-5)
    assert not kept.gamma_logits.requires_grad


def test_multilabel_is_clamped():
    found = InverseLabels(2 * K, task=Task("multilabel", c))(np.arange(n))
    assert found.max() == 1.0
    np.testing.assert_allclose(found.detach(), np.clip(2 * K.mean(1), 0, 1), atol=1e-6)


def test_loss_is_cross_entropy_with_the_inverse_labels():
    torch.manual_seed(0)
    head, features = nn.Linear(5, c), torch.randn(4, 5)
    loss = InverseLabelLoss(K, head)
    targets = torch.from_numpy(expected(np.ones(h) / h)).float()
    torch.testing.assert_close(loss(features, IDS), F.cross_entropy(head(features), targets))
    logits = torch.randn(4, c)
    torch.testing.assert_close(InverseLabelLoss(K)(logits, IDS), F.cross_entropy(logits, targets))


@pytest.mark.parametrize("kept", [K, torch.from_numpy(K)], ids=["array", "tensor"])
def test_a_plain_loop_trains_head_and_gamma(kept):
    """Features that tell the label itself: the head learns it, and gamma heads for the sharpest hop, K_0 = Y."""
    torch.manual_seed(0)
    features = torch.eye(c)[torch.from_numpy(LABELS)]
    loss = InverseLabelLoss(kept, nn.Linear(c, c))
    optimizer = torch.optim.Adam(loss.parameters(), lr=0.05)
    first = float(loss(features, np.arange(n)).detach())
    for _ in range(150):
        for ids in torch.randperm(n).split(5):
            optimizer.zero_grad()
            loss(features[ids], ids).backward()
            optimizer.step()
    assert float(loss(features, np.arange(n)).detach()) < 0.2 * first
    assert loss.gamma[0] > 0.9
    assert (loss.head(features).argmax(1).numpy() == LABELS).all()


def test_as_a_module_beside_an_encoder():
    """The loop of the docstring: gamma' as a parameter group of its own."""
    torch.manual_seed(0)
    encoder, targets = nn.Linear(c, c), InverseLabels(K)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    optimizer.add_param_group({"params": targets.parameters(), "lr": 1e-2})
    before = encoder.weight.detach().clone(), targets.gamma.detach().clone()
    F.cross_entropy(encoder(torch.eye(c)[LABELS[IDS]]), targets(torch.from_numpy(IDS))).backward()
    optimizer.step()
    assert not torch.equal(encoder.weight, before[0])
    assert not torch.equal(targets.gamma, before[1])


def test_a_row_does_not_depend_on_its_batch():
    module = InverseLabels(K, alpha=0.7)
    whole = module(np.arange(n))
    for i in range(n):
        assert torch.equal(module(np.array([i]))[0], whole[i])


def test_alpha_is_one_unless_given():
    """Y(gamma) alone: the mean of the hops at the start, whose rows are distributions already."""
    K = np.random.default_rng(0).dirichlet(np.ones(3), (5, 2)).astype(np.float32)
    ids = np.arange(5)
    made = InverseLabels(K)(ids).detach()
    np.testing.assert_allclose(made, K.mean(1) / K.mean(1).sum(1, keepdims=True), rtol=1e-5)
    logits = torch.zeros(5, 3)
    logits[:, 0] = 1.0
    expected = -(made * logits.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(InverseLabelLoss(K)(logits, ids).detach(), expected)
