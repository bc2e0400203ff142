"""export --onnx: encoder, psi and GNN of a run give in ONNX Runtime what the run gives; the example of the docs."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score
from typer.testing import CliRunner

from labeldeconv import Predictor, fit, planted
from labeldeconv.cli.app import app
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.prediction.restored import restored_encoder
from labeldeconv.sharing import onnx_export
from labeldeconv.sharing.onnx_export import Int8Loss, _in_8_bits, _residues, export_onnx
from labeldeconv.sharing.onnx_files import OnnxModel

for package in ("onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(package, reason="comes with the extra onnx")

DOCS = Path(__file__).parents[2] / "docs" / "serving.md"
QUICK = {"train__epochs": 1, "gnn__epochs": 5, "gnn__hidden": 8, "encoder__max_tokens": 16, "encoder__layers": 1}
TEXTS = ["amber river", "quiet drum and more"]


def section():
    """The section of the docs that is replayed here."""
    return DOCS.read_text().partition("## Elsewhere: ONNX")[2].partition("\n## ")[0]


def row_normalised(graph):
    """A-hat (n, n) as `adjacency` of a card with defaults of SAGN and GAMLP says it."""
    n = graph.num_nodes
    A = np.zeros((n, n), np.float32)
    A[graph.edges[0], graph.edges[1]] = A[graph.edges[1], graph.edges[0]] = 1
    np.fill_diagonal(A, 0)
    alone = A.sum(1) == 0
    A[alone, alone] = 1
    return A / A.sum(1, keepdims=True)


def powers(A, X, hops):
    """X, A X, ... A^hops X, stacked to (n, hops + 1, d)."""
    out = [X]
    for _ in range(hops):
        out.append(A @ out[-1])
    return np.stack(out, 1)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder in which `runs/small` of ld with SAGN was exported by the command of the docs, to `model`."""
    folder, monkey = tmp_path_factory.mktemp("onnx"), pytest.MonkeyPatch()
    monkey.chdir(folder)
    graph = planted(80, seed=0).graph
    fit(graph, method="ld", gnn="sagn", encoder="tiny", out="runs/small", cache=folder / "cache", **QUICK)
    words = re.search(r"\n    labeldeconv (.*)\n", section())[1].split()
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.stdout == "model: encoder.onnx, gnn.onnx, psi.onnx\n"
    yield folder
    monkey.undo()


def test_the_example_of_the_docs_gives_what_the_run_gives(exported, monkeypatch, capsys):
    monkeypatch.chdir(exported)
    code = re.search(r"```python\n(.*?)```", section(), re.S)[1]
    assert len(code.strip().splitlines()) <= 16
    assert not re.search("torch|transformers|labeldeconv", code)
    held: dict = {}
    exec(code, held)
    told = Predictor.load("runs/small").predict(TEXTS)
    assert told.by == ["psi", "psi"]
    np.testing.assert_allclose(held["probabilities"], told.probabilities, atol=1e-3)  # its features are float16
    assert capsys.readouterr().out == f"{told.classes}\n"


def test_rows_of_hop_features_give_the_runs_logits(exported):
    """X, A-hat X and A-hat^2 X of all nodes, from the card alone, through gnn.onnx."""
    card = json.loads((exported / "model" / "model.json").read_text())["gnn"]
    assert card["adjacency"] == {"normalization": "row", "self_loops": False, "undirected": True}
    run = Predictor.load(exported / "runs" / "small").run
    hops = powers(row_normalised(run.graph), np.asarray(run.features, np.float32), card["hops"])
    logits = OnnxModel(exported / "model" / card["file"])(hops)
    np.testing.assert_allclose(logits, run.logits, atol=1e-2 * np.abs(run.logits).max())


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """A folder in which `runs/small` of ld with GAMLP, which reads numbers of train nodes, is exported to `model`."""
    folder = tmp_path_factory.mktemp("onnx numbers")
    graph = planted(60, "regression", num_classes=4, num_targets=2).graph
    words = {"method": "ld", "gnn": "gamlp", "gnn__options": {"label_hops": 2}, "encoder": "tiny", **QUICK}
    fit(graph, out=folder / "runs" / "small", cache=folder / "cache", **words)
    export_onnx(folder / "runs" / "small", folder / "model")
    return folder


def test_psi_gives_numbers_in_the_unit_of_the_labels(numbers, monkeypatch):
    """The example of the docs with the line that they have for numbers in place of the last two."""
    monkeypatch.chdir(numbers)
    code = re.search(r"```python\n(.*?)```", section(), re.S)[1]
    line = re.search(r"`(numbers = [^`]*)`", section())[1]
    held: dict = {}
    exec("\n".join([*code.strip().splitlines()[:-2], line]), held)
    told = Predictor.load("runs/small").predict(TEXTS)
    assert told.by == ["psi", "psi"]
    assert 50 < told.numbers.mean() < 150
    std = np.array(held["card"]["targets"]["std"])
    np.testing.assert_allclose(held["numbers"] / std, told.numbers / std, atol=1e-3)  # its features are float16


