"""Whatever is given to the command line, it answers in words and with an exit code."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.texts import Texts
from tests.data.table_writing import EDGES, NODES, write
from tests.hostile import answer, refusal

QUICK = ("--method", "pne", "--encoder", "tiny", "--set", "gnn.epochs=1", "-q")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Runs without --out go under the working directory."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("inspect", "planted:²"), "4 to 100,000,000"),
        (("inspect", "planted#²"), "no such folder, and not a name"),
        (("inspect", "planted:9999999999999999999999"), "4 to 100,000,000"),
        (("inspect", "planted:٣٣"), "4 to 100,000,000"),
        (("inspect", "string:²"), "string:SPECIES"),
        (("inspect", "x" * 5000), "File name too long"),
        (("inspect", "a\0b"), "no such folder"),
        (("compare", "planted:60", "--methods", ","), "--methods ,: at least one name expected"),
        (("compare", "planted:60", "--gnns", " , "), "at least one name expected"),
        (("sweep", "planted:60", "--vary", "hops=3..1"), "--vary hops=3..1: LOW..HIGH"),
        (("sweep", "planted:60", "--vary", "hops=0..999999999"), "LOW..HIGH of 1 to 1000 values"),
        (("sweep", "planted:60", "--vary", "hops=1,,2"), "KEY=VALUES expected"),
        (("fit", "planted:60", "--set", "gnn.options.norm=zzz", *QUICK), "norm 'zzz': unknown"),
        (("fit", "planted:60", "--set", "gnn.options.norm=3", *QUICK), "gnn.options.norm: str expected, got 3"),
        (("fit", "planted:60", "--set", "gnn.options.input_dropout=1.5", *QUICK), "from 0 to 1 expected, got 1.5"),
        (("fit", "planted:60", "--gnn", "gat", "--set", "gnn.options.heads=0", *QUICK), "from 1 to 10000 expected"),
        (("fit", "planted:60", "--seed", str(2**64), *QUICK), "seed: input should be less than"),
        (("fit", "planted:60", "--set", "gnn.layers=100000000000", *QUICK), "less than or equal to 1000"),
        (("fit", "planted:60", "--set", f"seed={'9' * 5000}", *QUICK), "seed: input should be a valid integer"),
        (("fit", "planted:60", "--set", "device=meta", *QUICK), "device 'meta': cannot be used here"),
    ],
)  # fmt: skip
def test_values_that_are_not_accepted(args, told):
    assert told in refusal(*args)


@pytest.mark.skipif("__import__('torch').cuda.is_available()")
def test_a_gpu_that_is_not_there():
    assert "device 'cuda': cannot be used here" in refusal("fit", "planted:60", "--set", "device=cuda", *QUICK)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("def (", "SyntaxError: invalid syntax"),
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise BaseException", "BaseException"),
        ("", "has no attribute 'Thing'"),
        ("Thing = 3", "expected"),
        ("class Thing: pass", "takes no arguments"),
    ],
)
@pytest.mark.parametrize("option", ["--gnn", "--encoder", "--method"])
def test_modules_that_fail(tmp_path, monkeypatch, source, told, option):
    monkeypatch.syspath_prepend(tmp_path)
    name = f"failing_{abs(hash((source, option)))}"
    (tmp_path / f"{name}.py").write_text(source)
    asked = [*QUICK, option, f"{name}:Thing"]
    if option == "--method" and told.startswith("takes"):
        return  # a callable is taken for a method, and what it raises is the user's to see
    err = refusal("fit", "planted:60", *asked)
    assert f"{name}:Thing" in err or option == "--method"
    assert told in err or option == "--method"
    sys.modules.pop(name, None)


def test_files_of_settings(tmp_path):
    path = tmp_path / "e.toml"
    for content, told in (
        ('extends = "e.toml"', "extends leads back to"),
        ("extends = 3", "extends: the name of a TOML file expected, got 3"),
        ('extends = "."', "a TOML file expected, and this is a folder"),
        ('extends = "nowhere.toml"', "no such file"),
        (f"seed = {'9' * 5000}", "not valid TOML"),
        ("seed = \ud800".encode("utf-8", "surrogatepass"), "not valid TOML"),
    ):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        assert told in refusal("fit", "planted:60", "--config", path, *QUICK)
    assert "this is a folder" in refusal("fit", "planted:60", "--config", tmp_path, *QUICK)
    os.mkfifo(tmp_path / "pipe.toml")
    assert "this is no file" in refusal("fit", "planted:60", "--config", tmp_path / "pipe.toml", *QUICK)


def test_links_pipes_and_folders_in_the_place_of_files(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    assert "no such folder" in refusal("inspect", tmp_path / "loop")
    for make in (os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path.name)):
        folder = write(tmp_path / f"tables{len(list(tmp_path.iterdir()))}")
        (folder / "nodes.csv").unlink()
        make(folder / "nodes.csv")
        assert "nodes" in refusal("inspect", folder)
        saved = tmp_path / f"saved{len(list(tmp_path.iterdir()))}"
        for name in ("graph.json", "edges.npy", "texts.bin"):
            _graph().save(saved)
            (saved / name).unlink()
            make(saved / name)
            refusal("inspect", saved)
            (saved / name).rmdir() if (saved / name).is_dir() else (saved / name).unlink()


def _graph(**changes) -> AttributedGraph:
    held = {
        "texts": Texts.from_strings(["[red]x[/]", "\x1b[2Jy", "", "[/]"]),
        "edges": np.array([[0, 1, 2], [1, 2, 3]]),
        "labels": np.array([0, 1, 0, 1]),
        "split": Split(np.array([0, 0, 1, 2], np.int8)),
        "class_names": ["[/]a", "\x1b[31mb"],
        "ids": Texts.from_strings(["[/x]", "\x1b]0;t\x07", "c\nd", "e"]),
        "name": "[/][bold]g\x1b[1m",
    }
    return AttributedGraph(**{**held, **changes})


def test_markup_and_escapes_are_shown_everywhere(tmp_path):
    folder = _graph().save(tmp_path / "[red]data")
    for args in (("inspect", folder, "--encoder", "tiny"), ("fit", folder, *QUICK, "--out", tmp_path / "[/]run")):
        got = answer(*args)
        assert got.code == 0, got.err
        assert "\x1b[2J" not in got.out + got.err
        assert "\x1b]0" not in got.out + got.err
        assert "[red]data" in got.out or "[bold]g\\x1b[1m" in got.out
    assert "[/]run" in got.out
    broken = _graph(ids=Texts.from_strings(["[/]\x1b[2J"] * 4)).save(tmp_path / "broken")
    assert "[/]\\x1b[2J" in refusal("inspect", broken)


def test_names_in_the_data_choose_no_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i, name in enumerate(("/abs", "../../x", "..", "a" * 500, "\0/\n")):
        folder = write(tmp_path / f"t{i}", toml=f"name = {json.dumps(name)}")
        run = json.loads(answer("fit", folder, *QUICK, "--json").out)["run"]
        assert (tmp_path / run).resolve().parent == tmp_path / "runs"


def test_a_graph_is_called_after_its_own_folder(tmp_path):
    """Not after another folder of the same content, nor after what a link leads to."""
    (tmp_path / "link").symlink_to(write(tmp_path / "first", NODES, EDGES))
    write(tmp_path / "second", NODES, EDGES)
    for name in ("first", "second", "link"):
        assert json.loads(answer("inspect", tmp_path / name, "--encoder", "tiny", "--json").out)["name"] == name
