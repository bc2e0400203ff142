"""Joint training: both samplers against the whole graph, and what a step may change."""

import numpy as np
import pytest
import torch
from conftest import letter_store, random_edges

from labeldeconv.adjacency import Adjacency
from labeldeconv.config import AdjacencyConfig, EncoderConfig, JointConfig, TrainConfig
from labeldeconv.encoders.text import load_text_encoder
from labeldeconv.gnns.gcn import GCN
from labeldeconv.task import Task
from labeldeconv.train.joint import GasSampler, JointModel, SageSampler, train_joint

n, c = 60, 3
LABELS = np.arange(n) % c
TRAIN = np.arange(0, n, 2)
CPU = torch.device("cpu")


@pytest.fixture
def adj():
    config = AdjacencyConfig(normalization="symmetric", self_loops=True)
    return Adjacency.from_edges(random_edges(n, 90), n, config)


@pytest.fixture
def store(tmp_path):
    return letter_store(n, tmp_path / "tokens")


@pytest.fixture
def model():
    torch.manual_seed(0)
    return JointModel(load_text_encoder(EncoderConfig(name="tiny")), GCN(32, c, hidden=16)).eval()


def whole(model, store, adj):
    """Logits (n, c) of the GNN on the features of all nodes."""
    h = model.encode(store, np.arange(n), CPU)
    for step in model.steps:
        h = step(h, adj)
    return h.detach()


def test_sage_with_all_neighbors_is_the_whole_graph(model, store, adj):
    sampler = SageSampler(adj, TRAIN, JointConfig(fanout=n, batch_nodes=7))
    batches = sampler.batches(np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), TRAIN)
    for batch in batches:
        logits, size = sampler.forward(model, store, batch, np.random.default_rng(1), CPU)
        torch.testing.assert_close(logits.detach(), whole(model, store, adj)[batch], atol=1e-5, rtol=1e-5)
        assert len(batch) < size <= n


def gas(adj, **settings):
    pytest.importorskip("pymetis", reason="needs the extra metis")
    return GasSampler(adj, TRAIN, JointConfig(**settings), np.zeros((n, 32), np.float32))


def test_gas_in_one_part_is_the_whole_graph(model, store, adj):
    sampler = gas(adj, batch_nodes=n, part_nodes=n)
    (batch,) = sampler.batches(np.random.default_rng(0))
    logits, size = sampler.forward(model, store, batch, np.random.default_rng(1), CPU)
    torch.testing.assert_close(logits.detach(), whole(model, store, adj)[TRAIN], atol=1e-5, rtol=1e-5)
    assert size == n


def test_histories_become_exact_while_the_weights_stand_still(model, store, adj):
    """GAS's promise: with fixed weights, as many passes as convolutions make every history true."""
    sampler = gas(adj, batch_nodes=12, part_nodes=4, max_neighbors=0)
    errors = []
    for epoch in range(3):
        found = torch.empty(n, c)
        for batch in sampler.batches(np.random.default_rng(epoch)):
            ids = sampler.targets(batch)
            assert set(ids) == set(batch) & set(TRAIN)
            found[ids] = sampler.forward(model, store, batch, np.random.default_rng(1), CPU)[0].detach()
        errors.append(float((found - whole(model, store, adj))[TRAIN].abs().max()))
    assert errors[0] > 1e-3
    assert errors[-1] < 1e-5


def test_batches_of_gas_join_parts_and_cover_all_nodes(adj):
    sampler = gas(adj, batch_nodes=15, part_nodes=5)
    assert len(sampler.parts) == 12
    first, second = (sampler.batches(np.random.default_rng(k)) for k in (0, 1))
    assert len(first) == 4
    np.testing.assert_array_equal(np.sort(np.concatenate(first)), np.arange(n))
    assert {frozenset(b) for b in first} != {frozenset(b) for b in second}  # other parts meet in the next epoch


def test_a_batch_may_hold_a_single_node(model, store, adj, tmp_path):
    """METIS makes parts of one node, and BatchNorm has no variance there."""
    for sampler in (gas(adj, batch_nodes=1, part_nodes=1), SageSampler(adj, TRAIN, JointConfig(batch_nodes=1))):
        folder = tmp_path / type(sampler).__name__
        folder.mkdir()
        config = sampler.config.model_copy(update={"epochs": 1})
        run = train_joint(model, sampler, store, LABELS, Task("multiclass", c), config, TrainConfig(), 0, folder)
        assert np.isfinite(run.loss)


def test_batches_without_train_nodes_change_no_weight(model, store, adj, tmp_path):
    sampler = gas(adj, batch_nodes=20, part_nodes=5)
    sampler.wanted[:] = False
    before = {k: v.clone() for k, v in model.state_dict().items()}
    rates = TrainConfig(lr=1e-2, psi_lr=1e-2)
    run = train_joint(model, sampler, store, LABELS, Task("multiclass", c), JointConfig(epochs=1), rates, 0, tmp_path)
    assert run.steps == 3
    assert np.isnan(run.loss)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, before[name], rtol=0, atol=0)
    assert sampler.histories[1].abs().sum() > 0


@pytest.mark.parametrize("kind", ["sage", "gas"])
def test_fixed_features_train_the_gnn_alone(model, store, adj, tmp_path, kind):
    config = JointConfig(epochs=2, batch_nodes=16)
    sampler = gas(adj, epochs=2, batch_nodes=16) if kind == "gas" else SageSampler(adj, TRAIN, config)
    fixed = JointModel(model.encoder, model.gnn, model.encode(store, np.arange(n), CPU).detach().numpy())
    torch.testing.assert_close(whole(fixed.eval(), store, adj), whole(model, store, adj))
    before = {k: v.clone() for k, v in fixed.state_dict().items()}
    run = train_joint(fixed, sampler, store, LABELS, Task("multiclass", c), config, TrainConfig(), 0, tmp_path)
    changed = {k for k, v in fixed.state_dict().items() if not torch.equal(v, before[k])}
    assert changed
    assert not any(name.startswith("encoder.") for name in changed)
    assert run.encoder_nodes == 0
    assert run.subgraph >= run.batch