def test_rows_of_hop_features_and_labels_give_the_runs_numbers(numbers):
    """gnn.onnx on A-hat^i X and on A-hat^2 of the train nodes' numbers, from the card alone: `result.values`."""
    card = json.loads((numbers / "model" / "model.json").read_text())
    run = Predictor.load(numbers / "runs" / "small").run
    mean, std = (np.array(card["targets"][name]) for name in ("mean", "std"))
    A, train = row_normalised(run.graph), run.graph.split.train
    Y = np.zeros((60, 2), np.float32)
    Y[train] = (run.graph.labels[train] - mean) / std
    hops = powers(A, np.asarray(run.features, np.float32), card["gnn"]["hops"])
    label_inputs = powers(A, Y, card["gnn"]["label_hops"])[:, -1]
    logits = OnnxModel(numbers / "model" / card["gnn"]["file"])(hops, label_inputs)
    wanted = run.task.values(run.logits)
    assert wanted.std(0).min() > 1e-3  # they differ between nodes
    np.testing.assert_allclose((logits * std + mean) / std, wanted / std, atol=2e-3)


def test_the_card_says_how_logits_become_numbers(numbers):
    card = json.loads((numbers / "model" / "model.json").read_text())
    assert card["logits"] == (
        "logits * targets.std + targets.mean are the numbers of class_names, in the unit of the labels"
    )
    assert (card["task"], card["class_names"]) == ("regression", ["topic 0", "topic 1"])
    train = (graph := Predictor.load(numbers / "runs" / "small").run.graph).labels[graph.split.train]
    np.testing.assert_allclose([card["targets"]["mean"], card["targets"]["std"]], [train.mean(0), train.std(0)])
    assert card["psi"]["temperature"] == card["gnn"]["temperature"] == 1.0
    told = "A-hat^label_hops Y, where the row of Y is (label - targets.mean) / targets.std, 0 where it is missing for "
    assert card["gnn"]["label_inputs"] == told + "a train node, 0 for any other"


def test_what_8_bits_cost_in_numbers(numbers, tmp_path):
    """The score is R2 of numbers in the unit of the labels, not of standard units against labels."""
    path = tmp_path / "encoder.onnx"
    shutil.copy(numbers / "model" / "encoder.onnx", path)
    predictor = Predictor.load(numbers / "runs" / "small")
    encoder, val = restored_encoder(predictor.run, predictor.run.config()), predictor.run.graph.split.val
    loss = _in_8_bits(predictor, encoder, OnnxModel(path), path, force=True)
    assert (loss.nodes, loss.by, loss.metric) == (len(val), "psi", "R2")
    told = predictor.predict([predictor.run.graph.texts[i] for i in val])
    assert loss.before == pytest.approx(r2_score(predictor.run.graph.labels[val], told.numbers), abs=1e-2)
    assert f"R2 of psi {loss.before:.4f} -> {loss.after:.4f}" in str(loss)


def test_the_card_names_all_that_is_needed(exported):
    card = json.loads((exported / "model" / "model.json").read_text())
    assert card["logits"] == "softmax(logits / temperature) are the probabilities of class_names"
    assert "targets" not in card
    predictor = Predictor.load(exported / "runs" / "small")
    assert card["class_names"] == predictor.run.graph.class_names
    assert (card["max_tokens"], card["task"], card["notes"], card["residues"]) == (16, "multiclass", [], None)
    assert card["psi"]["temperature"] == predictor.psi[1]
    assert card["gnn"]["temperature"] == predictor.run.calibration["temperature"]
    for part in ("encoder", "psi", "gnn"):
        model = OnnxModel(exported / "model" / card[part]["file"])
        assert (model.inputs, model.outputs) == (card[part]["inputs"], card[part]["outputs"])
    assert all((exported / "model" / name).is_file() for name in card["tokenizer"])


def test_bert_in_onnx_runtime_is_torchs(exported):
    run = Predictor.load(exported / "runs" / "small").run
    encoder = restored_encoder(run, run.config()).eval()
    model = OnnxModel(exported / "model" / "encoder.onnx")
    for b, t in [(1, 1), (1, 9), (6, 4), (2, 16)]:
        ids = torch.randint(0, encoder.vocab_size, (b, t))
        mask = (torch.arange(t) < torch.randint(1, t + 1, (b, 1))).long()
        with torch.inference_mode():
            np.testing.assert_allclose(model(ids, mask), encoder(ids, mask).numpy(), atol=1e-5)


