"""The race of GNNs: halving, the final, the budget, and that neither test labels nor a kill can change the choice."""

import json
import math
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest

from labeldeconv import GNN, compare, fit, planted
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.gnns.base import GNNS
from labeldeconv.gnns.workload import SPEED
from labeldeconv.graph.task import RegressionTask, Task
from labeldeconv.methods import gnn_race as module
from labeldeconv.methods.gnn_race import SEEDS, _Heats
from labeldeconv.training import gnn as loop
from tests.samples import interrupt

QUICK = {"encoder": "tiny", "encoder__max_tokens": 16, "gnn__hidden": 8, "gnn__epochs": 8, "train__epochs": 1}
THREE = ["gcn", "appnp", "mlp"]


@dataclass(eq=False)
class Scripted:
    """A contestant whose score is a function of epochs and seed, as no real one's is."""

    name: str
    score: object
    work: float = 1.0
    epochs: int = 160
    trained: list = field(default_factory=list)

    run = SimpleNamespace(task=Task("multiclass", 4))

    def train(self, epochs, seed):
        self.trained.append((epochs, seed))
        val = self.score(epochs, seed) if callable(self.score) else self.score
        made = SimpleNamespace(seconds=2.0, peak_mib=100.0, key=f"{self.name} {epochs} {seed}")
        return SimpleNamespace(val=val, made=made)


def raced(*contestants, minutes=100.0):
    heats = _Heats(contestants, minutes)
    chosen, reason = heats.run()
    return chosen, reason, heats.known


def test_every_heat_keeps_the_better_half_and_two_meet_in_a_final():
    many = [Scripted(f"g{i}", 0.1 * i) for i in range(6)]
    chosen, reason, known = raced(*many)
    assert chosen == "g5"
    assert [c.trained for c in many[:3]] == [[(20, 0)]] * 3
    assert many[3].trained == [(20, 0), (40, 0)]
    for finalist in many[4:]:
        assert finalist.trained == [(20, 0), (40, 0), *((160, seed) for seed in SEEDS)]
    assert known["g0"].dropped == "place 6 of 6 after 20 epochs"
    assert known["g3"].dropped == "place 3 of 3 after 40 epochs"
    assert known["g4"].dropped == "place 2 of 2 after 160 epochs, mean of 3 seeds"
    assert (known["g5"].dropped, known["g5"].epochs, known["g5"].seeds, known["g5"].seconds) == ("", 160, 3, 10.0)
    assert reason == (
        "g5 has the best accuracy on the validation nodes, 50.00% against 40.00% of g4, after 160 epochs "
        "(means of 3 seeds). 4 others were behind in shorter trainings."
    )


def test_short_trainings_are_not_shorter_than_20_epochs():
    """Of 50 epochs heats have 20 and 25, not 6 and 12; the last heat leaves two. Of 10 epochs one heat has all."""
    many = [Scripted(f"g{i}", 0.1 * i, epochs=50) for i in range(7)]
    assert raced(*many)[0] == "g6"
    assert [len(c.trained) for c in many] == [1, 1, 1, 2, 2, 5, 5]
    assert many[6].trained[:2] == [(20, 0), (25, 0)]
    few = [Scripted(f"g{i}", 0.1 * i, epochs=10) for i in range(7)]
    chosen, _, known = raced(*few)
    assert [len(c.trained) for c in few] == [1, 1, 1, 1, 1, 4, 4]
    assert (chosen, known["g6"].seconds) == ("g6", 6.0)  # the training of the heat is one of the final's


def test_the_mean_over_seeds_decides_and_not_the_luck_of_one():
    lucky = Scripted("lucky", lambda epochs, seed: 0.9 if seed == 0 else 0.5)
    steady = Scripted("steady", 0.7)
    assert raced(lucky, steady)[0] == "steady"


