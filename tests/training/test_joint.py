"""Joint training: both samplers against the whole graph, and what a step may change."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from labeldeconv.data.sets.planted import planted
from labeldeconv.encoders.pretrained import Pretrained, Weights, load_encoder
from labeldeconv.encoders.tokens import tokens
from labeldeconv.errors import ConfigError
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.gnns.gcn import GCN
from labeldeconv.gnns.sagn import SAGN
from labeldeconv.graph.task import Task
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import (
    AdjacencyConfig,
    EncoderConfig,
    GNNAdjacencyConfig,
    GNNConfig,
    JointConfig,
    TrainConfig,
)
from labeldeconv.stages.stage import Folder
from labeldeconv.training.encoder import LOG
from labeldeconv.training.features import features
from labeldeconv.training.joint import GasSampler, JointModel, SageSampler, convolutions, joint, joint_gnn, train_joint
from tests.samples import letter_tokens, random_edges

n, c = 60, 3
TASK = Task("multiclass", c)
LABELS = np.arange(n) % c
TRAIN = np.arange(0, n, 2)
CPU = torch.device("cpu")


@pytest.fixture
def adj():
    config = AdjacencyConfig(normalization="symmetric", self_loops=True)
    return Adjacency.from_edges(random_edges(n, 90), n, config)


@pytest.fixture
def store(tmp_path):
    return letter_tokens(n, tmp_path / "tokens")


@pytest.fixture
def model():
    torch.manual_seed(0)
    return JointModel(load_encoder(EncoderConfig(name="tiny")), GCN(32, c, hidden=16)).eval()


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
        run = train_joint(model, sampler, store, LABELS, TASK, config, TrainConfig(), 0, Folder(folder))
        assert np.isfinite(run.loss)


def test_batches_without_train_nodes_change_no_weight(model, store, adj, tmp_path):
    sampler = gas(adj, batch_nodes=20, part_nodes=5)
    sampler.wanted[:] = False
    before = {k: v.clone() for k, v in model.state_dict().items()}
    rates = TrainConfig(lr=1e-2, psi_lr=1e-2)
    run = train_joint(model, sampler, store, LABELS, TASK, JointConfig(epochs=1), rates, 0, Folder(tmp_path))
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
    run = train_joint(fixed, sampler, store, LABELS, TASK, config, TrainConfig(), 0, Folder(tmp_path))
    changed = {k for k, v in fixed.state_dict().items() if not torch.equal(v, before[k])}
    assert changed
    assert not any(name.startswith("encoder.") for name in changed)
    assert run.encoder_nodes == 0
    assert run.subgraph >= run.batch


def test_gnns_without_steps_are_named():
    assert len(convolutions(GCN(4, 2, layers=3))) == 3
    with pytest.raises(ConfigError, match="joint training: SAGN cannot be run layer by layer; try gcn, gat"):
        convolutions(SAGN(4, 2))


@pytest.mark.parametrize("kind", ["sage", "gas"])
def test_resumed_equals_straight(kind, tmp_path, monkeypatch, store, adj):
    def fresh():
        torch.manual_seed(0)
        sampler = gas(adj, batch_nodes=16, epochs=2) if kind == "gas" else SageSampler(adj, TRAIN, config)
        return JointModel(load_encoder(EncoderConfig(name="tiny")), GCN(32, c, hidden=16)), sampler

    config, rates = JointConfig(epochs=2, batch_nodes=16), TrainConfig(checkpoint_minutes=0.0, lr=1e-3)
    arguments = store, LABELS, TASK, config, rates, 0
    for name in "ab":
        (tmp_path / name).mkdir()
    straight, sampler = fresh()
    train_joint(straight, sampler, *arguments, Folder(tmp_path / "a"))
    killed, sampler = fresh()
    real, calls = type(sampler).forward, []

    def dying(*given):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(type(sampler), "forward", dying)
    with pytest.raises(KeyboardInterrupt):
        train_joint(killed, sampler, *arguments, Folder(tmp_path / "b"))
    resumed, sampler = fresh()
    train_joint(resumed, sampler, *arguments, Folder(tmp_path / "b"))
    for (name, p), q in zip(straight.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(p, q), name
    assert (tmp_path / "a" / LOG).read_text() == (tmp_path / "b" / LOG).read_text()


@pytest.mark.parametrize("kind", ["sage", "gas"])
def test_stages_train_and_predict_on_the_whole_graph(kind):
    if kind == "gas":
        pytest.importorskip("pymetis", reason="needs the extra metis")
    graph = planted(60, seed=0, num_classes=c).graph
    start = Pretrained(EncoderConfig(name="tiny"))
    kept, weights = tokens(graph.texts, start.tokenizer, 32), Weights(start)
    X = features(kept, weights, "float32")
    architecture = Architecture.of(GNNConfig(hidden=16))
    adjacency, sampling = GNNAdjacencyConfig(), JointConfig(epochs=1, batch_nodes=16)
    rates = TrainConfig(precision="float32", lr=1e-3)
    trained = joint(kind, kept, weights, X, graph, architecture, None, adjacency, sampling, rates, 0)
    assert trained.encoder_nodes > 0
    assert trained.batch <= trained.subgraph <= 60
    F = features(kept, weights.with_trained(trained), "float32")
    assert not np.array_equal(F.values, X.values)
    last = joint_gnn(trained, F, graph, architecture, adjacency)
    gnn = architecture.build(32, c).eval()
    gnn.load_state_dict(load_file(trained.head))
    adj = Adjacency.from_edges(graph.edges, 60, adjacency)
    expected = gnn(torch.from_numpy(F.values.astype(np.float32)), adj).detach().numpy()
    np.testing.assert_allclose(last.logits, expected, atol=1e-5)
    assert last.val == Task.of(graph).score(last.logits[graph.split.val], graph.labels[graph.split.val])
    spoiled = graph.labels.copy()
    spoiled[graph.split.roles > 0] = 0
    arguments = (architecture, None, adjacency, sampling, rates, 0)
    key = joint.key(kind, kept, weights, X, graph, *arguments)
    assert key == trained.content_key
    assert key == joint.key(kind, kept, weights, X, replace(graph, labels=spoiled), *arguments)


def test_a_rate_of_zero_is_a_fixed_encoder():
    graph = planted(60, seed=0, num_classes=c).graph
    start = Pretrained(EncoderConfig(name="tiny"))
    kept, weights = tokens(graph.texts, start.tokenizer, 32), Weights(start)
    X = features(kept, weights, "float32")
    settings = (Architecture.of(GNNConfig(hidden=16)), None, GNNAdjacencyConfig(), JointConfig(epochs=1))
    rates = TrainConfig(precision="float32", lr=0.0)
    trained = joint("sage", kept, weights, X, graph, *settings, rates, 0)
    assert trained.encoder_nodes == 0
    assert weights.with_trained(trained).load().weights_key() == start.content_key
