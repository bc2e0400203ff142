"""The encoder loop: learns, accumulates exactly, resumes exactly."""

import contextlib
import itertools
import json
import time
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from labeldeconv.encoders import vocabulary
from labeldeconv.encoders.pretrained import Pretrained, Weights, load_encoder
from labeldeconv.encoders.tokens import tokens, write_tokens
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.gnns.base import Psi
from labeldeconv.gnns.gcn import GCN
from labeldeconv.graph.task import Task
from labeldeconv.graph.texts import Texts
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.labels.targets import InverseTargets, TrueLabels, TrueTargets
from labeldeconv.settings.models import EncoderConfig, GNNConfig, TrainConfig
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.stage import Folder, session
from labeldeconv.training import encoder as loop
from labeldeconv.training import steps
from labeldeconv.training.encoder import (
    LOG,
    Clock,
    LinearHead,
    Objective,
    PsiHead,
    gamma_of,
    make_optimizer,
    predict,
    psi_logits,
    train,
    train_encoder,
)
from labeldeconv.training.features import export_features, features
from tests.elsewhere import DEVICE, elsewhere
from tests.encoders.families import FAMILIES, PROTEINS, SEQUENCES, TEXTS
from tests.samples import interrupt, letter_tokens

n, c = 40, 3
TASK = Task("multiclass", c)


@pytest.fixture
def store(tmp_path):
    return letter_tokens(n, tmp_path / "tokens")


def objective():
    torch.manual_seed(0)
    K = np.eye(c, dtype=np.float32)[np.arange(n) % c][:, None].repeat(2, 1)
    K[:, 1] = 0.8 * K[:, 1] + 0.2 / c
    encoder = load_encoder(EncoderConfig(name="tiny"))
    return Objective(encoder, Psi(GCN(32, c, hidden=16, norm="layer")), InverseLabels(K), TASK)


def config(**settings):
    defaults = {"epochs": 2, "lr": 1e-3, "batch_nodes": 8, "precision": "float32", "checkpoint_minutes": 0.0}
    return TrainConfig(**{**defaults, **settings})


def test_it_learns_and_logs(store, tmp_path):
    run = train_encoder(objective(), store, np.arange(n), config(epochs=12, lr=3e-3), 0, Folder(tmp_path))
    rows = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert len(rows) == run.steps == 12 * 5
    assert np.mean([r["loss"] for r in rows[-5:]]) < 0.5 * np.mean([r["loss"] for r in rows[:5]])
    assert run.gamma == rows[-1]["gamma"]
    assert sum(run.gamma) == pytest.approx(1, abs=1e-5)
    assert run.gamma[0] > 0.5  # under cross entropy the sharper hop costs less


