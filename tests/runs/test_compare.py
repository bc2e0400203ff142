"""compare and sweep: all cells, shared stages, tables, and what cannot run is told first."""

import inspect
import json
import logging

import numpy as np
import pytest
from scipy.stats import ttest_rel
from torch_geometric.nn import GraphSAGE

from labeldeconv import Learned, compare, fit, method, planted, sweep
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.runs.compare import cell_name
from labeldeconv.runs.directory import open_runs

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 3, "gnn__hidden": 8}


def test_compare_table(tmp_path):
    result = compare("planted:60", ["pne", "ld"], gnns=["gcn", "sagn"], seeds=2, out=tmp_path / "cmp", **QUICK)
    assert [(r.method, r.gnn, r.seeds) for r in result.rows] == [
        ("pne", "gcn", 2),
        ("ld", "gcn", 2),
        ("pne", "sagn", 2),
        ("ld", "sagn", 2),
    ]
    row = result.rows[1]
    assert row.test.mean == pytest.approx(np.mean(row.tests))
    assert row.test.std == pytest.approx(np.std(row.tests, ddof=1))
    assert (tmp_path / "cmp" / "table.md").read_text().count("\n| ") == 6
    assert (tmp_path / "cmp" / "table.csv").read_text().startswith("method,gnn,val_mean")
    assert (tmp_path / "cmp" / "ld-sagn-1" / "result.json").exists()
    assert len(open_runs(tmp_path / "cmp")) == 8
    stored = json.loads((tmp_path / "cmp" / "compare.json").read_text())
    assert stored.pop("checksum")
    assert set(stored.pop("files")) == {"table.md", "table.csv"}
    assert stored == json.loads(json.dumps(result.to_dict()))


def test_the_three_take_the_same_words_in_the_same_order():
    one, many, varied = (list(inspect.signature(f).parameters) for f in (fit, compare, sweep))
    single = {"methods": "method", "gnns": "gnn", "seeds": "seed"}
    one = [w for w in one if w not in ("find_batch", "memory_mib")]  # a measurement of one run
    assert [single.get(w, w) for w in many if w != "vary"] == one
    assert [single.get(w, w) for w in varied if w != "vary"] == one


def test_a_cell_is_what_fit_gives(tmp_path):
    graph = planted(60, seed=0).graph
    result = compare(graph, ["ld"], seeds=2, alpha=0.5, hops=1, out=tmp_path / "c", **QUICK)
    alone = fit(graph, "ld", seed=1, alpha=0.5, hops=1, out=tmp_path / "f", cache=tmp_path / "other", **QUICK)
    assert result.rows[0].tests[1] == alone.test
    assert result.rows[0].encoder_passes == alone.encoder_nodes / 60


def test_every_gnn_brings_its_own_defaults_as_in_fit(tmp_path):
    """The command of the main table compares a RevGAT with a reversible block, and a GAMLP on D^-1 A."""
    graph, gnns = planted(60, seed=0).graph, ["gcn", "revgat", "gamlp"]
    result = compare(graph, ["pne"], gnns=gnns, out=tmp_path / "c", cache=tmp_path / "cache", **QUICK)
    runs = {run.result["settings"]["gnn"]["name"]: run for run in open_runs(result.run)}
    for gnn in gnns:
        alone = fit(graph, "pne", gnn=gnn, out=tmp_path / gnn, cache=tmp_path / "cache", **QUICK)
        assert runs[gnn].result["settings"]["gnn"] == alone.settings["gnn"]
        layers, loops = {"gcn": (2, True), "revgat": (3, True), "gamlp": (2, False)}[gnn]
        assert alone.settings["gnn"]["layers"] == layers
        assert alone.settings["gnn"]["adjacency"]["self_loops"] == loops


def test_sweep_varies_all_combinations(tmp_path):
    grid = {"labels.hops": [0, 1], "labels.alpha": [0.5, 1.0]}
    result = sweep("planted:60", grid, out=tmp_path / "s", **QUICK)
    assert [tuple(row.varied.values()) for row in result.rows] == [(0, 0.5), (0, 1.0), (1, 0.5), (1, 1.0)]
    assert "labels.hops" in result.to_markdown()
    assert {run.settings["labels"]["hops"] for run in open_runs(tmp_path / "s")} == {0, 1}


def test_a_sweep_over_layers_tokenises_once(tmp_path):
    result = sweep("planted:60", {"encoder.layers": [1, 2]}, ["pne"], out=tmp_path / "s", **QUICK)
    keys = {run.result["stages"]["tokens"] for run in open_runs(result.run)}
    assert len(keys) == 1
    assert len({run.result["stages"]["encode"] for run in open_runs(result.run)}) == 2


