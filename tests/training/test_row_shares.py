"""GNNs fed by rows: two ranks train as one, share the rows evenly, and go on from each other's checkpoints."""

import json
import os
import signal

import numpy as np
import pytest
import torch
from torch import nn

from labeldeconv import fit, planted
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.gnns.norms import SmallBatchNorm
from labeldeconv.settings.models import ConsistencyConfig, GNNConfig, SelfTrainingConfig
from labeldeconv.stages import ranks
from labeldeconv.stages.stage import Folder
from labeldeconv.training import gnn as loop
from labeldeconv.training.gnn import LOG, gnn
from labeldeconv.training.row_shares import SharedBatchNorm, share_norms
from tests.launched import launch
from tests.samples import interrupt

n = 90
STILL = {"input_dropout": 0.0, "attention_dropout": 0.0}  # ranks draw their dropout apart
COMMON = {"layers": 2, "hidden": 16, "dropout": 0.0, "lr": 3e-3, "checkpoint_minutes": 0.0}
BRANCH = {"label_hops": 2, "label_layers": 2, "label_dropout": 0.0}
TWICE = {
    "self_training": SelfTrainingConfig(stages=2, threshold=0.2),
    "consistency": ConsistencyConfig(weight=0.5, warmup_epochs=1, threshold=0.1, final_threshold=0.2),
}
CASES = {
    "sagn, three batches": GNNConfig(name="sagn", epochs=5, batch_rows=20, options={**STILL, **BRANCH}, **COMMON),
    "gamlp in two stages": GNNConfig(name="gamlp", epochs=4, options={**STILL, "attention": "jk"}, **COMMON, **TWICE),
    "many labels, inductive": GNNConfig(name="sagn", epochs=4, batch_rows=30, options=STILL, **COMMON),
}


class X:
    """Features of the nodes, as an artefact has them."""

    values = np.random.default_rng(0).normal(size=(n, 6)).astype(np.float16)
    content_key = "x"


def train_in(folder, name):
    """The stage `gnn` of a case, by as many ranks as there are."""
    folder.mkdir(exist_ok=True)
    config, several = CASES[name], name.startswith("many")
    graph = planted(n, "multilabel" if several else "multiclass", num_classes=4).graph
    return gnn.function(Folder(folder), X(), graph, Architecture.of(config), config, 3, inductive=several)


def told(run):
    return {"logits": run.logits.tolist(), "best_epoch": run.best_epoch, "epochs": run.epochs, "val": run.val}


def rows_of(folder):
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]


def by_ranks(folder):
    """Two ranks: all cases; on from where one process was stopped; and until rank 1 is killed."""
    taken, whole, loss = [], [], loop.Supervision.loss

    def counted(self, logits, ids, every=None):
        taken.append(len(ids))
        whole.append(len(every))
        return loss(self, logits, ids, every)

    loop.Supervision.loss = counted
    with ranks.joined():
        runs = {name: told(train_in(folder / name, name)) for name in CASES}
        assert all(abs(2 * own - every) <= 1 for own, every in zip(taken, whole, strict=True))
        assert max(whole) > 30
        name = next(iter(CASES))
        runs["one, then two"] = told(train_in(folder / "one, then two", name))
        os.environ["LOCAL_WORLD_SIZE"] = "1"
        runs["two machines"] = told(train_in(folder / "two machines", name))
        os.environ["LOCAL_WORLD_SIZE"] = "2"
        (folder / f"told-{ranks.rank()}.json").write_text(json.dumps(runs))
        step, calls = loop._epoch, []

        def killed(*args):
            calls.append(1)
            if len(calls) == 3 and ranks.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return step(*args)

        loop._epoch = killed
        train_in(folder / "two, then one", name)