@pytest.mark.parametrize("states", ["float32", "bfloat16", "8bit"])
def test_resumed_equals_straight_to_the_bit(states, store, tmp_path, monkeypatch):
    settings = config(accumulate=2, optimizer_states=states)
    straight = objective()
    (tmp_path / "a").mkdir()
    train_encoder(straight, store, np.arange(n), settings, 3, Folder(tmp_path / "a"))
    (tmp_path / "b").mkdir()
    interrupt(monkeypatch, loop, "_step", 2, 5)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train_encoder(objective(), store, np.arange(n), settings, 3, Folder(tmp_path / "b"))
    resumed = objective()
    train_encoder(resumed, store, np.arange(n), settings, 3, Folder(tmp_path / "b"))
    for (name, a), b in zip(straight.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert (tmp_path / "a" / LOG).read_text() == (tmp_path / "b" / LOG).read_text()


IN_PRECISIONS = [*itertools.product(FAMILIES, ("float32", "bfloat16")), ("bert", "auto"), ("deberta", "auto")]


@pytest.mark.parametrize(("name", "precision"), IN_PRECISIONS)
def test_every_family_trains_resumes_and_exports_in_every_precision(name, precision, family, tmp_path, monkeypatch):
    """On hardware with bfloat16, which 'auto' then takes: no exception, resumed equals straight to the bit, and the
    features of the trained encoder are near those in float32."""
    monkeypatch.setattr(steps, "_native_bfloat16", lambda device: True)
    texts = Texts.from_strings([*(SEQUENCES if name in PROTEINS else TEXTS), ""] * 2)
    m = len(texts)
    start = Pretrained(EncoderConfig(name=family(name)))
    (tmp_path / "tokens").mkdir()
    store = write_tokens(start.tokenizer, texts, 24, tmp_path / "tokens")
    settings = config(precision=precision, batch_nodes=4, epochs=1, gradient_checkpointing=name in ("deberta", "qwen3"))
    trained = []
    for folder, kills in (("straight", ()), ("killed", (2,))):
        (tmp_path / folder).mkdir()
        interrupt(monkeypatch, loop, "_step", *kills)
        for _ in range(1 + len(kills)):
            torch.manual_seed(1)
            encoder = start.load()
            objective = Objective(encoder, nn.Linear(encoder.dim, c), InverseLabels(np.full((m, 2, c), 1 / c)), TASK)
            with contextlib.suppress(KeyboardInterrupt), vocabulary.used_vocabulary(encoder, store):
                train_encoder(objective, store, np.arange(m), settings, 0, Folder(tmp_path / folder))
        trained.append(objective)
    before, after = start.load().state_dict(), trained[0].encoder.state_dict()
    assert any(not torch.equal(before[key], after[key]) for key in before)
    for (key, a), b in zip(trained[0].state_dict().items(), trained[1].state_dict().values(), strict=True):
        assert torch.equal(a, b), key
    assert all(value.isfinite().all() for value in after.values())
    encoder.save(tmp_path / "saved")
    exported = []
    for asked in (precision, "float32"):
        encoder = start.load()
        encoder.restore(tmp_path / "saved")
        (tmp_path / f"to {len(exported)}").mkdir()
        export_features(encoder, store, Folder(tmp_path / f"to {len(exported)}"), asked)
        exported.append(torch.from_numpy(np.load(tmp_path / f"to {len(exported)}" / "values.npy")).float())
    told = np.arange(m) % 5 < (4 if name in PROTEINS else 5)  # an empty sequence has no residues, and zeros
    assert torch.cosine_similarity(*(x[told] for x in exported)).min() > 0.99
    assert torch.equal(*exported) == (precision == "float32")


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")  # torch takes it for the real "meta"
def test_on_another_device_training_resuming_and_exporting_give_the_same(store, tmp_path, monkeypatch):
    """Encoder, psi, targets, split weighting, used word vectors, optimiser and checkpoint, all elsewhere."""
    monkeypatch.setattr(torch, "inference_mode", torch.no_grad)  # which wrapped tensors do not know
    gold = np.arange(n) < 10
    states = []
    for device in (torch.device("cpu"), DEVICE):
        (tmp_path / device.type).mkdir()
        for number, kills in enumerate(((3,), ())):
            interrupt(monkeypatch, loop, "_step", *kills)
            one = objective()
            one.pseudo_weight, one.gold = 0.3, gold
            with elsewhere(), contextlib.suppress(KeyboardInterrupt):
                one.to(device)
                with vocabulary.used_vocabulary(one.encoder, store):
                    train_encoder(one, store, np.arange(n), config(epochs=1), 0, Folder(tmp_path / device.type))
                    assert number == 1
        with elsewhere():
            assert {p.device for p in one.parameters()} == {device}
            export_features(one.encoder, store, Folder(tmp_path / device.type), "float32")
            states.append({name: tensor.cpu() for name, tensor in one.state_dict().items()})
    for name, tensor in states[0].items():
        torch.testing.assert_close(tensor, states[1][name], atol=1e-6, rtol=1e-5, msg=name)
    here, there = (np.load(tmp_path / kind / "values.npy").astype(np.float32) for kind in ("cpu", "meta"))
    np.testing.assert_allclose(here, there, atol=2e-3)
    assert np.abs(here).sum(1).min() > 0


def test_equal_attributes_go_through_the_encoder_once_with_equal_gradients(store):
    """Without dropout; 40 nodes have 15 different texts."""
    a, b = objective().eval(), objective().eval()
    ids = np.arange(n)
    a(ids, *store.batch(ids)).backward()
    (batch,) = loop._prepare(store, [ids])
    assert [len(x) for x in batch.inputs] == [15, 15]
    b(batch.ids, *batch.inputs, same=batch.same).backward()
    for (name, p), q in zip(a.named_parameters(), b.parameters(), strict=True):
        if p.grad is not None:
            torch.testing.assert_close(p.grad, q.grad, atol=1e-6, rtol=1e-4, msg=name)
    (batch,) = loop._prepare(store, [np.array([3, 1, 2])])
    assert batch.same is None
    assert torch.equal(batch.inputs[0], store.batch(np.array([3, 1, 2]))[0])


def test_accumulation_equals_one_large_batch(store, tmp_path):
    """Without dropout, gradients of a group equal those of the joined batch."""
    a, b = objective().eval(), objective().eval()
    ids = np.arange(12)
    a(ids, *store.batch(ids)).backward()
    for part in (ids[:5], ids[5:]):
        (b(part, *store.batch(part)) * (len(part) / 12)).backward()
    for (name, p), q in zip(a.named_parameters(), b.parameters(), strict=True):
        if p.grad is not None:
            torch.testing.assert_close(p.grad, q.grad, atol=1e-6, rtol=1e-4, msg=name)


def test_bfloat16_and_gradient_checkpointing_run(store, tmp_path):
    run = train_encoder(
        objective(),
        store,
        np.arange(n),
        config(epochs=1, precision="bfloat16", gradient_checkpointing=True),
        0,
        Folder(tmp_path),
    )
    (tmp_path / "float32").mkdir()
    full = train_encoder(objective(), store, np.arange(n), config(epochs=1), 0, Folder(tmp_path / "float32"))
    assert run.loss == pytest.approx(full.loss, rel=0.02)
    assert run.loss != full.loss


def test_gradient_checkpointing_changes_nothing(store, tmp_path):
    losses = []
    for on in (False, True):
        (tmp_path / str(on)).mkdir()
        settings = config(epochs=1, gradient_checkpointing=on)
        losses.append(train_encoder(objective(), store, np.arange(n), settings, 0, Folder(tmp_path / str(on))).loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_training_the_used_word_vectors_alone_equals_training_all(store, tmp_path, monkeypatch):
    trained = []
    for worth in (0.8, 0.0):  # 0: every vocabulary counts as used up, so nothing is left out
        monkeypatch.setattr(vocabulary, "WORTH", worth)
        one = objective()
        (tmp_path / str(worth)).mkdir()
        with vocabulary.used_vocabulary(one.encoder, store):
            train_encoder(one, store, np.arange(n), config(weight_decay=0.0), 0, Folder(tmp_path / str(worth)))
        trained.append(one.encoder.state_dict())
    assert trained[0].keys() == trained[1].keys()
    for name, tensor in trained[0].items():
        torch.testing.assert_close(tensor, trained[1][name], atol=1e-5, rtol=1e-4, msg=name)


def test_unused_word_vectors_stay_as_pretrained(store, tmp_path):
    one = objective()
    before = one.encoder.model.get_input_embeddings().weight.detach().clone()
    with vocabulary.used_vocabulary(one.encoder, store):
        train_encoder(one, store, np.arange(n), config(), 0, Folder(tmp_path))
    embedding = one.encoder.model.get_input_embeddings()
    assert isinstance(embedding, torch.nn.Embedding)
    moved = (embedding.weight != before).any(1).numpy()
    used = np.zeros(len(moved), bool)
    used[vocabulary.used_tokens(store, len(moved), set())] = True
    assert (moved == used).all()
    assert 3 <= used.sum() < 0.2 * len(used)


class Fixed(nn.Module):
    """Stands for an encoder: 'tokens' are the features."""

    def forward(self, input_ids, attention_mask):
        return input_ids


def loss_of(pseudo_weight, ids, gold):
    x = torch.tensor([[2.0, 0], [0, 1], [1, 1]])
    targets = TrueLabels(np.array([0, 0, 1]), Task("multiclass", 2))
    objective = Objective(Fixed(), nn.Identity(), targets, Task("multiclass", 2), 0.0, pseudo_weight, gold)
    return float(objective(ids, x[ids], torch.ones(len(ids), 1)))


def test_split_weighting_of_the_authors():
    ids, gold = np.arange(3), np.array([True, False, False])
    each = [loss_of(None, np.array([i]), gold) for i in ids]
    assert loss_of(None, ids, gold) == pytest.approx(np.mean(each))
    assert loss_of(0.8, ids, gold) == pytest.approx(0.2 * each[0] + 0.8 * np.mean(each[1:]))
    assert loss_of(0.8, np.array([0]), gold) == pytest.approx(0.2 * each[0])  # an empty group counts nothing


@pytest.fixture
def optimizer():
    targets = InverseLabels(np.ones((3, 2, 4), np.float32))
    objective = Objective(load_encoder(EncoderConfig(name="tiny")), Psi(GCN(32, 4)), targets, Task("multiclass", 4))
    return objective, make_optimizer(objective, TrainConfig(lr=1e-5, psi_lr=1e-3, gamma_lr=1e-1, weight_decay=0.1))


def test_each_part_has_its_rate_and_only_matrices_decay(optimizer):
    objective, opt = optimizer
    rates = {id(p): (g["peak_lr"], g["weight_decay"]) for g in opt.param_groups for p in g["params"]}
    for part, lr in ((objective.encoder, 1e-5), (objective.head, 1e-3)):
        for p in part.parameters():
            assert rates[id(p)] == (lr, 0.1 if p.ndim > 1 else 0.0)
    assert rates[id(objective.targets.gamma_logits)] == (1e-1, 0.0)


ARCHITECTURE = Architecture.of(GNNConfig(hidden=16, dropout=0.0))


@dataclass
class OfGNN:
    """A trained GNN as a stage's artefact."""

    weights: object
    content_key: str = "gnn"


def test_psi_head_starts_fresh_at_a_bias_or_from_a_gnn(tmp_path):
    bias = np.array([0.5, -1.0, 2.0], np.float32)
    psi = PsiHead(ARCHITECTURE, c, "layer", bias).build(8, nn.Identity(), np.empty(0))
    assert psi.gnn.output_bias.tolist() == bias.tolist()
    assert any(isinstance(module, nn.LayerNorm) for module in psi.modules())
    trained = ARCHITECTURE.build(8, c)
    save_file(trained.state_dict(), tmp_path / "gnn.safetensors")
    start = OfGNN(tmp_path / "gnn.safetensors")
    warm = PsiHead(ARCHITECTURE, c, "batch", None, start).build(8, nn.Identity(), np.empty(0))
    for (name, p), q in zip(warm.gnn.named_parameters(), trained.parameters(), strict=True):
        assert torch.equal(p, q), name


def test_psi_with_heads_starts_as_the_gnn_in_all_and_keeps_the_first(tmp_path):
    trained = ARCHITECTURE.build(8, c)
    save_file(trained.state_dict(), tmp_path / "gnn.safetensors")
    head = PsiHead(ARCHITECTURE, c, "batch", None, OfGNN(tmp_path / "gnn.safetensors"), heads=3)
    psi = head.build(8, nn.Identity(), np.empty(0)).eval()
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(psi(x), trained.eval().psi(x).repeat(1, 3))
    for tensor in psi.parameters():
        tensor.data.add_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(1)))
    small = ARCHITECTURE.build(8, c).eval()
    small.load_state_dict(head.kept(psi))
    torch.testing.assert_close(small.psi(x), psi(x)[:, :c])
    bias = np.array([0.5, -1.0, 2.0], np.float32)
    tiled = PsiHead(ARCHITECTURE, c, "batch", bias, heads=2).build(8, nn.Identity(), np.empty(0))
    assert tiled.gnn.output_bias.tolist() == [*bias, *bias]


