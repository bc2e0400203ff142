"""GNNs with sampled neighbours: two ranks draw, train and predict as one process does."""

import json
import os

import numpy as np
import pytest
import torch

from labeldeconv import fit, planted
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.propagation import hop_blocks
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import GNNConfig
from labeldeconv.stages import ranks
from labeldeconv.stages.stage import Folder
from labeldeconv.training import gnn as loop
from labeldeconv.training import layerwise
from labeldeconv.training.gnn import LOG, gnn
from labeldeconv.training.seed_shares import SharedNeighborFeed
from tests.launched import launch
from tests.samples import interrupt, random_edges

n = 90
COMMON = {"layers": 2, "hidden": 16, "dropout": 0.0, "lr": 1e-2, "checkpoint_minutes": 0.0, "epochs": 3}
COMMON |= {"batching": "neighbors", "batch_nodes": 20}
STILL = {"input_dropout": 0.0, "attention_dropout": 0.0, "edge_dropout": 0.0}
CASES = {
    "gcn": GNNConfig(name="gcn", fanouts=[3], options={"norm": "layer"}, **COMMON),
    "sage": GNNConfig(name="sage", fanouts=[4, 2], options={"norm": "none"}, **COMMON),
    "gat, inductive": GNNConfig(name="gat", fanouts=[3], options={**STILL, "norm": "layer", "heads": 2}, **COMMON),
    "revgat": GNNConfig(
        name="revgat", fanouts=[3], options={**STILL, "norm": "layer", "heads": 1}, **{**COMMON, "layers": 3}
    ),
}
BATCH_NORM = GNNConfig(name="gcn", fanouts=[3], options={"norm": "batch"}, **COMMON)


class X:
    """Features of the nodes, as an artefact has them."""

    values = np.random.default_rng(0).normal(size=(n, 6)).astype(np.float16)
    content_key = "x"


def train_in(folder, name, config=None):
    """The stage `gnn` of a case, by as many ranks as there are."""
    folder.mkdir(exist_ok=True)
    config = config or CASES[name]
    graph = planted(n, num_classes=4).graph
    return gnn.function(Folder(folder), X(), graph, Architecture.of(config), config, 3, inductive="inductive" in name)


def told(run):
    return {"logits": run.logits.tolist(), "best_epoch": run.best_epoch, "epochs": run.epochs, "val": run.val}


def losses_of(folder):
    return [json.loads(line)["loss"] for line in (folder / LOG).read_text().splitlines()]


def by_ranks(folder):
    """Two ranks: all cases; on from where one process was stopped; as ranks of two machines; and BatchNorm."""
    taken, whole, loss = [], [], loop.Supervision.loss

    def counted(self, logits, ids, every=None):
        taken.append(len(ids))
        whole.append(len(every))
        return loss(self, logits, ids, every)

    loop.Supervision.loss = counted
    with ranks.joined():
        runs = {name: told(train_in(folder / name, name)) for name in CASES}
        assert all(abs(2 * own - every) <= 1 for own, every in zip(taken, whole, strict=True))
        runs["one, then two"] = told(train_in(folder / "one, then two", "gcn"))
        runs["BatchNorm"] = told(train_in(folder / "BatchNorm", "gcn", BATCH_NORM))
        os.environ["LOCAL_WORLD_SIZE"] = "1"
        own = folder / "machines"
        runs["two machines"] = told(train_in(own, "gcn"))
    return runs


def test_two_ranks_train_as_one(tmp_path, monkeypatch):
    (tmp_path / "alone").mkdir()
    alone = {case: told(train_in(tmp_path / "alone" / case, case)) for case in CASES}
    assert len({tuple(run["logits"][0]) for run in alone.values()}) == len(CASES)
    with monkeypatch.context() as patch:
        interrupt(patch, loop, "_epoch", 2)
        with pytest.raises(KeyboardInterrupt):
            train_in(tmp_path / "one, then two", "gcn")
    zero, one = launch(by_ranks, tmp_path / "ranks", tmp_path)
    assert (zero.code, one.code) == (0, 0), zero.message or one.message
    assert zero.value == one.value  # to the bit, with BatchNorm too
    for case, run in zero.value.items():
        if case == "BatchNorm":
            assert np.isfinite(run["logits"]).all()  # a node of both ranks counts twice: not those of one process
            continue
        known, folder = alone.get(case, alone["gcn"]), tmp_path / ("machines" if case == "two machines" else case)
        losses = [losses_of(folder), losses_of(tmp_path / "alone" / (case if case in alone else "gcn"))]
        assert len(losses[0]) == len(losses[1]) == 3
        np.testing.assert_allclose(*losses, rtol=1e-4, err_msg=case)
        assert (run["best_epoch"], run["epochs"]) == (known["best_epoch"], known["epochs"])
        assert run["val"] == pytest.approx(known["val"], abs=1e-6)
        np.testing.assert_allclose(run["logits"], known["logits"], atol=2e-3, err_msg=case)


