"""Joint training: both samplers against the whole graph, and what a step may change."""

import json
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
from labeldeconv.gnns.base import GNNS
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
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.stage import Folder, session
from labeldeconv.training import joint as joint_module
from labeldeconv.training import layerwise
from labeldeconv.training.encoder import LOG
from labeldeconv.training.features import features
from labeldeconv.training.joint import (
    GasSampler,
    JointModel,
    SageSampler,
    convolutions,
    joint,
    joint_gnn,
    joint_head,
    train_joint,
)
from labeldeconv.training.steps import resolved_precision
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
    return letter_tokens(n, tmp_path / "tokens", distinct=True)


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


def forward(sampler, model, store, batch):
    """Logits and G(B) of a batch."""
    subgraph = sampler.subgraph(batch, len(model.steps), np.random.default_rng(1))
    return sampler.forward(model, store, subgraph, CPU), subgraph


def test_sage_with_all_neighbors_is_the_whole_graph(model, store, adj):
    sampler = SageSampler(adj, TRAIN, JointConfig(fanout=n, batch_nodes=7))
    batches = sampler.batches(np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), TRAIN)
    for batch in batches:
        logits, subgraph = forward(sampler, model, store, batch)
        torch.testing.assert_close(logits.detach(), whole(model, store, adj)[batch], atol=1e-5, rtol=1e-5)
        assert len(batch) < len(subgraph.nodes) <= n
        assert subgraph.encoded is subgraph.nodes


def gas(adj, **settings):
    pytest.importorskip("pymetis", reason="needs the extra metis")
    return GasSampler(adj, TRAIN, JointConfig(**settings), np.zeros((n, 32), np.float32))


def test_gas_in_one_part_is_the_whole_graph(model, store, adj):
    sampler = gas(adj, batch_nodes=n, part_nodes=n)
    (batch,) = sampler.batches(np.random.default_rng(0))
    logits, subgraph = forward(sampler, model, store, batch)
    torch.testing.assert_close(logits.detach(), whole(model, store, adj)[TRAIN], atol=1e-5, rtol=1e-5)
    assert len(subgraph.nodes) == len(subgraph.encoded) == n


def test_histories_become_exact_while_the_weights_stand_still(model, store, adj):
    """GAS's promise: with fixed weights, as many passes as convolutions make every history true."""
    sampler = gas(adj, batch_nodes=12, part_nodes=4, max_neighbors=0)
    errors = []
    for epoch in range(3):
        found = torch.empty(n, c)
        for batch in sampler.batches(np.random.default_rng(epoch)):
            ids = sampler.targets(batch)
            assert set(ids) == set(batch) & set(TRAIN)
            found[ids] = forward(sampler, model, store, batch)[0].detach()
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
        run = train_joint(model, sampler, store, LABELS, TASK, sampler.config, TrainConfig(), 1, 0, Folder(folder))
        assert np.isfinite(run.loss)


def test_batches_without_train_nodes_change_no_weight(model, store, adj, tmp_path):
    sampler = gas(adj, batch_nodes=20, part_nodes=5)
    sampler.wanted[:] = False
    before = {k: v.clone() for k, v in model.state_dict().items()}
    rates = TrainConfig(lr=1e-2, psi_lr=1e-2)
    run = train_joint(model, sampler, store, LABELS, TASK, JointConfig(), rates, 1, 0, Folder(tmp_path))
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
    run = train_joint(fixed, sampler, store, LABELS, TASK, config, TrainConfig(), 2, 0, Folder(tmp_path))
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
    arguments = store, LABELS, TASK, config, rates, 2, 0
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


def touched(adj, batch):
    """B and all its neighbours, from the dense matrix."""
    return set(batch) | set(np.flatnonzero(adj.dense()[batch].any(0)))