def test_data_seeds_can_be_varied(tmp_path):
    result = sweep("planted:60", {"data_seed": [0, 1]}, ["pne"], out=tmp_path / "s", **QUICK)
    first, second = (run.graph for run in open_runs(result.run))
    assert first.content_key != second.content_key


def test_objects_in_place_of_names(tmp_path):
    @method("untouched")
    def untouched(run):
        """X_PNE again."""
        X = run.features(None)
        return Learned(X, run.gnn(X))

    from labeldeconv.methods.base import METHODS

    try:
        result = compare("planted:60", ["pne", untouched], gnns=["gcn", GraphSAGE], out=tmp_path / "c", **QUICK)
    finally:
        METHODS._members.pop("untouched")
    assert [(r.method, r.gnn) for r in result.rows] == [
        ("pne", "gcn"), ("untouched", "gcn"), ("pne", "GraphSAGE"), ("untouched", "GraphSAGE"),
    ]  # fmt: skip
    assert result.rows[0].tests == result.rows[1].tests
    assert result.rows[2].tests == result.rows[3].tests


def test_what_cannot_run_is_told_before_anything_runs(tmp_path):
    for methods, gnn, message in (
        (["pne", "given"], "gcn", "method 'given': graph .* has no features of its own"),
        (["pne", "joint-sage"], "sagn", "SAGN cannot be run layer by layer"),
        ("all", "revgat", "RevGAT: groups from 2 that divide hidden 9 expected, got 2"),
    ):
        with pytest.raises((DataError, ConfigError), match=message):
            compare("planted:60", methods, gnns=[gnn], out=tmp_path / "cmp", **{**QUICK, "gnn__hidden": 9})
    assert not (tmp_path / "cmp").exists()


def test_all_leaves_out_what_cannot_run(tmp_path, caplog):
    quick = {**QUICK, "gnn__epochs": 2, "joint__epochs": 1, "giant__coarsest": 2}
    with caplog.at_level(logging.INFO, "labeldeconv"):
        result = compare("planted:60", "all", gnns=["gcn", "sagn"], out=tmp_path / "cmp", **quick)
    methods = {gnn: {r.method for r in result.rows if r.gnn == gnn} for gnn in ("gcn", "sagn")}
    separate = {"pne", "fne", "wo-ld", "ld", "ld-heads", "glem", "giant"}
    assert methods["sagn"] == separate
    assert separate | {"joint-sage"} <= methods["gcn"] <= separate | {"joint-sage", "joint-gas"}
    assert "left out: given with gcn: method 'given': graph" in caplog.text
    assert "left out: joint-sage with sagn: joint training: SAGN cannot" in caplog.text


def test_default_folders_are_of_the_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = compare("planted:60", ["pne"], **QUICK)
    again = compare("planted:60", ["pne"], **QUICK)
    others = [compare("planted:60", ["pne"], **QUICK, **more) for more in ({"gnn__lr": 0.5}, {"seeds": 2})]
    assert first.run == again.run
    assert len({first.run, *(other.run for other in others)}) == 3
    assert first.run.parent.name == "runs"


def test_another_comparison_in_the_same_folder_leaves_no_cells_of_the_first(tmp_path):
    """`analyze cost` listed them."""
    compare("planted:60", ["pne", "ld"], out=tmp_path / "c", **QUICK)
    compare("planted:60", ["fne"], out=tmp_path / "c", **QUICK)
    assert [run.name for run in open_runs(tmp_path / "c")] == ["fne-gcn-0"]
    assert not (tmp_path / "c" / "ld-gcn-0").exists()


def test_names_of_cells_are_plain():
    assert cell_name("my.module:mine", "../evil", {"encoder.name": "a/b c"}, 3) == "my.module_mine-_evil-a_b_c-3"


def test_significance_needs_seeds(tmp_path):
    longer = {**QUICK, "gnn__epochs": 30, "train__lr": 1e-2}  # so that scores differ, and by seed
    result = compare("planted:120", ["pne", "ld"], seeds=3, out=tmp_path / "c", **longer)
    p = {row.method: row.p_value for row in result.rows}
    ld, pne = ([run.result["test"] for run in open_runs(tmp_path / "c") if run.method == m] for m in ("ld", "pne"))
    assert p == {"ld": None, "pne": pytest.approx(ttest_rel(ld, pne).pvalue)}
    assert "p vs ld" in result.columns()
