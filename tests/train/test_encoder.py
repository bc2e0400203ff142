"""The encoder loop: learns, accumulates exactly, resumes exactly."""

import json

import numpy as np
import pytest
import torch
from conftest import letter_store

from labeldeconv.config import EncoderConfig, TrainConfig
from labeldeconv.encoders import vocabulary
from labeldeconv.encoders.text import load_text_encoder
from labeldeconv.gnns.base import Psi
from labeldeconv.gnns.gcn import GCN
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.task import Task
from labeldeconv.train.encoder import LOG, train_encoder
from labeldeconv.train.objective import Objective

n, c = 40, 3
TASK = Task("multiclass", c)


@pytest.fixture
def store(tmp_path):
    return letter_store(n, tmp_path / "tokens")


def objective():
    torch.manual_seed(0)
    K = np.eye(c, dtype=np.float32)[np.arange(n) % c][:, None].repeat(2, 1)
    K[:, 1] = 0.8 * K[:, 1] + 0.2 / c
    encoder = load_text_encoder(EncoderConfig(name="tiny"))
    return Objective(encoder, Psi(GCN(32, c, hidden=16, norm="layer")), InverseLabels(K), TASK)


def config(**settings):
    defaults = {"epochs": 2, "lr": 1e-3, "batch_nodes": 8, "precision": "float32", "checkpoint_minutes": 0.0}
    return TrainConfig(**{**defaults, **settings})


def test_it_learns_and_logs(store, tmp_path):
    run = train_encoder(objective(), store, np.arange(n), config(epochs=12, lr=3e-3), 0, tmp_path)
    rows = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert len(rows) == run.steps == 12 * 5
    assert np.mean([r["loss"] for r in rows[-5:]]) < 0.5 * np.mean([r["loss"] for r in rows[:5]])
    assert run.gamma == rows[-1]["gamma"]
    assert sum(run.gamma) == pytest.approx(1, abs=1e-5)
    assert run.gamma[0] > 0.5  # under cross entropy the sharper hop costs less


def test_resumed_equals_straight_to_the_bit(store, tmp_path, monkeypatch):
    straight = objective()
    (tmp_path / "a").mkdir()
    train_encoder(straight, store, np.arange(n), config(accumulate=2), 3, tmp_path / "a")
    (tmp_path / "b").mkdir()

    import labeldeconv.train.encoder as loop

    real, calls = loop._step, []

    def killed(*args):
        calls.append(1)
        if len(calls) in (2, 5):
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(loop, "_step", killed)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train_encoder(objective(), store, np.arange(n), config(accumulate=2), 3, tmp_path / "b")
    resumed = objective()
    train_encoder(resumed, store, np.arange(n), config(accumulate=2), 3, tmp_path / "b")
    for (name, a), b in zip(straight.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert (tmp_path / "a" / LOG).read_text() == (tmp_path / "b" / LOG).read_text()


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
        tmp_path,
    )
    assert np.isfinite(run.loss)


def test_gradient_checkpointing_changes_nothing(store, tmp_path):
    losses = []
    for on in (False, True):
        (tmp_path / str(on)).mkdir()
        settings = config(epochs=1, gradient_checkpointing=on)
        losses.append(train_encoder(objective(), store, np.arange(n), settings, 0, tmp_path / str(on)).loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_training_the_used_word_vectors_alone_equals_training_all(store, tmp_path, monkeypatch):
    trained = []
    for worth in (0.8, 0.0):  # 0: every vocabulary counts as used up, so nothing is left out
        monkeypatch.setattr(vocabulary, "WORTH", worth)
        one = objective()
        (tmp_path / str(worth)).mkdir()
        with vocabulary.used_vocabulary(one.encoder, store):
            train_encoder(one, store, np.arange(n), config(weight_decay=0.0), 0, tmp_path / str(worth))
        trained.append(one.encoder.state_dict())
    assert trained[0].keys() == trained[1].keys()
    for name, tensor in trained[0].items():
        torch.testing.assert_close(tensor, trained[1][name], atol=1e-5, rtol=1e-4, msg=name)


def test_unused_word_vectors_stay_as_pretrained(store, tmp_path):
    one = objective()
    before = one.encoder.model.get_input_embeddings().weight.detach().clone()
    with vocabulary.used_vocabulary(one.encoder, store):
        train_encoder(one, store, np.arange(n), config(), 0, tmp_path)
    embedding = one.encoder.model.get_input_embeddings()
    assert isinstance(embedding, torch.nn.Embedding)
    moved = (embedding.weight != before).any(1).numpy()
    used = np.zeros(len(moved), bool)
    used[vocabulary.used_tokens(store, len(moved), set())] = True
    assert (moved == used).all()
    assert 3 <= used.sum() < 0.2 * len(used)