def test_subgraph_counts_halo_nodes_taken_from_history(model, store, adj, tmp_path):
    """|G(B)| is B and every neighbour; 3 of the neighbours are encoded, the others come from histories."""
    sampler = gas(adj, batch_nodes=12, part_nodes=4, max_neighbors=3)
    batches = sampler.batches(np.random.default_rng([0, 0]))
    sizes = [len(touched(adj, batch)) for batch in batches]
    for batch, size in zip(batches, sizes, strict=True):
        subgraph = sampler.subgraph(batch, 2, np.random.default_rng(0))
        assert set(subgraph.nodes) == touched(adj, batch)
        assert len(subgraph.nodes) == size > len(batch) + 3
        assert len(subgraph.encoded) == len(set(subgraph.encoded)) == len(batch) + 3
    run = train_joint(model, sampler, store, LABELS, TASK, JointConfig(), TrainConfig(), 1, 0, Folder(tmp_path))
    assert run.subgraph == pytest.approx(np.mean(sizes))
    assert run.batch == n / len(batches)
    assert run.encoder_nodes == n + 3 * len(batches)


PRECISIONS = ["float32", "bfloat16", "auto"]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", ["sage", "gas"])
@pytest.mark.parametrize("name", ["gcn", "gat", "revgat"])
def test_every_precision_with_every_gnn(name, kind, precision, store, adj, tmp_path):
    torch.manual_seed(0)
    gnn = GNNS[name](32, c, layers=3, hidden=8)
    model = JointModel(load_encoder(EncoderConfig(name="tiny")), gnn, precision=precision, chunk_nodes=10)
    seen = []
    model.encoder.register_forward_hook(lambda _m, _i, output: seen.append(torch.is_autocast_enabled("cpu")))
    gnn.register_forward_pre_hook(lambda *_: pytest.fail("the GNN runs step by step"))
    sampler = gas(adj, batch_nodes=16) if kind == "gas" else SageSampler(adj, TRAIN, JointConfig(batch_nodes=16))
    before = {k: v.clone() for k, v in model.named_parameters()}
    run = train_joint(model, sampler, store, LABELS, TASK, JointConfig(), TrainConfig(), 1, 0, Folder(tmp_path))
    assert np.isfinite(run.loss)
    low = resolved_precision(precision, CPU) == "bfloat16"
    assert set(seen) == {low}
    moved = {k.partition(".")[0] for k, v in model.named_parameters() if not torch.equal(v, before[k])}
    assert moved == {"encoder", "gnn"}
    assert all(v.dtype == torch.float32 for v in model.parameters())


def gradients(model, store, adj, chunk_nodes):
    """Of the loss of one step over the whole graph; by parameter."""
    model.chunk_nodes = chunk_nodes
    model.zero_grad()
    sampler = SageSampler(adj, TRAIN, JointConfig(fanout=n))
    torch.manual_seed(0)
    logits, _ = forward(sampler, model, store, TRAIN)
    TASK.loss(logits, torch.from_numpy(TASK.targets(LABELS[TRAIN]))).mean().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("chunk_nodes", [1, 7, 59, 60, 1000])
def test_chunks_have_the_gradients_of_all_nodes_at_once(model, store, adj, chunk_nodes):
    expected = gradients(model, store, adj, None)
    found = gradients(model, store, adj, chunk_nodes)
    assert set(found) == set(expected)
    assert any(g.abs().sum() > 0 for name, g in expected.items() if name.startswith("encoder."))
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-6, rtol=1e-4, msg=name)


def test_equal_attributes_are_encoded_once_with_the_gradients_of_all(model, adj, tmp_path):
    repeated = letter_tokens(n, tmp_path / "repeated")  # 15 texts
    seen = []
    model.encoder.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    once = gradients(model, repeated, adj, None)
    assert sum(seen) == 15
    repeated.__dict__["first"] = np.arange(n)  # as if all differed
    every = gradients(model, repeated, adj, None)
    assert sum(seen) > 3 * 15
    for name, gradient in every.items():
        torch.testing.assert_close(once[name], gradient, atol=1e-6, rtol=1e-4, msg=name)


def test_chunks_drop_out_the_same_when_computed_again(model, store, adj, monkeypatch):
    """In training mode, to the bit: the backward pass recomputes what the forward pass computed."""
    model.train()
    model.encoder = Dropped(model.encoder).train()
    found = gradients(model, store, adj, 7)
    monkeypatch.setattr(joint_module, "checkpoint", lambda f, *given, use_reentrant: f(*given))
    for name, gradient in gradients(model, store, adj, 7).items():
        assert torch.equal(gradient, found[name]), name


