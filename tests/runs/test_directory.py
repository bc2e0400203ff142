"""Run directories: one writer, one reader, whole or refused."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from labeldeconv import compare, fit
from labeldeconv.errors import DataError, StorageError
from labeldeconv.runs import directory
from labeldeconv.runs.directory import (
    RunDirectory,
    begin_comparison,
    begin_run,
    check_place,
    check_writable,
    claimed,
    is_run,
    open_runs,
    run_with_gamma,
)
from labeldeconv.runs.export import export_run
from labeldeconv.stages import files
from tests.report.run_writing import ring, write_comparison, write_run

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 2, "gnn__hidden": 8}


def test_run_or_comparison(comparison, ld_run, tmp_path):
    names = [r.name for r in open_runs(comparison)]
    assert names == ["ld-gcn-0", "ld-gcn-1", "pne-gcn-0", "pne-gcn-1", "wo-ld-gcn-0", "wo-ld-gcn-1"]
    assert [r.name for r in open_runs(ld_run)] == ["ld-gcn-0"]
    assert run_with_gamma(comparison).name == "ld-gcn-0"
    assert open_runs(ld_run)[0].cell == "ld-gcn"
    assert is_run(comparison)
    assert is_run(ld_run)
    assert not is_run(tmp_path)
    with pytest.raises(DataError, match="finished"):
        open_runs(tmp_path)


def test_a_run_is_whole_when_every_listed_file_has_its_size(tmp_path):
    write_run(tmp_path / "run", ring())
    RunDirectory.open(tmp_path / "run").verify()
    for name in ("features.npy", "graph/edges.npy", "config.toml", "steps.jsonl"):
        path = tmp_path / "run" / name
        kept = path.read_bytes()
        path.write_bytes(kept[:-1])
        with pytest.raises(DataError, match=f"not complete: {name} has"):
            RunDirectory.open(tmp_path / "run")
        path.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        opened = RunDirectory.open(tmp_path / "run")  # the size is right ...
        with pytest.raises(DataError, match=f"not complete: {name} has another content"):
            opened.verify()  # ... and the checksum tells
        path.write_bytes(kept)


def test_the_new_run_replaces_the_old_one_whole(tmp_path):
    write_run(tmp_path / "run", ring(), "ld")
    assert (tmp_path / "run" / "hop_labels.npy").exists()
    write_run(tmp_path / "run", ring(), "pne")
    assert RunDirectory.open(tmp_path / "run").method == "pne"
    assert not [n for n in ("hop_labels.npy", "encoder", "steps.jsonl") if (tmp_path / "run" / n).exists()]
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_failure_in_the_middle_leaves_the_old_run(tmp_path, monkeypatch):
    write_run(tmp_path / "run", ring(), "pne")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(directory, "flush_folder", full)
    with pytest.raises(OSError, match="No space"):
        write_run(tmp_path / "run", ring(), "ld")
    assert RunDirectory.open(tmp_path / "run").method == "pne"


@pytest.mark.parametrize("name", ["thesis.tex", "compare.json", "photos/a.png"])
def test_files_of_others_are_never_deleted(tmp_path, name):
    write_run(tmp_path / "run", ring(), "pne")
    other = tmp_path / "run" / name
    other.parent.mkdir(exist_ok=True)
    other.write_text("precious")
    for call in (begin_run, check_place, lambda out: write_run(out, ring())):
        with pytest.raises(DataError, match=r"which no run writes; --out names"):
            call(tmp_path / "run")
    assert other.read_text() == "precious"


def test_a_file_is_no_place(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(DataError, match="is a file"):
        begin_run(tmp_path / "run")


def test_a_comparison_keeps_its_own_cells_and_no_others(tmp_path):
    folder = write_comparison(tmp_path / "c", ring(), methods=("pne", "ld"))
    begin_comparison(folder, ["ld-gcn-0", "fne-gcn-0"])
    assert [p.name for p in folder.iterdir()] == ["ld-gcn-0"]
    (folder / "notes.md").write_text("mine")
    with pytest.raises(DataError, match=r"'notes.md', which no comparison writes"):
        begin_comparison(folder, [])
    assert (folder / "ld-gcn-0").exists()


def test_cells_outside_the_comparison_are_not_read(tmp_path):
    write_run(tmp_path / "secret", ring())
    folder = write_comparison(tmp_path / "c", ring(), methods=("pne",))
    table = json.loads((folder / "compare.json").read_text())
    table["rows"][0]["cells"] = ["../secret", str(tmp_path / "secret"), "pne-gcn-0"]
    (folder / "compare.json").write_text(json.dumps(table))
    assert [run.name for run in open_runs(folder)] == ["pne-gcn-0"]


def test_runs_of_other_versions_are_refused(tmp_path):
    write_run(tmp_path / "run", ring())
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    (tmp_path / "run" / "result.json").write_text(json.dumps({**result, "format": 1}))
    with pytest.raises(DataError, match="another version wrote it"):
        RunDirectory.open(tmp_path / "run")
    (tmp_path / "run" / "result.json").write_text("[1]")
    with pytest.raises(DataError, match="a JSON object expected, got list"):
        RunDirectory.open(tmp_path / "run")


def test_inductive_run_has_labels_of_train_nodes(tmp_path):
    result = fit("planted:60", method="ld", setting="inductive", out=tmp_path / "run", **QUICK)
    graph, K = RunDirectory.open(result.run).labelled_graph()
    assert len(K) == graph.num_nodes < 60


def test_nothing_written_into_a_run_reaches_the_cache(tmp_path):
    """Run files were writable links into the cache, so that one careless write changed every later run."""
    first = fit("planted:60", method="ld", out=tmp_path / "a", cache=tmp_path / "cache", **QUICK)
    expected = np.array(first.features)
    for path in [p for p in Path(first.run).rglob("*") if p.is_file()]:
        try:
            with path.open("r+b") as file:
                file.write(b"spoiled!")
        except PermissionError:
            assert not os.access(path, os.W_OK)
    again = fit("planted:60", method="ld", out=tmp_path / "b", cache=tmp_path / "cache", **QUICK)
    assert set(again.cached) == set(again.seconds)
    np.testing.assert_array_equal(again.features, expected)
    RunDirectory.open(again.run).verify()


def test_runs_link_the_graph_and_leave_the_users_own_folder_alone(tmp_path, monkeypatch):
    """Two runs on a graph of gigabytes must not hold it twice, in a container where everything runs as root too."""
    monkeypatch.setattr(files, "_reflink", lambda source, target: False)
    for name in ("a", "b"):
        fit("planted:60", method="pne", out=tmp_path / name, cache=tmp_path / "cache", **QUICK)
    for name in ("edges.npy", "texts.bin", "labels.npy"):
        assert (tmp_path / "a" / "graph" / name).samefile(tmp_path / "b" / "graph" / name)
    ring().save(tmp_path / "own")
    fit(tmp_path / "own", method="pne", out=tmp_path / "c", cache=tmp_path / "cache", **QUICK)
    assert (tmp_path / "own" / "edges.npy").stat().st_nlink == 1


def test_a_run_directory_used_again_exports_the_new_ids(small_graph, tmp_path):
    from dataclasses import replace

    from labeldeconv import Texts

    named = replace(small_graph, ids=Texts.from_strings("uvwxyz"), class_names=["x", "y", "z"])
    fit(named, method="pne", out=tmp_path / "run", **QUICK)
    fit(small_graph, method="pne", out=tmp_path / "run", **QUICK)
    export_run(tmp_path / "run", tmp_path / "x.npy")
    assert (tmp_path / "x.ids.txt").read_text().split() == list("012345")
    assert (tmp_path / "x.classes.txt").read_text().split() == ["a", "b", "c"]


def test_two_processes_never_write_one_run(tmp_path):
    """The second is told who writes; what a killed one held is free."""
    ready, told = os.pipe()
    child = os.fork()
    if not child:
        with claimed(tmp_path / "run"):
            os.write(told, b"x")
            time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
    try:
        with pytest.raises(DataError, match=rf"run: process {child} on .* is writing it; wait"):
            fit("planted:60", out=tmp_path / "run", cache=tmp_path / "cache", **QUICK)
        assert not (tmp_path / "run").exists()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with claimed(tmp_path / "run"):
        pass
    assert [p.name for p in tmp_path.iterdir() if p.name != "cache"] == []


def test_a_place_that_cannot_be_written_is_told_before_anything_is_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for out, said in (
        (tmp_path / "file" / "run", "a file stands where a folder is meant"),
        (tmp_path / "file" / "deep" / "run", "a file stands where a folder is meant"),
        (tmp_path / ("x" * 250), "the name is too long"),
    ):
        with pytest.raises(StorageError, match=said):
            fit("planted:60", out=out, cache=tmp_path / "cache", **QUICK)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(StorageError, match=rf"{tmp_path}: no permission.*--out"):
        check_writable(tmp_path / "some" / "run")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_what_a_kill_left_in_a_comparison_is_no_stranger(tmp_path):
    """A half-deleted run, a table that had not got its name, a lock: none of them stops the next attempt."""
    folder = write_comparison(tmp_path / "c", ring(), methods=("pne", "ld"))
    (folder / "table.md.tmp").write_text("half")
    (folder / "ld-gcn-0.lock").write_text("")
    (folder / "ld-gcn-0.partial").mkdir()
    begin_comparison(folder, ["ld-gcn-0"])
    assert {p.name for p in folder.iterdir()} == {"ld-gcn-0", "ld-gcn-0.lock"}
    (tmp_path / "c" / "ld-gcn-0" / "profile.json.tmp").write_text("half")
    check_place(tmp_path / "c" / "ld-gcn-0")


def test_a_run_is_deleted_without_its_name(tmp_path, monkeypatch):
    folder = write_comparison(tmp_path / "c", ring(), methods=("pne", "ld"))
    seen = []
    monkeypatch.setattr(directory.shutil, "rmtree", lambda path, ignore_errors=False: seen.append(path.name))
    begin_comparison(folder, ["ld-gcn-0"])
    assert seen == ["pne-gcn-0.replaced", "pne-gcn-0.replaced"]
    assert not (folder / "pne-gcn-0").exists()


@pytest.mark.parametrize("name", ["result.json", "compare.json"])
def test_a_changed_number_is_refused(tmp_path, name):
    compare("planted:60", ["pne"], out=tmp_path / "c", cache=tmp_path / "cache", **QUICK)
    path = tmp_path / "c" / name if name == "compare.json" else tmp_path / "c" / "pne-gcn-0" / name
    text = path.read_text()
    path.write_text(text.replace('"higher_is_better": true', '"higher_is_better": null'))
    with pytest.raises(DataError, match=rf"{name}: it has another content"):
        open_runs(path.parent)