def test_equal_scores_keep_the_order_and_a_score_that_is_no_number_is_the_worst():
    assert raced(Scripted("a", 0.5), Scripted("b", 0.5))[0] == "a"
    assert raced(Scripted("a", math.nan), Scripted("b", 0.0), Scripted("c", 0.1))[0] == "c"


def test_a_metric_that_is_better_when_lower_turns_the_race_round():
    task = SimpleNamespace(task=RegressionTask("regression", 1, "mae"))
    many = [Scripted(name, score) for name, score in (("a", 3.0), ("b", 1.25), ("c", math.nan), ("d", 2.0))]
    for one in many:
        one.run = task
    chosen, reason, known = raced(*many)
    assert (chosen, known["c"].score) == ("b", None)
    assert reason.startswith("b has the best MAE on the validation nodes, 1.25 against 2 of d, after 160 epochs")


def test_too_slow_a_candidate_never_starts():
    """20 of 160 epochs at 6 operations are 120, and a quarter of the budget of 400 is 100."""
    slow, others = Scripted("slow", 0.9, work=6.0), [Scripted("a", 0.1, work=0.2), Scripted("b", 0.2, work=0.2)]
    chosen, _, known = raced(slow, *others, minutes=400 / SPEED / 60)
    assert (chosen, slow.trained) == ("b", [])
    assert known["slow"].dropped.startswith("too slow: 20 epochs would take about")


def test_the_budget_ends_the_race_where_it_stands():
    """The floor of 12 x 160 counts, 1920: the first heat takes 20 x 13, and each seed of the final 160 x 8."""
    many = [Scripted(f"g{i}", 0.1 * i, work=4.0 if i else 1.0) for i in range(4)]
    chosen, reason, known = raced(*many, minutes=400 / SPEED / 60)
    assert chosen == "g3"
    assert "The budget did not allow a final" in reason
    assert known["g3"].seeds == 1
    assert len(many[3].trained) == 1


def test_large_graphs_have_a_floor():
    """However few minutes: 12 trainings of the cheapest; here a heat of 20 epochs and a final of three seeds fit."""
    three = [Scripted(f"g{i}", 0.1 * i) for i in range(3)]
    chosen, reason, known = raced(*three, minutes=1e-9)
    assert chosen == "g2"
    assert known["g2"].seeds == 3
    assert "budget" not in reason


def test_one_candidate_needs_no_race():
    alone = Scripted("alone", 0.3)
    assert raced(alone)[:2] == ("alone", "alone: the only GNN that can run here.")
    assert alone.trained == []


@pytest.fixture
def graph():
    return planted(60, seed=0, num_classes=4).graph


def test_fit_races_by_default_and_goes_on_with_the_winners_stage(graph, tmp_path, raced_default):
    """All GNNs of the list race; what the winner was trained to in the final is PNE's GNN, to the stage."""
    result = fit(graph, method="pne", out=tmp_path / "a", **QUICK)
    names = [c["name"] for c in result.race["candidates"]]
    assert sorted(names) == sorted(GNNS.first)
    assert names[0] == result.race["chosen"] == result.settings["gnn"]["name"]
    assert [bool(c["dropped"]) for c in result.race["candidates"]] == [False, *[True] * 9]
    assert "gnn" in result.cached
    assert "gnn race" not in result.cached
    assert json.loads((result.run / "race.json").read_text()) == result.race
    assert result.run.name == "a"
    named = fit(graph, method="pne", gnn=names[0], out=tmp_path / "b", **QUICK)
    assert named.race is None
    assert named.stages["gnn"] == result.stages["gnn"]
    np.testing.assert_array_equal(named.logits, result.logits)