class Dropped(torch.nn.Module):
    """An encoder with dropout on its output; `rows` are the nodes of each of its calls."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.rows = encoder, []

    def forward(self, input_ids, mask):
        self.rows.append(len(input_ids))
        return torch.nn.functional.dropout(self.encoder(input_ids, mask), 0.5, self.training)


def held(model, store, nodes):
    """Bytes that wait for the backward pass after `nodes` were encoded."""
    total = 0

    def pack(tensor):
        nonlocal total
        total += tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        F = model.encode(store, nodes, CPU)
    assert F.requires_grad
    return total, F


def test_memory_follows_the_chunk_and_not_the_subgraph(model, store):
    """Activations that wait: all of them without chunks, none of a chunk; no call encodes more than a chunk."""
    model.encoder = Dropped(model.encoder).eval()
    ids = np.arange(n)
    model.chunk_nodes = None
    (half, _), (full, _) = held(model, store, ids[: n // 2]), held(model, store, ids)
    assert full > 1.8 * half > 100_000
    model.encoder.rows.clear()
    model.chunk_nodes = 8
    (half, _), (chunked, F) = held(model, store, ids[: n // 2]), held(model, store, ids)
    assert half <= chunked < full / 50  # node ids and features alone
    assert model.encoder.rows == [8, 8, 8, 6] + [8] * 7 + [4]
    model.encoder.rows.clear()
    F.sum().backward()
    assert sorted(model.encoder.rows) == [4] + [8] * 7  # computed again, a chunk at a time


def test_the_gnn_has_a_rate_of_its_own(store, adj, tmp_path):
    """None is psi's rate, to the bit; a tiny one leaves the GNN where it is while the encoder learns."""

    def trained(name, config, **rates):
        torch.manual_seed(0)
        model = JointModel(load_encoder(EncoderConfig(name="tiny")), GCN(32, c, hidden=16, norm="none"))
        before = {k: v.clone() for k, v in model.state_dict().items()}
        sampler = SageSampler(adj, TRAIN, config)
        (tmp_path / name).mkdir()
        folder, rates = Folder(tmp_path / name), TrainConfig(lr=1e-3, **rates)
        train_joint(model, sampler, store, LABELS, TASK, config, rates, 1, 0, folder)
        return before, model.state_dict()

    _, plain = trained("a", JointConfig(), psi_lr=0.03)
    _, same = trained("b", JointConfig(gnn_lr=0.03), psi_lr=1e-5)
    assert all(torch.equal(plain[k], same[k]) for k in plain)
    before, slow = trained("c", JointConfig(gnn_lr=1e-12), psi_lr=0.03)
    moved = {k: float((slow[k] - before[k]).abs().max()) for k in slow if slow[k].is_floating_point()}
    assert max(v for k, v in moved.items() if k.startswith("gnn.")) < 1e-9
    assert max(v for k, v in moved.items() if k.startswith("encoder.")) > 1e-4


def edged(seed):
    """The planted graph with two random features per edge."""
    graph = planted(60, seed=0, num_classes=c).graph
    values = np.random.default_rng(seed).normal(size=(graph.num_edges, 2)).astype(np.float32)
    return replace(graph, edge_features=values)


def stages(kind, graph, edges, sampling, name="gat", **options):
    """Arguments of the stages up to X_PNE, and the jointly trained encoder."""
    start = Pretrained(EncoderConfig(name="tiny"))
    kept, weights = tokens(graph.texts, start.tokenizer, 32), Weights(start)
    X = features(kept, weights, "float32")
    architecture = Architecture.of(GNNConfig(name=name, hidden=8, options=options))
    rates = TrainConfig(precision="float32", lr=1e-3)
    settings = (architecture, None, GNNAdjacencyConfig(), sampling, rates, 0, edges)
    return architecture, rates, joint(kind, kept, weights, X, graph, *settings), X