def test_linear_head_is_torchs_layer_and_starts_at_a_bias():
    torch.manual_seed(1)
    head = LinearHead(c).build(8, nn.Identity(), np.empty(0))
    torch.manual_seed(1)
    expected = nn.Linear(8, c)
    assert torch.equal(head.weight, expected.weight)
    assert torch.equal(head.bias, expected.bias)
    start = np.array([0.5, -1.0, 2.0], np.float32)
    assert LinearHead(c, start).build(8, nn.Identity(), np.empty(0)).bias.tolist() == start.tolist()


def test_logits_of_a_linear_head(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "ROWS", 7)
    rng = np.random.default_rng(0)
    W, b, x = (rng.normal(size=shape).astype(np.float32) for shape in ((c, 8), (c,), (20, 8)))
    save_file({"weight": torch.from_numpy(W), "bias": torch.from_numpy(b)}, tmp_path / "head.safetensors")
    np.testing.assert_allclose(psi_logits(LinearHead(c), tmp_path / "head.safetensors", x), x @ W.T + b, atol=1e-5)


def test_psi_logits_are_psi_over_all_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "ROWS", 7)
    trained = ARCHITECTURE.build(8, c).eval()
    save_file(trained.state_dict(), tmp_path / "head.safetensors")
    x = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float16)
    found = psi_logits(PsiHead(ARCHITECTURE, c), tmp_path / "head.safetensors", x)
    expected = trained.psi(torch.from_numpy(x.astype(np.float32))).detach()
    torch.testing.assert_close(torch.from_numpy(found), expected)


