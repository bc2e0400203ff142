import numpy as np
import pytest

from labeldeconv.errors import DataError
from labeldeconv.report.html import write_report
from labeldeconv.report.source import open_source, short
from labeldeconv.runs.directory import RunDirectory
from tests.report.run_writing import ring, write_comparison, write_run


def test_comparison_finds_the_run_of_every_seed(tmp_path):
    varied = [{"labels.hops": 1}, {"labels.hops": 2}]
    source = open_source(write_comparison(tmp_path, ring(), gnns=("gcn", "sagn"), seeds=2, varied=varied))
    assert [len(e.runs) for e in source.entries] == [2] * 8
    assert source.entries[3].runs[1].settings["gnn"]["name"] == "sagn"
    assert source.entries[3].runs[1].settings["seed"] == 1
    assert list(source.groups) == ["gcn, hops 1", "sagn, hops 1", "gcn, hops 2", "sagn, hops 2"]
    assert source.name(source.entries[1]) == "ld, gcn, hops 1"


def test_single_run(tmp_path):
    write_run(tmp_path, ring())
    source = open_source(tmp_path)
    (entry,) = source.entries
    assert not source.compared
    assert (entry.seconds, entry.peak_mib, entry.passes) == (10.0, 300.0, 2.0)
    assert source.name(entry) == "ld"


def test_reference_is_ld_best_on_validation(tmp_path):
    source = open_source(write_comparison(tmp_path, ring(), gnns=("gcn", "sagn")))
    assert source.reference is source.entries[1]


def test_a_deleted_cell_is_left_out(tmp_path):
    folder = write_comparison(tmp_path, ring())
    (folder / "ld-gcn-0" / "result.json").unlink()
    source = open_source(folder)
    assert [len(e.runs) for e in source.entries] == [1, 0]
    assert source.graph is not None


def test_inductive_labels_belong_to_train_nodes(tmp_path):
    graph = ring()
    write_run(tmp_path, graph, setting="inductive")
    run = RunDirectory.open(tmp_path)
    assert (run.label_nodes == graph.split.train).all()
    assert len(run.hop_labels) == len(run.pseudo_labels) == len(graph.split.train)


def test_incomplete_runs_are_refused(tmp_path):
    write_run(tmp_path, ring())
    np.save(tmp_path / "hop_labels.npy", np.zeros((7, 2, 3), np.float32))
    with pytest.raises(DataError, match=r"not complete: hop_labels.npy has"):
        open_source(tmp_path)


def test_a_comparison_lists_its_own_cells_only(tmp_path):
    folder = write_comparison(tmp_path, ring())
    write_run(folder / "wo-ld-gcn-0", ring(), "wo-ld")
    source = open_source(folder)
    assert [run.name for run in source.runs] == ["pne-gcn-0", "ld-gcn-0"]


@pytest.mark.parametrize(("method", "color", "labels"), [("theirs:method", 9, False), ("ld", 0, True)])
def test_a_run_of_somebody_else_imports_nothing(tmp_path, monkeypatch, method, color, labels):
    """A report of a run whose method, GNN and data are modules: none is imported, and inverse labels tell N."""
    names = {"method": method, "gnn.name": "theirs:GNN", "data": "theirs:data"}
    write_run(tmp_path / "run", ring(), **names)
    (tmp_path / "theirs.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    source = open_source(tmp_path / "run")
    assert source.entries[0].color == color
    sections = write_report(tmp_path / "run").sections
    assert "settings" in sections
    assert ("labels" in sections) == labels


@pytest.mark.parametrize(("name", "told"), [("nowhere", "no such folder"), ("", "neither result.json nor")])
def test_other_folders_are_refused(tmp_path, name, told):
    with pytest.raises(DataError, match=told):
        open_source(tmp_path / name)


def test_broken_json_is_told(tmp_path):
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(DataError, match="not valid JSON"):
        open_source(tmp_path)


def test_short_names():
    assert [short(n) for n in ("labels.hops", "encoder.name", "seed")] == ["hops", "encoder", "seed"]
