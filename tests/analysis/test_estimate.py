"""The estimate before a run against what the run then counts."""

import pytest

from labeldeconv import fit, planted
from labeldeconv.analysis.estimate import estimate, work
from labeldeconv.runs.asked import resolve
from labeldeconv.settings.reading import load_config

QUICK = {"encoder.name": "tiny", "train.epochs": 1, "gnn.epochs": 2, "joint.epochs": 1, "joint.batch_nodes": 16}
CASES = {
    "given": {},
    "pne": {},
    "fne": {},
    "wo-ld": {},
    "ld": {"labels.rounds": 2},
    "glem": {"glem.first": "encoder"},
    "giant": {},
    "joint-sage": {},
    "joint-gas": {"joint.max_neighbors": 4},
}


@pytest.mark.parametrize("method", ["joint-sage", "joint-gas"])
def test_joint_training_on_fixed_features_encodes_only_what_it_exports(method, tmp_path):
    if method == "joint-gas":
        pytest.importorskip("pymetis", reason="needs the extra metis")
    graph = planted(80, seed=0, num_features=6).graph
    config = load_config(None, {**QUICK, "method": method, "train.lr": 0.0})
    result = fit(graph, config=config, method=method, out=tmp_path / "r")
    asked = work(graph, config, 2)
    assert asked.trained == result.encoder_nodes_by_stage["train"] == 0
    assert asked.exports * 80 == result.encoder_nodes


@pytest.mark.parametrize("adapt", ["none", "giant"])
@pytest.mark.parametrize("method", CASES)
def test_work_is_what_a_run_counts(method, adapt, tmp_path):
    if method == "joint-gas":
        pytest.importorskip("pymetis", reason="needs the extra metis")
    graph = planted(80, seed=0, num_features=6).graph
    config = load_config(None, {**QUICK, **CASES[method], "method": method, "encoder.adapt": adapt})
    result = fit(graph, config=config, method=method, out=tmp_path / "r")
    counts = result.encoder_nodes_by_stage
    asked = work(graph, config, 2)
    counted = sum(n for label, n in counts.items() if label.startswith("train"))
    assert sum(n for label, n in counts.items() if not label.startswith("train")) == asked.exports * 80
    assert asked.gnns == sum("gnn" in label for label in counts) - (method.startswith("joint"))
    if method.startswith("joint"):  # a drawn neighbour may be there already
        assert counted <= asked.trained <= 4 * counted
    else:
        assert counted == asked.trained


def test_the_estimate_is_of_resolved_settings():
    """What the data set suggests counts, whether the settings have been resolved before or not."""
    graph = planted(80, seed=0).graph
    config = load_config(None, {"data": "planted", "encoder.name": "tiny"})
    plain, resolved = (estimate(graph, c)["disk_mib"] for c in (config, resolve(config)))
    assert plain == resolved


def test_short_moments_and_layers_computed_again_spare_memory():
    graph = planted(80, seed=0).graph
    config = {"method": "fne", "encoder.name": "tiny"}
    plain, short, again = (
        estimate(graph, load_config(None, {**config, **own}))
        for own in ({}, {"train.optimizer_states": "8bit"}, {"train.gradient_checkpointing": True})
    )
    assert short["disk_mib"]["encoder and checkpoint"] < 0.75 * plain["disk_mib"]["encoder and checkpoint"]
    assert short["memory_mib"] < plain["memory_mib"]
    assert again["memory_mib"] < plain["memory_mib"] - 1


def test_a_frozen_trunk_costs_disk_and_spares_memory():
    graph = planted(80, seed=0).graph
    config = {"method": "fne", "encoder.name": "tiny"}
    whole, split, untrained = (
        estimate(graph, load_config(None, {**config, **own}))
        for own in ({}, {"encoder.train_layers": 1}, {"encoder.train_layers": 1, "method": "pne"})
    )
    assert whole["disk_mib"]["token states"] == untrained["disk_mib"]["token states"] == 0
    states = 2 * 32 * 80 * split["tokens"]["mean"] / (1 << 20)
    assert split["disk_mib"]["token states"] == pytest.approx(states, abs=0.06)
    assert split["disk_mib"]["encoder and checkpoint"] < whole["disk_mib"]["encoder and checkpoint"]
    assert split["memory_mib"] < whole["memory_mib"]
    assert split["seconds"]["token states"] >= 0
