"""A pushed folder may be broken, or somebody's who means no good: it is refused by file, and nothing in it is run."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from torch_geometric.nn import GraphSAGE

from labeldeconv import LabelDeconvolution, planted
from labeldeconv.errors import ConfigError, DataError, LabelDeconvError
from labeldeconv.sharing.repository import write_repository
from labeldeconv.stages.files import checksum, sealed

CARD = "labeldeconv.json"


@pytest.fixture(scope="module")
def good(ld_run, tmp_path_factory):
    return write_repository(ld_run, tmp_path_factory.mktemp("pushed") / "good", with_graph=True)


@pytest.fixture
def folder(good, tmp_path):
    """A copy that a test may break."""
    return Path(shutil.copytree(good, tmp_path / "model"))


def reseal(folder, **changed):
    """Write the card anew, as somebody would who wants changed files to be taken for whole."""
    held = json.loads((folder / CARD).read_text())
    held.pop("checksum")
    names = {name for name in held["files"] if (folder / name).is_file()} | set(changed.pop("more", []))
    held["files"] = {name: [(folder / name).stat().st_size, checksum(folder / name)] for name in sorted(names)}
    (folder / CARD).write_text(json.dumps(sealed({**held, **changed})))


def load(folder):
    """Open it and use all of it: encoder, psi and GNN."""
    model = LabelDeconvolution.from_pretrained(folder)
    return model.predictor_.predict(["a river", "alone"], edges=[("new-0", 3)])


def test_the_folder_is_good(folder):
    assert load(folder).by == ["gnn", "psi"]
    reseal(folder)
    assert load(folder).by == ["gnn", "psi"]


FILES = ["config.json", "model.safetensors", "tokenizer.json", "psi.safetensors", "gnn.safetensors", "config.toml"]


@pytest.mark.parametrize("name", [*FILES, "graph/edges.npy", "features.npy"])
@pytest.mark.parametrize("damage", ["gone", "cut", "changed"])
def test_a_damaged_file_is_named(folder, name, damage):
    held = bytearray((folder / name).read_bytes())
    held[-1] ^= 1
    (folder / name).unlink()
    if damage != "gone":
        (folder / name).write_bytes(held if damage == "changed" else held[:-1])
    wanted = {"gone": "is missing", "cut": "bytes instead of", "changed": "has another content"}[damage]
    with pytest.raises(DataError, match=rf"model: not complete: {name} .*{wanted}|{name} {wanted}"):
        LabelDeconvolution.from_pretrained(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_something_else_is_named(folder, name):
    """Sizes and checksums fit, but the content is no weights, no settings, no tokenizer."""
    (folder / name).write_bytes(b"\x80nothing")
    reseal(folder)
    with pytest.raises(LabelDeconvError, match=f"{folder}") as refused:
        load(folder)
    named = name in ("psi.safetensors", "gnn.safetensors", "config.toml")  # transformers names the folder
    assert not named or f"{folder / name}:" in str(refused.value)


def test_weights_of_another_gnn_are_named(folder):
    held = load_file(folder / "gnn.safetensors")
    name = next(iter(held))
    held[name] = held[name].repeat(*[2] * held[name].ndim)
    save_file(held, folder / "gnn.safetensors")
    reseal(folder)
    with pytest.raises(DataError, match=r"gnn.safetensors: not the weights of the settings' GCN\n  - .*size mismatch"):
        load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {}}, r"labeldeconv.json: 4 wrong.*\n  - model.task: field required"),
        ({"calibration": {"temperature": 0.0}}, r"calibration.temperature: input should be greater than 0"),
        ({"format": 99}, r"labeldeconv.json: format 2 expected"),
        ({"files": {"../../etc/passwd": [1, "x"]}}, "name of a file inside the run expected"),
        ({"files": {}}, r"labeldeconv.json: 'config.toml' expected among its files"),
    ],
)
def test_a_wrong_card_is_told(folder, change, message):
    reseal(folder, **change)
    with pytest.raises(DataError, match=message):
        LabelDeconvolution.from_pretrained(folder)


def test_a_folder_without_a_card_and_a_name_that_is_nowhere(tmp_path):
    with pytest.raises(
        DataError, match=r"labeldeconv.json: no such file, which every folder of `labeldeconv push` has"
    ):
        LabelDeconvolution.from_pretrained(tmp_path)
    with pytest.raises(
        ConfigError, match=r"someone/nothing: no such folder, and not to be had from the hub \(HF_HUB_O"
    ):
        LabelDeconvolution.from_pretrained("someone/nothing")


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A module that can be imported and leaves a mark; the test fails where it does."""
    (tmp_path / "trap").mkdir()
    mark = tmp_path / "sprung"
    code = f"open({str(mark)!r}, 'w').close()\ndef Name(*given, **more): pass\n"
    (tmp_path / "trap" / "sprung_module.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path / "trap"))
    yield code, mark
    assert not mark.exists()
    assert "sprung_module" not in sys.modules


def test_a_gnn_that_a_folder_names_is_not_imported(folder, trap):
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace('name = "gcn"', 'name = "sprung_module:Name"'))
    settings = json.loads((folder / CARD).read_text())["settings"]
    settings["gnn"]["name"] = "sprung_module:Name"
    reseal(folder, settings=settings)
    with pytest.raises(ConfigError, match=r"config.toml: gnn.name 'sprung_module:Name' is a class of its author"):
        LabelDeconvolution.from_pretrained(folder)


def test_an_encoder_that_a_folder_names_is_not_imported(folder, trap):
    (folder / "columns.json").write_text(json.dumps({"title": "sprung_module:Name"}))
    reseal(folder, more=["columns.json"])
    with pytest.raises(DataError, match=r"columns.json: columns with one of the kinds .* expected, got .*'sprung_mod"):
        load(folder)


def test_code_of_a_model_is_not_run(folder, trap):
    (folder / "modeling.py").write_text(trap[0])
    held = json.loads((folder / "config.json").read_text())
    code = {"AutoConfig": "modeling.Name", "AutoModel": "modeling.Name"}
    (folder / "config.json").write_text(json.dumps({**held, "model_type": "sprung", "auto_map": code}))
    reseal(folder)
    with pytest.raises(ConfigError, match=r"encoder\.name"):
        load(folder)


def test_weights_of_a_pickle_are_not_opened(folder, trap):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cbuiltins\nopen\n(S'%s'\nS'w'\ntR." % str(trap[1]).encode())
    reseal(folder, more=["pytorch_model.bin"])
    with pytest.raises(ConfigError, match=r"encoder\.name"):
        load(folder)


def test_adapters_are_refused(folder):
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(DataError, match=r"adapter_config.json: adapters are merged in what is pushed"):
        LabelDeconvolution.from_pretrained(folder)


def test_a_gnn_given_as_an_object_is_given_again(tmp_path):
    graph, module = planted(60, seed=0).graph, GraphSAGE(32, 8, 1, 10)
    model = LabelDeconvolution("pne", "tiny", module, out=tmp_path / "run", settings={"gnn.epochs": 2}).fit(graph)
    pushed = write_repository(tmp_path / "run", tmp_path / "pushed")
    with pytest.raises(ConfigError, match=r"gnn.name 'GraphSAGE' is a class of its author"):
        LabelDeconvolution.from_pretrained(pushed)
    again = LabelDeconvolution.from_pretrained(pushed, gnn=module)
    np.testing.assert_allclose(again.decision_function(graph), model.decision_function(), atol=2e-2)
