"""A head of very many rows: torch's linear layer and AdamW, where all rows are used; else the used ones alone."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.graph.task import Task
from labeldeconv.labels.neighbours import NeighbourOutputs
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import EncoderConfig, TrainConfig
from labeldeconv.stages.keys import token
from labeldeconv.stages.stage import Folder
from labeldeconv.training import encoder as loop
from labeldeconv.training.encoder import LOG, Objective, train_encoder
from labeldeconv.training.moments import CompactAdamW
from labeldeconv.training.output_rows import OutputRows, RowAdamW, RowsHead
from tests.samples import interrupt, letter_tokens, random_edges

n = 40


def test_logits_are_those_of_a_linear_layer():
    head = OutputRows(8, 20)
    head.bias.data.normal_()
    layer = nn.Linear(8, 20)
    layer.weight.data, layer.bias.data = head.weight.data, head.bias.data[:, 0]
    x, chosen = torch.randn(5, 8), torch.tensor([3, 19, 0])
    torch.testing.assert_close(head(x, chosen), layer(x)[:, chosen])


def test_only_used_rows_get_a_gradient_and_move():
    torch.manual_seed(0)
    head = OutputRows(8, 1000)
    before = head.weight.detach().clone()
    optimizer = RowAdamW(head.parameters(), lr=0.1, weight_decay=0.5, fused=True)
    chosen = torch.tensor([7, 999, 31])
    for _ in range(2):
        head(torch.randn(5, 8), chosen).square().sum().backward()
        assert head.weight.grad.is_sparse
        assert head.weight.grad.coalesce().indices().tolist() == [[7, 31, 999]]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    moved = (head.weight.detach() != before).any(1)
    assert moved.nonzero()[:, 0].tolist() == [7, 31, 999]
    assert optimizer.state[head.weight]["step"][chosen].tolist() == [2, 2, 2]
    assert float(optimizer.state[head.weight]["step"].sum()) == 6


@pytest.mark.parametrize("states", ["float32", "bfloat16", "8bit"])
def test_with_all_rows_used_it_is_adamw(states):
    """Against torch's, or that with short moments, with dense gradients; a parameter beside it decays as in torch."""
    torch.manual_seed(0)
    head, dense = OutputRows(16, 20), nn.Linear(16, 20)
    dense.load_state_dict({"weight": head.weight.data, "bias": head.bias.data[:, 0]})
    beside = [nn.Parameter(torch.ones(3)) for _ in range(2)]
    ours = RowAdamW([*head.parameters(), beside[0]], states, lr=0.05, weight_decay=0.3, fused=True)
    theirs = [CompactAdamW(dense.parameters(), states, lr=0.05, weight_decay=0.0)]
    theirs += [torch.optim.AdamW([beside[1]], lr=0.05, weight_decay=0.3)]
    for _ in range(6):
        x = torch.randn(5, 16)
        (head(x, torch.randperm(20)).sigmoid().square().sum() + beside[0].pow(3).sum()).backward()
        (dense(x).sigmoid().square().sum() + beside[1].pow(3).sum()).backward()
        for optimizer in (ours, *theirs):
            optimizer.step()
            optimizer.zero_grad()
    apart = (
        {} if states == "float32" else {"atol": 0.005, "rtol": 0}
    )  # a last bit decides which way a moment is rounded
    torch.testing.assert_close(head.weight, dense.weight, **apart)
    torch.testing.assert_close(head.bias[:, 0], dense.bias)
    torch.testing.assert_close(*beside)


def test_a_row_that_comes_late_moves_by_no_more_than_the_rate():
    """Its moments are corrected by its own count of steps; by the optimiser's, the first step would be 3.2 times it."""
    head = OutputRows(4, 10)
    optimizer = RowAdamW(head.parameters(), lr=0.01, fused=True)
    for k in range(50):
        before = head.weight.detach().clone()
        head(torch.randn(5, 4), torch.tensor([0 if k < 49 else 5])).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    step = (head.weight.detach() - before)[5].abs()
    torch.testing.assert_close(step, torch.full((4,), 0.01), rtol=1e-3, atol=0)


def targets(negatives=None):
    adj = Adjacency.from_edges(random_edges(n, 60), n)
    return NeighbourOutputs(adj, np.arange(n), n, negatives)


def test_it_starts_at_frequencies_and_at_the_rows_of_the_level_above(tmp_path):
    coarse = torch.randn(4, 8)
    save_file({"weight": coarse, "bias": torch.zeros(4, 1)}, tmp_path / "head.safetensors")
    parents = np.arange(n) % 4
    goal, nodes = targets(), np.arange(5, n)
    head = RowsHead(n, Kept(tmp_path / "head.safetensors"), parents).build(8, goal, nodes)
    assert torch.equal(head.weight.data, coarse[torch.from_numpy(parents)])
    share = ((goal.adj.dense() > 0)[nodes].sum(0) + 0.5) / (len(nodes) + 1)
    np.testing.assert_allclose(head.bias.detach()[:, 0], np.log(share / (1 - share)), rtol=1e-4)
    torch.manual_seed(3)
    fresh = RowsHead(n).build(8, goal, nodes)
    torch.manual_seed(3)
    assert not torch.equal(fresh.weight, head.weight)
    assert float(fresh.weight.detach().abs().max()) <= 1 / np.sqrt(8)


@dataclass
class Kept:
    """A trained head as a stage's artefact."""

    head: Path
    content_key: str = "k"


def test_keys():
    held = [RowsHead(4), RowsHead(5), RowsHead(4, Kept(Path("a"), "a")), RowsHead(4, Kept(Path("a"), "b"))]
    assert len({str(token(head)) for head in held}) == 4
    assert token(RowsHead(4, None, np.arange(4))) == token(RowsHead(4))


def objective(negatives):
    torch.manual_seed(0)
    goal = targets(negatives)
    head = RowsHead(n).build(32, goal, np.arange(n))
    return Objective(load_encoder(EncoderConfig(name="tiny")), head, goal, Task("multilabel", n))


SETTINGS = TrainConfig(epochs=2, lr=1e-3, batch_nodes=8, precision="float32", checkpoint_minutes=0.0, accumulate=2)


@pytest.mark.parametrize("negatives", [None, 5])
def test_the_encoder_loop_learns_neighbours(negatives, tmp_path):
    store = letter_tokens(n, tmp_path / "tokens")
    one = objective(negatives)
    settings = SETTINGS.model_copy(update={"epochs": 12, "psi_lr": 1e-1, "accumulate": 1})
    train_encoder(one, store, np.arange(n), settings, 0, Folder(tmp_path))
    losses = [json.loads(line)["loss"] for line in (tmp_path / LOG).read_text().splitlines()]
    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:10])
    assert all(np.isfinite(losses))


def test_resumed_equals_straight_to_the_bit(tmp_path, monkeypatch):
    """Draws of outputs, sparse moments and counts of steps come back from the checkpoint."""
    store = letter_tokens(n, tmp_path / "tokens")
    straight = objective(5)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    train_encoder(straight, store, np.arange(n), SETTINGS, 3, Folder(tmp_path / "a"))
    interrupt(monkeypatch, loop, "_step", 3)
    with pytest.raises(KeyboardInterrupt):
        train_encoder(objective(5), store, np.arange(n), SETTINGS, 3, Folder(tmp_path / "b"))
    resumed = objective(5)
    train_encoder(resumed, store, np.arange(n), SETTINGS, 3, Folder(tmp_path / "b"))
    for (name, a), b in zip(straight.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert (tmp_path / "a" / LOG).read_text() == (tmp_path / "b" / LOG).read_text()