def test_methods_and_seeds_share_one_race(graph, tmp_path):
    words = {**QUICK, "gnn__candidates": THREE}
    table = compare(graph, ["pne", "ld"], gnns=["auto", "gcn"], seeds=2, out=tmp_path / "c", **words)
    results = [json.loads((tmp_path / "c" / cell / "result.json").read_text()) for cell in table.rows[0].cells]
    results += [json.loads((tmp_path / "c" / cell / "result.json").read_text()) for cell in table.rows[1].cells]
    assert len({r["stages"]["gnn race"] for r in results}) == 1
    assert sum("gnn race" not in r["cached"] for r in results) == 1
    chosen = results[0]["race"]["chosen"]
    assert [row.gnn for row in table.rows] == [f"auto ({chosen})"] * 2 + ["gcn"] * 2
    assert table.rows[0].cells == ("pne-auto-0", "pne-auto-1")


def test_test_labels_do_not_matter(graph, tmp_path):
    """All labels of test nodes are changed: the same GNN, the same candidates, and the same bytes."""
    labels = np.array(graph.labels)
    test = graph.split.test
    labels[test] = (labels[test] + 1) % 4
    flipped = replace(graph, labels=labels)
    words = {**QUICK, "gnn": "auto", "gnn__candidates": [*THREE, "sage"]}
    one = fit(graph, out=tmp_path / "a", cache=tmp_path / "cache-a", **words)
    other = fit(flipped, out=tmp_path / "b", cache=tmp_path / "cache-b", **words)
    assert other.test != one.test
    assert other.stages == one.stages
    assert _without_seconds(other.race) == _without_seconds(one.race)
    for name in ("features.npy", "logits.npy", "gnn.safetensors", "config.toml"):
        assert (other.run / name).read_bytes() == (one.run / name).read_bytes(), name


def _without_seconds(race):
    return {**race, "candidates": [{**c, "seconds": 0} for c in race["candidates"]]}


def test_a_killed_race_goes_on_and_ends_the_same(graph, tmp_path, monkeypatch):
    words = {**QUICK, "method": "pne", "gnn": "auto", "gnn__candidates": THREE, "gnn__checkpoint_minutes": 0.0}
    straight = fit(graph, out=tmp_path / "a", cache=tmp_path / "cache-a", **words)
    calls = interrupt(monkeypatch, loop, "_epoch", 12)
    with pytest.raises(KeyboardInterrupt):
        fit(graph, out=tmp_path / "b", cache=tmp_path / "cache-b", **words)
    resumed = fit(graph, out=tmp_path / "b", cache=tmp_path / "cache-b", **words)
    assert len(calls) - 1 == _epochs_of(straight.race)  # no epoch was run twice
    assert _without_seconds(resumed.race) == _without_seconds(straight.race)
    assert resumed.stages == straight.stages
    np.testing.assert_array_equal(resumed.logits, straight.logits)


def _epochs_of(race):
    """Three candidates have a heat of 8 epochs, all there are, and the last two go on to two other seeds."""
    assert [c["seeds"] for c in race["candidates"]] == [3, 3, 1]
    return 3 * 8 + 2 * 2 * 8


def test_the_rate_of_a_heat_rises_and_falls_within_it(graph, tmp_path):
    """A warm-up of 4 of 40 epochs is 2 of a heat of 20."""
    seen = []
    real = module.Contestant._with

    def with_(self, epochs, seed):
        run = real(self, epochs, seed)
        seen.append((run.settings.gnn.epochs, run.settings.gnn.warmup_epochs))
        return run

    module.Contestant._with = with_
    try:
        words = {**QUICK, "method": "pne", "gnn": "auto", "gnn__candidates": THREE}
        words |= {"gnn__epochs": 40, "gnn__warmup_epochs": 4}
        fit(graph, out=tmp_path / "a", **words)
    finally:
        module.Contestant._with = real
    assert set(seen) == {(40, 4), (20, 2)}


