"""Joint training on sampled subgraphs."""

from dataclasses import replace

import numpy as np
import pytest

from labeldeconv import Cache, fit, session, sweep
from labeldeconv.errors import ConfigError
from labeldeconv.methods.base import METHODS
from labeldeconv.runs.asked import resolve
from labeldeconv.runs.preparation import prepare
from labeldeconv.settings.reading import load_config

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5}


@pytest.mark.parametrize("method", ["joint-gas", "joint-sage"])
def test_joint_training_trains_the_encoder_and_reports_sizes(graph, tmp_path, method):
    if method == "joint-gas":
        pytest.importorskip("pymetis", reason="needs the extra metis")
    quick = {**QUICK, "joint__epochs": 2, "joint__batch_nodes": 16}
    result = fit(graph, method=method, out=tmp_path / "a", **quick)
    pne = fit(graph, method="pne", out=tmp_path / "p", **quick)
    assert not np.array_equal(result.features, pne.features)
    assert 1 <= result.batch <= result.subgraph <= 80
    again = fit(graph, method=method, out=tmp_path / "b", cache=tmp_path / "c2", **quick)
    np.testing.assert_array_equal(result.logits, again.logits)


def test_joint_training_at_rate_zero_keeps_the_features(graph, tmp_path):
    quick = {**QUICK, "joint__epochs": 2, "joint__batch_nodes": 16}
    joint = fit(graph, method="joint-sage", train__lr=0.0, out=tmp_path / "j", **quick)
    pne = fit(graph, method="pne", out=tmp_path / "p", **quick)
    np.testing.assert_array_equal(joint.features, pne.features)
    assert joint.encoder_nodes_by_stage["train"] == 0


def test_joint_features_can_have_a_gnn_of_their_own(graph, tmp_path):
    quick = {**QUICK, "joint__epochs": 1, "joint__batch_nodes": 16}
    joint = fit(graph, method="joint-sage", out=tmp_path / "j", **quick)
    fresh = fit(graph, method="joint-sage", joint__gnn="fresh", out=tmp_path / "f", **quick)
    assert "train" in fresh.cached
    np.testing.assert_array_equal(joint.features, fresh.features)
    assert not (tmp_path / "j" / "epochs.jsonl").read_text()
    assert (tmp_path / "f" / "epochs.jsonl").read_text()


def test_joint_training_names_gnns_it_cannot_run(graph, tmp_path):
    with pytest.raises(ConfigError, match="SAGN cannot be run layer by layer"):
        fit(graph, method="joint-sage", gnn="sagn", out=tmp_path / "r", **QUICK)


@pytest.mark.parametrize("gnn", ["gcn", "gat", "revgat"])
@pytest.mark.parametrize("method", ["joint-gas", "joint-sage"])
def test_joint_training_in_bfloat16(graph, tmp_path, method, gnn):
    if method == "joint-gas":
        pytest.importorskip("pymetis", reason="needs the extra metis")
    quick = {**QUICK, "joint__epochs": 1, "joint__batch_nodes": 16, "gnn__hidden": 8}
    low, full = (
        fit(graph, method=method, gnn=gnn, train__precision=precision, out=tmp_path / precision, **quick)
        for precision in ("bfloat16", "float32")
    )
    assert np.isfinite(low.logits).all()
    assert not np.array_equal(low.features, full.features)


@pytest.mark.parametrize("setting", ["transductive", "inductive"])
def test_further_epochs_of_the_gnn_keep_the_encoder(graph, tmp_path, setting):
    quick = {**QUICK, "joint__epochs": 1, "joint__batch_nodes": 16, "setting": setting}
    plain = fit(graph, method="joint-sage", out=tmp_path / "p", **quick)
    more = fit(graph, method="joint-sage", joint__gnn_epochs=2, out=tmp_path / "m", **quick)
    assert "train" in more.cached
    assert "gnn epochs" in more.stages
    np.testing.assert_array_equal(plain.features, more.features)
    assert not np.array_equal(plain.logits, more.logits)
    assert more.encoder_nodes == plain.encoder_nodes
    exported = len(graph.split.train) if setting == "inductive" else 0  # by the same weights as for the plain run
    assert sum(more.reused_nodes_by_stage.values()) == exported