def drawn(folder):
    """By three ranks: seeds and loss-free outputs of a batch with two seeds, and logits of few and of all nodes."""
    with ranks.joined():
        x, adj, model = drawn_inputs()
        feed = SharedNeighborFeed(x, adj, 2, [2, 2], folder, torch.device("cpu"))
        batch = next(iter(feed.batches(np.array([3, 7]), np.random.default_rng(0))))
        with torch.inference_mode():
            predicted = [feed.predict(model, np.array(ids)).tolist() for ids in ([5], range(30))]
        return [batch.ids.tolist(), batch.whole.tolist(), batch.logits(model).tolist(), predicted]


def drawn_inputs():
    torch.manual_seed(0)
    adj = Adjacency.from_edges(random_edges(30, 200), 30)
    x = np.random.default_rng(1).normal(size=(30, 6)).astype(np.float16)
    config = GNNConfig(name="gcn", layers=2, hidden=8, dropout=0.0, options={"norm": "layer"})
    return x, adj, Architecture.of(config).build(6, 4)


def test_a_rank_draws_for_its_seeds_what_one_process_draws(tmp_path):
    x, adj, model = drawn_inputs()
    feed = loop.make_feed(
        model, x, adj, GNNConfig(**{**COMMON, "batch_nodes": 2}, fanouts=[2, 2]), tmp_path, torch.device("cpu")
    )
    batch = next(iter(feed.batches(np.array([3, 7]), np.random.default_rng(0))))
    with torch.inference_mode():
        expected = batch.logits(model)
        predicted = [
            layerwise.infer(model, x, adj, np.array(i), tmp_path, torch.device("cpu")) for i in ([5], range(30))
        ]
    found = launch(drawn, tmp_path / "ranks", tmp_path, world=3)
    assert [ended.code for ended in found] == [0, 0, 0], [ended.message for ended in found]
    assert [ended.value[0] for ended in found] == [[3], [7], []]  # the third has no seed
    assert all(ended.value[1] == [3, 7] for ended in found)
    rows = np.concatenate([np.reshape(ended.value[2], (-1, 4)) for ended in found])
    np.testing.assert_allclose(rows, expected, atol=1e-6)
    for ended in found:
        for mine, known in zip(ended.value[3], predicted, strict=True):
            np.testing.assert_allclose(mine, known, atol=1e-6)


def fitted(folder):
    """A run with sampled neighbours, and with which numbers of ranks its epochs were trained."""
    worlds, epoch = set(), loop._epoch

    def seen(*args):
        worlds.add(ranks.world())
        return epoch(*args)

    loop._epoch = seen
    result = fit(
        "planted:60", method="pne", gnn="sage", encoder="tiny", out=folder / "run", cache=folder / "cache",
        encoder__max_tokens=16, gnn__hidden=8, gnn__epochs=2, gnn__batching="neighbors",
    )  # fmt: skip
    return [sorted(worlds), result.logits.tolist()]


def test_a_run_of_two_ranks_trains_sage_by_both(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    zero, one = launch(fitted, tmp_path / "ranks", tmp_path)
    assert (zero.code, one.code) == (0, 0), zero.message or one.message
    assert zero.value == one.value
    assert zero.value[0] == [2]
    assert len(zero.value[1]) == 60


def test_which_trainings_are_shared(monkeypatch):
    graph = planted(30, num_classes=4).graph

    def shared(name, batching):
        config = GNNConfig(name=name, batching=batching)
        return loop.by_ranks({"graph": graph, "settings": config, "architecture": Architecture.of(config)})

    asked = [("sagn", "full"), ("gcn", "neighbors"), ("gcn", "full"), ("gcn", "clusters")]
    assert [shared(*case) for case in asked] == [True, True, False, False]
    monkeypatch.setattr(hop_blocks, "free_memory_mib", lambda: 0.001)  # no room for an A-hat of each rank
    assert [shared(*case) for case in asked] == [True, False, False, False]