@pytest.mark.parametrize("kind", ["sage", "gas"])
def test_edge_features_are_used_where_the_gnn_reads_them(kind):
    if kind == "gas":
        pytest.importorskip("pymetis", reason="needs the extra metis")
    sampling, heads = JointConfig(epochs=1, batch_nodes=16), []
    for graph in (edged(0), edged(1)):
        architecture, _, trained, X = stages(kind, graph, graph, sampling, edge_dim=2)
        heads.append(load_file(trained.head))
        last = joint_gnn(trained, X, graph, architecture, GNNAdjacencyConfig(), "full", graph)
        gnn = architecture.build(32, c).eval()
        gnn.load_state_dict(heads[-1])
        adj = Adjacency.from_edges(graph.edges, 60, GNNAdjacencyConfig())
        adj = adj.with_edge_features(graph.edges, graph.edge_features)
        expected = gnn(torch.from_numpy(X.values.astype(np.float32)), adj).detach().numpy()
        np.testing.assert_allclose(last.logits, expected, atol=1e-5)
    assert any(not torch.equal(heads[0][k], heads[1][k]) for k in heads[0])
    with pytest.raises(ConfigError, match=r"edge_dim 3: edge features \(e, 3\) expected in the data, got shape"):
        stages(kind, edged(0), edged(0), sampling, edge_dim=3)


@pytest.mark.parametrize("case", ["neighbors", "clusters", "large"])
@pytest.mark.parametrize("name", ["gcn", "gat", "revgat"])
def test_large_graphs_are_evaluated_layer_by_layer(name, case, tmp_path, monkeypatch):
    graph = edged(0)
    edges, options = (graph, {"edge_dim": 2}) if name == "gat" else (None, {})
    architecture, _, trained, X = stages("sage", graph, edges, JointConfig(epochs=1), name, **options)
    adjacency = GNNAdjacencyConfig()
    whole = joint_gnn(trained, X, graph, architecture, adjacency, "full", edges)
    monkeypatch.setattr(GNNS[name], "forward", lambda *_: pytest.fail("one pass over the whole graph"))
    monkeypatch.setattr(layerwise, "BLOCK_ENTRIES", 40)
    if case == "large":
        monkeypatch.setattr(layerwise, "LARGE", 100)
    with session(Cache(tmp_path / "other")):
        found = joint_gnn(trained, X, graph, architecture, adjacency, "full" if case == "large" else case, edges)
    np.testing.assert_allclose(found.logits, whole.logits, atol=1e-5)
    assert found.val == whole.val


@pytest.mark.parametrize("kind", ["sage", "gas"])
def test_further_epochs_train_the_gnn_alone(kind):
    """The second phase begins as the first one's GNN, sees the encoder's features and leaves the encoder alone."""
    if kind == "gas":
        pytest.importorskip("pymetis", reason="needs the extra metis")
    graph = edged(0)
    sampling = JointConfig(epochs=1, gnn_epochs=8, batch_nodes=16, gnn_lr=0.01)
    architecture, rates, trained, X = stages(kind, graph, None, sampling, "gcn")
    adjacency = GNNAdjacencyConfig()
    further = joint_head(kind, trained, X, graph, architecture, adjacency, sampling, rates, 0)
    rows = [json.loads(line) for line in further.log.read_text().splitlines()]
    assert len(rows) == 8 * len({row["step"] for row in rows if row["epoch"] == 0})
    assert np.mean([r["loss"] for r in rows[-3:]]) < np.mean([r["loss"] for r in rows[:3]])
    old, new = load_file(trained.head), load_file(further.head)
    assert all(not torch.equal(old[k], new[k]) for k in old if "weight" in k)
    still = sampling.model_copy(update={"gnn_lr": 1e-12, "gnn_epochs": 1})
    start = load_file(joint_head(kind, trained, X, graph, architecture, adjacency, still, rates, 0).head)
    for name, _ in architecture.build(32, c).named_parameters():
        torch.testing.assert_close(start[name], old[name], rtol=0, atol=1e-9)
    last = joint_gnn(further, X, graph, architecture, adjacency)
    gnn = architecture.build(32, c).eval()
    gnn.load_state_dict(new)
    adj = Adjacency.from_edges(graph.edges, 60, adjacency)
    expected = gnn(torch.from_numpy(X.values.astype(np.float32)), adj).detach().numpy()
    np.testing.assert_allclose(last.logits, expected, atol=1e-5)


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