@pytest.fixture
def arguments():
    """What the stage takes: tokens, weights, head, targets, nodes, settings and seed."""
    start = Pretrained(EncoderConfig(name="tiny"))
    kept = tokens(Texts.from_strings("abc"[i % 3] * (3 + i % 5) for i in range(n)), start.tokenizer, 32)
    head, targets = PsiHead(ARCHITECTURE, c), TrueTargets(np.arange(n) % c, TASK)
    return kept, Weights(start), head, targets, np.arange(0, n, 2), config(epochs=2, precision="float32"), 0


def test_stage_trains_saves_and_reports(arguments):
    run = train(*arguments)
    assert (run.steps, run.encoder_nodes, run.batch, run.subgraph, run.gamma) == (6, 40, 6.7, 6.7, None)
    assert len(run.log.read_text().splitlines()) == 6
    assert sorted(p.name for p in run.made.path.iterdir()) == ["encoder", "head.safetensors", "stage.json", LOG]
    trained = arguments[1].with_trained(run).load()
    assert trained.weights_key() != arguments[1].content_key
    assert set(run.step_seconds) >= {"encoder", "psi", "targets", "backward", "update"}
    X = features(arguments[0], arguments[1].with_trained(run), "float32")
    predicted = predict(run, X, arguments[2])
    np.testing.assert_array_equal(predicted.logits, psi_logits(arguments[2], run.head, X.values))
    assert predicted.logits.shape == (n, c)