@pytest.mark.parametrize("psi", [True, False])
def test_8_bits_are_measured_and_refused_where_they_cost_much(exported, tmp_path, monkeypatch, psi):
    path = tmp_path / "encoder.onnx"
    shutil.copy(exported / "model" / "encoder.onnx", path)
    predictor = Predictor.load(exported / "runs" / "small")
    encoder, exact = restored_encoder(predictor.run, predictor.run.config()), OnnxModel(path)
    if not psi:
        predictor.__dict__["psi"] = None
    size = path.stat().st_size
    monkeypatch.setattr(onnx_export, "LEAST_COSINE", 1.1)
    with pytest.raises(ConfigError, match=r"mean cosine [01]\.\d+, .* below 1.1, so that nothing is written; --force"):
        _in_8_bits(predictor, encoder, exact, path, force=False)
    assert path.stat().st_size == size
    loss = _in_8_bits(predictor, encoder, exact, path, force=True)
    assert path.stat().st_size < size
    val = predictor.run.graph.split.val
    assert (loss.nodes, loss.by, loss.metric) == (len(val), "psi" if psi else "sagn", "accuracy")
    assert 0.98 < loss.cosine < 1  # in float64: also where it is 0.99999
    if not psi:  # the exact features are the run's own, so the score is too
        assert loss.before == pytest.approx(predictor.run.result["val"])


def test_what_8_bits_cost_in_words():
    told = str(Int8Loss(256, 0.99912, "accuracy", "psi", 0.8125, 0.809))
    assert told == "int8: mean cosine 0.9991, accuracy of psi 81.25 -> 80.90 (256 validation nodes)"


def test_a_gnn_that_reads_two_encoders_is_left_out_with_a_word(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_export, "write_onnx", lambda *given: given[4].write_bytes(b"onnx"))
    fit("planted:60", method="fne", gnn="sagn", gnn__inputs="both", out=tmp_path / "run", **QUICK)
    assert export_onnx(tmp_path / "run", tmp_path / "model").notes == [
        "no gnn.onnx: sagn reads features of two encoders (gnn.inputs 'both'), of which one is here"
    ]


def test_a_gnn_of_the_whole_graph_is_left_out_with_a_word(ld_run, tmp_path, monkeypatch):
    """Encoder and psi are written. What they compute is tested above; here their export is spared."""
    monkeypatch.setattr(onnx_export, "write_onnx", lambda *given: given[4].write_bytes(b"onnx"))
    told = export_onnx(ld_run, tmp_path / "model")
    assert [name for name in told.files if name.endswith(".onnx")] == ["encoder.onnx", "psi.onnx"]
    assert told.notes == ["no gnn.onnx: gcn reads the whole graph; SAGN, GAMLP and MLP, fed by rows, are exported"]
    assert json.loads((tmp_path / "model" / "model.json").read_text())["gnn"] is None


def test_a_psi_that_cannot_be_exported_is_left_out_with_a_word(ld_run, tmp_path, monkeypatch):
    def write(*given):
        given[4].write_bytes(b"onnx")
        if given[4].name == "psi.onnx":
            raise ConfigError("psi of gcn: torch cannot export it to ONNX: why")

    monkeypatch.setattr(onnx_export, "write_onnx", write)
    told = export_onnx(ld_run, tmp_path / "model")
    assert [name for name in told.files if name.endswith(".onnx")] == ["encoder.onnx"]
    assert told.notes[0] == "no psi.onnx: psi of gcn: torch cannot export it to ONNX: why"


def test_places_and_encoders_that_are_refused(ld_run, tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(DataError, match="full: an empty folder or none expected"):
        export_onnx(ld_run, tmp_path / "full")
    with pytest.raises(DataError, match="inside the run directory"):
        export_onnx(ld_run, ld_run / "model")
    monkeypatch.setattr(onnx_export, "restored_encoder", lambda *given: torch.nn.Linear(1, 1))
    with pytest.raises(ConfigError, match=r"encoder 'tiny': Linear cannot be exported to ONNX; an encoder of transf"):
        export_onnx(ld_run, tmp_path / "model")
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("model")) == []


def test_residues_of_a_protein_encoder_give_its_tokens(family):
    from labeldeconv.encoders.pretrained import load_encoder
    from labeldeconv.settings.models import EncoderConfig

    encoder = load_encoder(EncoderConfig(name=family("esm2")))
    table = _residues(encoder)
    by_hand = [*table["begin"], *(table["letters"][letter] for letter in "MKJV"), *table["end"]]
    assert encoder.tokenize(["MKJ*V"], 99) == [by_hand]
