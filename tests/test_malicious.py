"""Inputs made to run code or to write elsewhere: every kind of file that is read is tried, and nothing of it happens.

The bomb is a pickle, a module or a statement that makes a file; a test passes if there is no such file, and if what was
tried is refused in words or read as what it is.
"""

import json
import pickle
import shutil
import sys

import duckdb
import numpy as np
import pytest

from labeldeconv import fit
from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.errors import LabelDeconvError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.stages.files import checksum, sealed
from tests.data.table_writing import EDGES, NODES, write
from tests.hostile import answer, refusal
from tests.report.run_writing import ring, write_run

QUICK = {"encoder": "tiny", "encoder__max_tokens": 8, "train__epochs": 1, "gnn__epochs": 1, "gnn__hidden": 8}


class Bomb:
    """Unpickled, it makes the file `mark`."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return exec, (f"open({self.mark!r}, 'w').close()",)


@pytest.fixture
def mark(tmp_path):
    """The file that no test may find."""
    return tmp_path / "it ran"


@pytest.fixture
def pickled(mark):
    """A pickle that makes the mark, which it does if one opens it."""
    content = pickle.dumps(Bomb(mark))
    pickle.loads(content)
    assert mark.exists(), "the bomb does not work"
    mark.unlink()
    return content


def object_array(path, mark):
    """A .npy file of pickled objects."""
    np.save(path, np.array([Bomb(mark)], dtype=object), allow_pickle=True)


@pytest.fixture
def module(tmp_path, mark, monkeypatch):
    """A module that makes the mark when it is imported."""
    (tmp_path / "evil_module.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "evil_module:Thing"
    sys.modules.pop("evil_module", None)


def relisted(folder, name, listing="result.json"):
    """Let a run's or stage's own list have the size and checksum of a file, and be sealed anew."""
    path = folder / listing
    path.chmod(0o644)
    held = json.loads(path.read_text())
    held["files"][name] = [(folder / name).stat().st_size, checksum(folder / name)]
    path.write_text(json.dumps(sealed({key: value for key, value in held.items() if key != "checksum"})))


@pytest.mark.parametrize(
    "name", ["features.npy", "logits.npy", "hop_labels.npy", "graph/labels.npy", "graph/edges.npy"]
)
def test_arrays_of_a_run_that_are_pickles(name, tmp_path, mark):
    run = tmp_path / "run"
    write_run(run, ring())
    object_array(run / name, mark)
    relisted(run, name)
    for words in (
        ("report", run),
        ("verify", run),
        ("export", run, tmp_path / "x.parquet"),
        ("analyze", "spectrum", run),
    ):
        answer(*words)
    new = tmp_path / "new.csv"
    new.write_text("id,text\nx,words\n")
    answer("predict", run, "--nodes", new, "--out", tmp_path / "p.csv")
    assert not mark.exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that new nodes can be predicted with, and its cache."""
    folder = tmp_path_factory.mktemp("trained")
    write(folder / "data")
    fit(folder / "data", method="fne", gnn="gcn", out=folder / "run", cache=folder / "cache", **QUICK)
    (folder / "new.csv").write_text("id,text\nx,words\n")
    return folder


@pytest.fixture
def copied(trained, tmp_path):
    """A copy of it that may be spoiled."""
    return shutil.copytree(trained, tmp_path / "copied")


def predict(folder, *more):
    return answer("predict", folder / "run", "--nodes", folder / "new.csv", "--out", folder / "out.csv", *more)


@pytest.mark.parametrize("name", ["gnn.safetensors", "encoder/model.safetensors", "psi.safetensors"])
def test_weights_of_a_run_that_are_pickles(name, copied, mark, pickled):
    assert predict(copied).code == 0
    (copied / "run" / name).chmod(0o644)
    (copied / "run" / name).write_bytes(pickled)
    relisted(copied / "run", name)
    got = predict(copied)
    assert not mark.exists()
    if name != "psi.safetensors":  # which this prediction may do without
        assert got.code == 1
    assert "Traceback" not in got.err


@pytest.mark.parametrize("table", ["gnn", "encoder"])
def test_predicting_imports_nothing_that_a_run_names(table, copied, mark, module):
    run = copied / "run"
    (run / "config.toml").chmod(0o644)
    old = {"gnn": 'name = "gcn"', "encoder": 'name = "tiny"'}[table]
    text = (run / "config.toml").read_text()
    assert old in text
    (run / "config.toml").write_text(text.replace(old, f'name = "{module}"'))
    result = json.loads((run / "result.json").read_text())
    result["settings"][table]["name"] = module
    if table == "encoder":  # or the folder would say what it is
        shutil.rmtree(run / "encoder")
        result["files"] = {name: held for name, held in result["files"].items() if not name.startswith("encoder/")}
    (run / "result.json").write_text(json.dumps(result))
    relisted(run, "config.toml")
    got = predict(copied)
    assert got.code == 1
    assert "--trust" in got.err
    assert not mark.exists()
    predict(copied, "--trust")
    assert mark.exists()


def test_a_folder_of_encoders_by_column_imports_nothing(tmp_path, mark, module):
    folder = tmp_path / "encoder"
    folder.mkdir()
    for kinds in ({"title": module}, {"title": f"image:{module}"}, {"title": 3}, ["title"], 7, {}):
        (folder / "columns.json").write_text(json.dumps(kinds))
        with pytest.raises(LabelDeconvError, match=r"columns\.json"):
            load_encoder(EncoderConfig(name=str(folder)))
    (folder / "columns.json").write_bytes(b"[" * 100_000)
    with pytest.raises(LabelDeconvError, match=r"columns\.json"):
        load_encoder(EncoderConfig(name=str(folder)))
    assert not mark.exists()