def test_stage_is_repeatable_and_its_key_sees_what_it_reads(arguments, tmp_path):
    kept, weights, head, targets, nodes, settings, seed = arguments
    with session(Cache(tmp_path / "one")):
        first = train(*arguments)
    with session(Cache(tmp_path / "two")):
        second = train(*arguments)
    assert first.head.read_bytes() == second.head.read_bytes()
    files = [run.encoder / "model.safetensors" for run in (first, second)]
    assert files[0].read_bytes() == files[1].read_bytes()
    changed = [
        (kept, weights, head, targets, nodes, settings, 1),
        (kept, weights, head, targets, nodes[1:], settings, seed),
        (kept, weights, head, TrueTargets((np.arange(n) + 1) % c, TASK), nodes, settings, seed),
        (kept, weights, LinearHead(c), targets, nodes, settings, seed),
        (kept, weights, PsiHead(ARCHITECTURE, c, "layer"), targets, nodes, settings, seed),
        (kept, weights, head, targets, nodes, config(epochs=3), seed),
        (kept, Weights(Pretrained(EncoderConfig(name="tiny", layers=1))), head, targets, nodes, settings, seed),
    ]
    keys = {train.key(*arguments), *(train.key(*given) for given in changed)}
    assert len(keys) == len(changed) + 1
    same = config(epochs=2, checkpoint_minutes=5.0, psi_norm="layer", psi_init="gnn")  # the head's, or idle
    assert train.key(kept, weights, head, targets, nodes, same, seed) == train.key(*arguments)


def test_stage_learns_gamma(arguments):
    kept, weights, head, _, nodes, settings, seed = arguments
    Y = pseudo_of(np.arange(n) % c)
    run = train(kept, weights, head, InverseTargets(Y, 1.0, TASK), nodes, settings, seed)
    assert len(run.gamma) == 2
    assert run.gamma[0] != 0.5
    plain = train(kept, weights, head, InverseTargets(Y, 0.0, TASK), nodes, settings, seed)
    assert plain.gamma is None


@dataclass
class KeptHops:
    """Hop labels as a stage's artefact."""

    values: np.ndarray
    content_key: str = "k"


def pseudo_of(labels):
    K = np.eye(c, dtype=np.float32)[labels][:, None].repeat(2, 1)
    K[:, 1] = 0.8 * K[:, 1] + 0.2 / c
    return KeptHops(K)


def test_gamma_of_other_targets_is_none():
    assert gamma_of(nn.Identity()) is None
    assert gamma_of(InverseLabels(np.ones((3, 2, 4), np.float32), alpha=0.0)) is None
    assert gamma_of(InverseLabels(np.ones((3, 2, 4), np.float32))) == [0.5, 0.5]


def test_clock_books_every_second_once():
    clock = Clock()
    clock.start()
    begin = time.perf_counter()
    for part, seconds in (("a", 0.02), ("b", 0.01), ("a", 0.02)):
        time.sleep(seconds)
        clock.lap(part)
    passed = time.perf_counter() - begin
    assert clock.seconds["a"] >= 0.04
    assert clock.seconds["b"] >= 0.01
    assert sum(clock.seconds.values()) == pytest.approx(passed, abs=0.01)
    time.sleep(0.03)
    clock.start()  # forgets what passed
    clock.lap("b")
    assert sum(clock.seconds.values()) < passed + 0.02
