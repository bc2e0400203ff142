"""A step by two ranks is a step by one: same losses, gamma, BatchNorm and weights; each goes on from the other."""

import json
import os
import signal

import numpy as np
import pytest
import torch

from labeldeconv import fit
from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.gnns.base import Psi
from labeldeconv.gnns.gcn import GCN
from labeldeconv.graph.task import Task
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.settings.models import EncoderConfig, TrainConfig
from labeldeconv.stages import ranks
from labeldeconv.stages.stage import Folder
from labeldeconv.training import encoder as loop
from labeldeconv.training.encoder import LOG, Objective, train_encoder
from labeldeconv.training.global_batch import share_of
from tests.launched import launch
from tests.samples import interrupt, letter_tokens

n, c = 40, 3
SETTINGS = TrainConfig(
    epochs=2, lr=1e-3, batch_nodes=9, accumulate=2, precision="float32", checkpoint_minutes=0.0, dropout=0.0
)


def train_in(folder, tokens):
    """Train without dropout, with BatchNorm in psi and unequal gold and pseudo nodes; gives the objective."""
    folder.mkdir(exist_ok=True)
    goal = objective()
    train_encoder(goal, tokens, np.arange(n), SETTINGS, 3, Folder(folder))
    return goal


def objective():
    torch.manual_seed(0)
    K = np.eye(c, dtype=np.float32)[np.arange(n) % c][:, None].repeat(2, 1)
    K[:, 1] = 0.8 * K[:, 1] + 0.2 / c
    encoder = load_encoder(EncoderConfig(name="tiny")).eval()
    encoder.train = lambda mode=True: encoder  # its dropout, which ranks draw apart, stays off
    psi = Psi(GCN(32, c, hidden=16, norm="batch", dropout=0.0))
    return Objective(encoder, psi, InverseLabels(K), Task("multiclass", c), 0.0, 0.3, np.arange(n) % 4 == 0)


def logits(state, tokens):
    """What encoder and psi with these weights and statistics of BatchNorm give for all nodes."""
    goal = objective()
    goal.load_state_dict(state)
    goal.eval()
    with torch.inference_mode():
        return goal.head(goal.encoder(*tokens.batch(np.arange(n))))


def rows_of(folder):
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]


def by_ranks(folder, tokens):
    """Two ranks: straight; from where one process was stopped; and until rank 1 is killed."""
    with ranks.joined():
        assert ranks.world() == 2
        for name in ("straight", "one, then two"):
            goal = train_in(folder / name, tokens)
            torch.save(goal.state_dict(), folder / f"{name}.{ranks.rank()}.pt")
        step, calls = loop._step, []

        def killed(*args):
            calls.append(1)
            if len(calls) == 4 and ranks.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return step(*args)

        loop._step = killed
        train_in(folder / "two, then one", tokens)


def test_two_ranks_train_as_one_and_go_on_from_each_other(tmp_path, monkeypatch):
    tokens = letter_tokens(n, tmp_path / "tokens")
    expected = train_in(tmp_path / "expected", tokens).state_dict()
    with monkeypatch.context() as patch:
        interrupt(patch, loop, "_step", 4)
        with pytest.raises(KeyboardInterrupt):
            train_in(tmp_path / "one, then two", tokens)
    assert len(rows_of(tmp_path / "one, then two")) == 3

    zero, one = launch(by_ranks, tmp_path / "ranks", tmp_path, tokens)
    assert one.code == -signal.SIGKILL
    assert zero.code == 1
    assert "rank 1" in zero.message
    assert "was killed" in zero.message
    assert len(rows_of(tmp_path / "two, then one")) == 3  # as far as the last checkpoint
    states = {"two, then one": train_in(tmp_path / "two, then one", tokens).state_dict()}
    for name in ("straight", "one, then two"):
        states[name] = torch.load(tmp_path / f"{name}.0.pt")
        other = torch.load(tmp_path / f"{name}.1.pt")
        assert all(torch.equal(held, other[key]) for key, held in states[name].items())  # ranks never drift apart

    known = rows_of(tmp_path / "expected")
    assert len(known) == 6
    for name, state in states.items():
        rows = rows_of(tmp_path / name)
        np.testing.assert_allclose([r["loss"] for r in rows], [r["loss"] for r in known], rtol=1e-4)
        np.testing.assert_allclose([r["gamma"] for r in rows], [r["gamma"] for r in known], atol=2e-5)
        # Not weight by weight: of those without a true gradient, biases before BatchNorm, AdamW makes steps of noise.
        torch.testing.assert_close(logits(state, tokens), logits(expected, tokens), rtol=1e-2, atol=1e-2)


def three_ranks(folder, tokens):
    with ranks.joined():
        assert ranks.world() == 3
        torch.save(train_in(folder / "three", tokens).state_dict(), folder / f"three.{ranks.rank()}.pt")


def test_three_ranks_train_as_one(tmp_path):
    tokens = letter_tokens(n, tmp_path / "tokens")
    expected = train_in(tmp_path / "expected", tokens).state_dict()
    assert [ended.code for ended in launch(three_ranks, tmp_path / "ranks", tmp_path, tokens, world=3)] == [0, 0, 0]
    states = [torch.load(tmp_path / f"three.{rank}.pt") for rank in range(3)]
    assert all(torch.equal(held, other[key]) for other in states[1:] for key, held in states[0].items())
    known, rows = rows_of(tmp_path / "expected"), rows_of(tmp_path / "three")
    np.testing.assert_allclose([r["loss"] for r in rows], [r["loss"] for r in known], rtol=1e-4)
    np.testing.assert_allclose([r["gamma"] for r in rows], [r["gamma"] for r in known], atol=2e-5)
    torch.testing.assert_close(logits(states[0], tokens), logits(expected, tokens), rtol=1e-2, atol=1e-2)


def fitted(folder, name, gnn):
    result = fit(
        "planted:60", method="ld", gnn=gnn, encoder="tiny", hops=2, out=folder / name, cache=folder / f"{name} cache",
        encoder__max_tokens=16, gnn__hidden=8, gnn__epochs=5, train__epochs=2, train__batch_nodes=16,
    )  # fmt: skip
    return [
        result.val,
        result.test,
        result.gamma,
        result.logits.tolist(),
        sorted(path.name for path in result.run.iterdir()),
    ]


@pytest.mark.parametrize(("machines", "gnn"), [(False, "gcn"), (True, "sagn")])
def test_two_ranks_make_one_run(tmp_path, monkeypatch, machines, gnn):
    """Also as if each were on a machine of its own: features, hop labels and hop features then go by exchanges."""
    monkeypatch.chdir(tmp_path)
    zero, one = launch(fitted, tmp_path / "ranks", tmp_path, "two", gnn, machines=machines)
    assert (zero.code, one.code) == (0, 0)
    assert zero.value == one.value
    RunDirectory.open(tmp_path / "two").verify()
    alone = fitted(tmp_path, "one", gnn)
    np.testing.assert_allclose(zero.value[2], alone[2], atol=0.02)  # dropout is drawn apart
    assert zero.value[4] == alone[4]


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_shares_hold_every_attribute_once_and_even_tokens(world):
    lengths = np.random.default_rng(0).integers(3, 60, 200)
    shares = [share_of(lengths, (0,), world, rank).places.numpy() for rank in range(world)]
    assert sorted(np.concatenate(shares)) == list(range(200))
    sums = [lengths[places].sum() for places in shares]
    assert max(sums) - min(sums) <= 2 * lengths.max()
    few = [share_of(np.array([5]), (0,), world, rank).places for rank in range(world)]
    assert sum(map(len, few)) == 1  # others have nothing to encode