def test_edge_features_reach_joint_training(graph, tmp_path):
    quick = {**QUICK, "joint__epochs": 1, "joint__batch_nodes": 16, "gnn__hidden": 8}
    options = {"edge_dim": 2}
    with pytest.raises(ConfigError, match="edge_dim 2: edge features"):
        fit(graph, method="joint-sage", gnn="gat", gnn__options=options, out=tmp_path / "r", **quick)
    logits = []
    for seed in (0, 1):
        values = np.random.default_rng(seed).normal(size=(graph.num_edges, 2)).astype(np.float32)
        edged = replace(graph, edge_features=values)
        made = fit(edged, method="joint-sage", gnn="gat", gnn__options=options, out=tmp_path / f"{seed}", **quick)
        logits.append(made.logits)
    assert not np.array_equal(*logits)


def test_subgraph_size_table_in_the_form_of_the_paper(graph, tmp_path):
    """|B|, |G(B)| and score by size: GCN with GAS over parts, GAT with SAGE over |B|, then fan-out."""
    pytest.importorskip("pymetis", reason="needs the extra metis")
    quick = {**QUICK, "train__lr": 0.0, "joint__epochs": 1, "gnn__hidden": 8}
    vary = {"joint.batch_nodes": [40, 20, 8]}
    parts = {"joint__part_nodes": 40, **quick}
    gas = sweep(graph, methods=["joint-gas"], gnns=["gcn"], vary=vary, out=tmp_path / "g", **parts)
    vary = {"joint.batch_nodes": [24, 6], "joint.fanout": [4, 1]}
    sage = sweep(graph, methods=["joint-sage"], gnns=["gat"], vary=vary, out=tmp_path / "s", **quick)
    for table in (gas, sage):
        assert {"|B|", "|G(B)|", "test"} <= set(table.columns())
        assert all(row.batch < row.subgraph <= 80 for row in table.rows)
    sizes = [row.subgraph for row in gas.rows]
    assert sizes == sorted(sizes, reverse=True)
    found = {(row.varied["joint.batch_nodes"], row.varied["joint.fanout"]): row.subgraph for row in sage.rows}
    assert found[24, 4] > found[6, 4] > found[6, 1]


@pytest.mark.parametrize(("method", "given", "expected"), [
    # ten batches of 5 of 48 train nodes, each with trees of 1 + 2 + 4 nodes, two epochs
    ("joint-sage", {}, (2 * 10 * 35, 1, 0)),
    ("joint-sage", {"joint.fanout": 9}, (2 * 10 * 80, 1, 0)),  # 5 * 91, of which the graph has but 80
    ("joint-sage", {"train.lr": 0.0}, (0, 2, 0)),
    # 80 nodes and two neighbours encoded anew beside each
    ("joint-gas", {}, (2 * 80 * 3, 2, 0)),
    ("joint-gas", {"train.lr": 0.0}, (0, 2, 0)),
])  # fmt: skip
def test_work_by_hand(graph, method, given, expected):
    numbers = {"joint.batch_nodes": 5, "joint.fanout": 2, "joint.epochs": 2, "joint.max_neighbors": 10}
    for inside, further in (
        (0, {}),
        (0, {"setting": "inductive"}),
        (0, {"joint.gnn_epochs": 1}),
        (0, {"setting": "inductive", "joint.gnn_epochs": 1, "joint.gnn": "fresh"}),
        (1, {"setting": "inductive", "joint.gnn_epochs": 1}),  # the GNN alone needs features of what training sees
    ):
        work = METHODS[method].work(graph, load_config(None, {**numbers, **given, **further}), 2)
        assert (work.trained, work.exports - inside, work.gnns) == expected
    assert METHODS[method].epochs(load_config(None, numbers)) == 2


@pytest.mark.parametrize("method", ["joint-gas", "joint-sage"])
def test_a_gnn_that_cannot_be_sampled_is_refused_before_anything_is_encoded(graph, tmp_path, method):
    """Also where the method is called without `fit`, which asks what it needs."""
    run = prepare(resolve(load_config(None, {"encoder.name": "tiny", "gnn.name": "sagn"})), graph)
    with session(Cache(tmp_path / "own")), pytest.raises(ConfigError, match="cannot be run layer by layer"):
        METHODS[method].learn(run)
    assert not list((tmp_path / "own").glob("*"))


def test_edge_features_that_the_gnn_does_not_read_are_in_no_key(graph, tmp_path):
    quick = {**QUICK, "joint__epochs": 1, "joint__batch_nodes": 16, "gnn__hidden": 8}
    edged = replace(graph, edge_features=np.ones((graph.num_edges, 2), np.float32))
    plain, other = (fit(g, method="joint-sage", out=tmp_path / f"{i}", **quick) for i, g in enumerate((graph, edged)))
    assert plain.stages == other.stages