def test_a_cache_whose_arrays_are_pickles(copied, mark):
    """Its manifest was forged to match: the cache's checksums are no signatures."""
    data = copied / "data"
    stages = [path for path in (copied / "cache").glob("*/*/stage.json") if list(path.parent.glob("*.npy"))]
    for manifest in stages:
        for array in manifest.parent.glob("*.npy"):
            array.chmod(0o644)
            object_array(array, mark)
            relisted(manifest.parent, array.name, "stage.json")
    with pytest.raises(LabelDeconvError, match="delete it"):
        fit(data, method="fne", gnn="gcn", out=copied / "again", cache=copied / "cache", **QUICK)
    assert len(stages) >= 3
    assert not mark.exists()


def test_a_cache_that_names_files_elsewhere(copied, tmp_path):
    """A manifest whose list leads out of the stage is broken, and the stage is made again."""
    outside = tmp_path / "mine.txt"
    outside.write_text("mine")
    for manifest in (copied / "cache").glob("*/*/stage.json"):
        manifest.chmod(0o644)
        held = json.loads(manifest.read_text())
        name = "../" * 12 + str(outside).lstrip("/")
        held["files"][name] = [4, checksum(outside)]
        held["paths"] = dict.fromkeys(held["paths"], name)
        manifest.write_text(json.dumps(sealed({k: v for k, v in held.items() if k != "checksum"})))
    result = fit(copied / "data", method="fne", gnn="gcn", out=copied / "again", cache=copied / "cache", **QUICK)
    assert outside.read_text() == "mine"
    assert not result.cached


@pytest.mark.parametrize("name", ["labels.npy", "edges.npy", "split.npy", "text_offsets.npy", "features.npy"])
def test_a_saved_graph_whose_arrays_are_pickles(name, tmp_path, mark):
    folder = ring().save(tmp_path / "graph")
    object_array(folder / name, mark)
    with pytest.raises(LabelDeconvError):
        AttributedGraph.load(folder).check()
    assert "error: " in refusal("inspect", folder)
    assert not mark.exists()


def test_an_encoder_folder_with_code_of_its_own(tmp_path, mark, pickled, family):
    """auto_map names a module beside the weights: it is never imported. Pickled weights are never opened."""
    folder = shutil.copytree(family("bert"), tmp_path / "encoder")
    (folder / "evil.py").write_text(f"open({str(mark)!r}, 'w').close()\nclass Thing: pass\n")
    code = {"AutoConfig": "evil.Thing", "AutoModel": "evil.Thing", "AutoTokenizer": ["evil.Thing", "evil.Thing"]}
    for name in ("config.json", "tokenizer_config.json"):
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), "auto_map": code}))
    load_encoder(EncoderConfig(name=str(folder)))  # a known kind of model: its own class, not the folder's
    assert not mark.exists()
    for unknown in ("evil-kind", None):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "model_type": unknown}))
        with pytest.raises(LabelDeconvError, match="safetensors"):
            load_encoder(EncoderConfig(name=str(folder)))
    assert not mark.exists()


def test_an_encoder_folder_with_pickled_weights(tmp_path, mark, pickled, family):
    folder = shutil.copytree(family("bert"), tmp_path / "encoder")
    (folder / "model.safetensors").unlink()
    for name in ("pytorch_model.bin", "model.safetensors"):  # also a pickle under the other name
        (folder / name).write_bytes(pickled)
        with pytest.raises(LabelDeconvError, match="safetensors"):
            load_encoder(EncoderConfig(name=str(folder)))
    assert not mark.exists()


def test_pt_files_are_never_opened(tmp_path, mark, pickled):
    path = tmp_path / "graph.pt"
    path.write_bytes(pickled)
    for words in (("inspect", path), ("fit", path), ("fit", "planted:40", "--encoder", path)):
        assert "error: " in refusal(*words, *(["--method", "pne", "--gnn", "gcn"] if words[0] == "fit" else []))
    data = write(tmp_path / "tables", toml='features = "x.npy"')
    (data / "x.npy").write_bytes(pickled)
    assert "x.npy" in refusal("inspect", data)
    assert not mark.exists()


def test_columns_and_files_that_are_called_like_statements(tmp_path):
    """Names of columns and files reach SQL only as names: nothing is written, dropped or read elsewhere."""
    mark = tmp_path / "written.csv"
    evil = f"""x"); COPY (SELECT 1) TO '{mark}'; --"""
    folder = tmp_path / """it's "; DROP TABLE nodes; --"""
    for kind in ("parquet", "csv", "jsonl"):
        shutil.rmtree(folder, ignore_errors=True)
        toml = f"features = [{json.dumps(evil)}]"
        write(folder, [{**row, evil: 1.5} for row in NODES], EDGES, kind="csv", toml=toml)
        if kind != "csv":
            con = duckdb.connect()
            for name in ("nodes", "edges"):
                table = con.read_csv(str(folder / f"{name}.csv"))
                if kind == "parquet":
                    table.write_parquet(str(folder / f"{name}.parquet"))
                else:
                    rows = [dict(zip(table.columns, row, strict=True)) for row in table.fetchall()]
                    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
                (folder / f"{name}.csv").unlink()
        got = answer("inspect", folder, "--json")
        assert got.code == 0, got.err
        graph = AttributedGraph.load(_saved(folder, tmp_path / kind))
        assert (np.asarray(graph.features) == 1.5).all()
    assert not mark.exists()


def _saved(folder, out):
    from labeldeconv.data.opening import open_data

    return open_data(str(folder)).graph.save(out)