def test_two_ranks_train_as_one_and_go_on_from_each_other(tmp_path, monkeypatch):
    name = next(iter(CASES))
    (tmp_path / "alone").mkdir()
    alone = {case: told(train_in(tmp_path / "alone" / case, case)) for case in CASES}
    with monkeypatch.context() as patch:
        interrupt(patch, loop, "_epoch", 4)
        with pytest.raises(KeyboardInterrupt):
            train_in(tmp_path / "one, then two", name)
    zero, one = launch(by_ranks, tmp_path / "ranks", tmp_path)
    assert one.code == -signal.SIGKILL
    assert (zero.code, "rank 1" in zero.message, "was killed" in zero.message) == (1, True, True)
    runs = [json.loads((tmp_path / f"told-{rank}.json").read_text()) for rank in (0, 1)]
    assert runs[0] == runs[1]  # to the bit: ranks never drift apart
    runs[0]["two, then one"] = told(train_in(tmp_path / "two, then one", name))
    for case, run in runs[0].items():
        known = alone.get(case, alone[name])
        assert (run["best_epoch"], run["epochs"]) == (known["best_epoch"], known["epochs"])
        assert run["val"] == pytest.approx(known["val"], abs=1e-6)
        losses = [
            [row["loss"] for row in rows_of(folder)]
            for folder in (tmp_path / case, tmp_path / "alone" / (case if case in alone else name))
        ]
        assert len(losses[0]) == len(losses[1]) >= 4
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
        np.testing.assert_allclose(run["logits"], known["logits"], atol=2e-3)


def norm_by_ranks(folder):
    """A norm over the rows of three ranks, of which the last has none: outputs, gradients and averages."""
    with ranks.joined():
        rows = [slice(0, 3), slice(3, 5), slice(5, 5)][ranks.rank()]
        x, grad, norm = norm_inputs()
        outer = nn.Sequential(norm)
        share_norms(outer)
        assert type(outer[0]) is SharedBatchNorm
        assert outer[0].weight is norm.weight
        x = x[rows].requires_grad_()
        out = outer(x)
        out.backward(grad[rows])
        one = outer(x[:1] if ranks.rank() == 0 else x[:0]).detach()  # a batch of one row
        outer.eval()
        held = [out, x.grad, norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var, one, outer(x[:1])]
        return [tensor.tolist() for tensor in held]


def norm_inputs():
    torch.manual_seed(0)
    norm = SmallBatchNorm(4)
    nn.init.normal_(norm.weight)
    return torch.randn(5, 4) * 3 + 10, torch.randn(5, 4), norm


def test_a_norm_of_all_ranks_is_that_of_one_process(tmp_path):
    x, grad, norm = norm_inputs()
    x.requires_grad_()
    out = norm(x)
    out.backward(grad)
    told = [ended.value for ended in launch(norm_by_ranks, tmp_path / "ranks", tmp_path, world=3)]
    for place, wanted in enumerate((out, x.grad)):
        got = np.concatenate([np.reshape(held[place], (-1, 4)) for held in told])
        np.testing.assert_allclose(got, wanted.detach(), atol=2e-5)
    for place, wanted in enumerate((norm.weight.grad, norm.bias.grad), start=2):
        np.testing.assert_allclose(np.sum([held[place] for held in told], axis=0), wanted, atol=2e-5)
    for place, wanted in enumerate((norm.running_mean, norm.running_var), start=4):
        assert told[0][place] == told[1][place] == told[2][place]
        np.testing.assert_allclose(told[0][place], wanted, rtol=1e-5)
    np.testing.assert_allclose(told[0][6], norm(x[:1]).detach(), atol=1e-5)
    np.testing.assert_allclose(told[0][7], norm.eval()(x[:1]).detach(), atol=1e-5)


def fitted(folder, name):
    """A run with SAGN, and with which numbers of ranks its epochs were trained."""
    worlds, epoch = set(), loop._epoch

    def seen(*args):
        worlds.add(ranks.world())
        return epoch(*args)

    loop._epoch = seen
    result = fit(
        "planted:60", method="pne", gnn="sagn", encoder="tiny", out=folder / name, cache=folder / f"{name} cache",
        encoder__max_tokens=16, gnn__hidden=8, gnn__epochs=4, gnn__dropout=0.0, gnn__options=STILL,
    )  # fmt: skip
    loop._epoch = epoch
    kept = sorted(path.name for path in result.run.iterdir())
    return [sorted(worlds), result.val, result.logits.tolist(), kept]


def test_a_run_of_two_ranks_trains_sagn_by_both(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    zero, one = launch(fitted, tmp_path / "ranks", tmp_path, "two")
    assert (zero.code, one.code) == (0, 0)
    assert zero.value == one.value
    alone = fitted(tmp_path, "one")
    assert (zero.value[0], alone[0]) == ([2], [1])
    np.testing.assert_allclose(zero.value[2], alone[2], atol=1e-3)
    assert zero.value[3] == alone[3]