def test_what_cannot_run_here_is_left_out_with_a_word(graph, tmp_path):
    """Joint training needs steps, which GNNs fed by rows do not have; groups of RevGAT have to divide the width."""
    words = {**QUICK, "gnn": "auto", "gnn__candidates": ["sagn", "gcn"], "joint__epochs": 1}
    result = fit(graph, method="joint-sage", out=tmp_path / "a", **words)
    assert result.race["chosen"] == "gcn"
    assert result.race["reason"] == "gcn: the only GNN that can run here."
    assert result.race["candidates"][1]["dropped"].startswith("cannot run here: joint training: SAGN")
    with pytest.raises(ConfigError, match="joint training: SAGN"):
        fit(graph, method="joint-sage", out=tmp_path / "b", **{**words, "gnn__candidates": ["sagn", "mlp"]})


def test_memory_leaves_out_what_does_not_fit(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "total_memory_mib", lambda: 0.08)
    words = {**QUICK, "method": "pne", "gnn": "auto", "gnn__candidates": ["gat", "mlp", "gcn"]}
    result = fit(graph, out=tmp_path / "a", **words)
    told = {c["name"]: c["dropped"] for c in result.race["candidates"]}
    assert told["gat"].startswith("memory: about ")
    assert told["gat"].endswith("MiB of 0 needed; gnn.batching 'neighbors' takes less")
    assert not told["gcn"].startswith("memory")
    with pytest.raises(ConfigError, match="no candidate fits the memory"):
        fit(graph, out=tmp_path / "b", **{**words, "gnn__candidates": ["gat"]})


def test_given_features_race_without_an_encoder(graph, tmp_path):
    with pytest.raises(DataError, match="has no features of its own"):
        fit(graph, method="given", gnn="auto", out=tmp_path / "a", **QUICK)
    known = replace(graph, features=np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32))
    result = fit(known, method="given", gnn="auto", gnn__candidates=THREE, out=tmp_path / "a", **QUICK)
    assert {label.partition("/")[0] for label in result.stages.values()} == {"given", "gnn_race", "gnn"}


def test_inductive_and_without_validation_nodes(graph, tmp_path):
    words = {**QUICK, "method": "pne", "gnn": "auto", "gnn__candidates": THREE}
    hidden = fit(graph, setting="inductive", out=tmp_path / "a", **words)
    assert hidden.race["candidates"][0]["seeds"] == 3
    roles = np.where(graph.split.roles == 1, 0, graph.split.roles)
    blind = fit(replace(graph, split=replace(graph.split, roles=roles)), out=tmp_path / "b", **words)
    assert blind.race["chosen"] == "gcn"
    assert "no validation nodes" in blind.race["reason"]


def test_wrong_words_are_told_before_anything_runs(graph, tmp_path):
    with pytest.raises(ConfigError, match=r"gnn.name 'gnc': unknown; did you mean 'gcn'"):
        fit(graph, gnn="auto", gnn__candidates=["gnc"], out=tmp_path / "a", **QUICK)
    with pytest.raises(ConfigError, match=r"gnn.options \(norm\): options belong to one GNN; gnn.name expected"):
        fit(graph, gnn="auto", gnn__options={"norm": "none"}, out=tmp_path / "a", **QUICK)
    assert not (tmp_path / "a").exists()


class Constant(GNN):
    """A GNN of one's own in the race."""

    feed = "rows"
    psi_exact = True

    def __init__(self, in_dim, out_dim, *, layers=2, hidden=8, dropout=0.5):
        from torch import nn

        super().__init__(in_dim, out_dim)
        self.linear = nn.Linear(in_dim, out_dim)

    @property
    def hops(self):
        return 0

    def forward(self, rows):
        return 0 * self.linear(rows[:, 0])

    def psi(self, x):
        return 0 * self.linear(x)


def test_a_gnn_of_ones_own_can_race(graph, tmp_path):
    names = [f"{__name__}:Constant", "gcn"]
    result = fit(graph, method="pne", gnn="auto", gnn__candidates=names, out=tmp_path / "a", **QUICK)
    assert {c["name"] for c in result.race["candidates"]} == set(names)
