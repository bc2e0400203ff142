"""push --folder: what from_pretrained reads back predicts as the run does, and holds nothing that was not asked for."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from labeldeconv import LabelDeconvolution, Predictor, RunDirectory, fit, planted
from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.sharing.repository import _sentence_layout, public_name, write_repository

TEXTS = ["not piano drum but river", "", "river", "a text that is much longer than sixteen tokens of the encoder"]
EDGES = [("new-0", 3), (5, "new-0"), ("new-1", "new-0")]


@pytest.fixture(scope="module")
def pushed(ld_run, tmp_path_factory):
    """The run of ld with GCN as a folder without its graph, and one with it; named by an id of their own."""
    place = tmp_path_factory.mktemp("pushed")
    return write_repository(ld_run, place / "alone"), write_repository(ld_run, place / "whole", with_graph=True)


def test_with_its_graph_it_is_the_run(pushed, ld_run):
    model, run = LabelDeconvolution.from_pretrained(pushed[1]), LabelDeconvolution.load(ld_run)
    np.testing.assert_array_equal(model.decision_function(), run.decision_function())
    np.testing.assert_array_equal(model.transform(), run.transform())
    assert model.score(role="test") == run.score(role="test")
    assert (model.gamma_, model.classes_) == (run.gamma_, run.classes_)
    told, wanted = (m.predictor_.predict(TEXTS, EDGES) for m in (model, run))
    assert told.by == wanted.by == ["gnn", "gnn", "psi", "psi"]
    for name in ("logits", "probabilities", "features"):
        np.testing.assert_array_equal(getattr(told, name), getattr(wanted, name))


def test_without_its_graph_psi_predicts_texts_as_in_the_run(pushed, ld_run):
    model, run = LabelDeconvolution.from_pretrained(pushed[0]), LabelDeconvolution.load(ld_run)
    wanted = run.predictor_.predict(TEXTS)
    assert wanted.by == ["psi"] * 4
    told = model.predictor_.predict(TEXTS, ids="abcd")
    assert (told.ids, told.by, told.classes) == (["a", "b", "c", "d"], wanted.by, wanted.classes)
    np.testing.assert_array_equal(told.features, wanted.features)
    np.testing.assert_allclose(told.probabilities, wanted.probabilities, rtol=1e-6)
    np.testing.assert_allclose(model.predict_proba(texts=TEXTS), wanted.probabilities, rtol=1e-6)
    np.testing.assert_array_equal(model.transform(TEXTS), run.transform(TEXTS))
    assert model.predictor_.predict([]).probabilities.shape == (0, 10)


@pytest.mark.parametrize("gnn", ["gcn", "sagn"])
def test_without_its_graph_the_gnn_predicts_a_graph_that_is_given(tmp_path, gnn):
    graph = planted(60, seed=0).graph
    quick = {"gnn__epochs": 3, "gnn__hidden": 8, "encoder__max_tokens": 16}
    result = fit(graph, method="pne", gnn=gnn, encoder="tiny", out=tmp_path / "run", **quick)
    model = LabelDeconvolution.from_pretrained(write_repository(tmp_path / "run", tmp_path / "pushed"))
    np.testing.assert_allclose(model.decision_function(graph), result.logits, atol=2e-3 * np.abs(result.logits).max())
    np.testing.assert_allclose(model.transform(graph), result.features, atol=2e-3)
    with pytest.raises(ConfigError, match="method 'pne' has no psi; it was pushed without its graph"):
        model.predict(texts=["river"])


@pytest.mark.parametrize(
    "asked",
    [
        lambda model: model.predict(),
        lambda model: model.transform(),
        lambda model: model.score(),
        lambda model: model.predict(texts=["a"], edges=[("new-0", 3)]),
        lambda model: model.predict(texts=["a"], alone="gnn"),
        lambda model: model.predictor_.predict_tables("nodes.csv"),
    ],
)
def test_without_its_graph_what_needs_it_says_so(pushed, asked):
    with pytest.raises((ConfigError, DataError), match="pushed without its graph; give predict a graph, or push with"):
        asked(LabelDeconvolution.from_pretrained(pushed[0]))


def test_no_text_label_or_place_of_the_author_is_pushed(pushed, ld_run):
    """Neither texts nor arrays of the graph, nor any path of this machine, nor warnings that may quote the data."""
    run = RunDirectory.open(ld_run)
    texts = [text.encode() for text in sorted(run.graph.texts, key=len)[-20:]]
    for folder, whole in zip(pushed, (False, True), strict=True):
        files = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        assert any(text in held for held in files.values() for text in texts) == whole
        assert any(p.suffix == ".npy" for p in files) == whole
        assert not [p for p, held in files.items() if str(ld_run.parent).encode() in held]
    card = json.loads((pushed[0] / "labeldeconv.json").read_text())
    assert not {"warnings", "stages", "bytes"} & set(card)
    assert card["settings"]["data"] == run.graph.name
    assert card["model"]["class_names"] == run.graph.class_names


def test_an_encoders_folder_becomes_its_name(tmp_path):
    (tmp_path / "mine").mkdir()
    assert public_name(str(tmp_path / "mine")) == "mine"
    assert public_name(f"title={tmp_path / 'mine'},price=number") == "title=mine,price=number"
    assert public_name("someone/model") == "someone/model"


def test_what_save_writes_of_a_pushed_model_loads(pushed, tmp_path):
    model = LabelDeconvolution.from_pretrained(pushed[0])
    again = LabelDeconvolution.load(model.save(tmp_path / "saved"))
    np.testing.assert_array_equal(again.predict_proba(texts=TEXTS), model.predict_proba(texts=TEXTS))


def test_sentence_transformers_gives_the_same_features(pushed):
    st = pytest.importorskip("sentence_transformers", reason="pip install --no-deps sentence-transformers")
    theirs = st.SentenceTransformer(str(pushed[0]), device="cpu")
    assert theirs.max_seq_length == 16
    a, b = theirs.encode(TEXTS), LabelDeconvolution.from_pretrained(pushed[0]).transform(TEXTS).astype(np.float32)
    cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert cosine.min() > 0.9999
    np.testing.assert_allclose(a, b, atol=2e-3)  # ours are float16


def test_transformers_opens_the_encoder(pushed):
    from transformers import AutoModel, AutoTokenizer

    assert AutoModel.from_pretrained(pushed[0]).config.hidden_size == 32
    assert AutoTokenizer.from_pretrained(pushed[0]).pad_token == "[PAD]"


@pytest.mark.parametrize(("pooling", "kept"), [("mean", False), ("first", True)])
def test_a_mean_over_residues_is_no_module_of_sentence_transformers(family, tmp_path, pooling, kept):
    encoder = load_encoder(EncoderConfig(name=family("esm2"), pooling=pooling))
    encoder.save(tmp_path)
    assert _sentence_layout(encoder, tmp_path, 64) == kept
    assert [(tmp_path / name).exists() for name in ("modules.json", "1_Pooling")] == [kept, kept]


def test_places_and_runs_that_are_refused(pushed, ld_run, tmp_path):
    with pytest.raises(DataError, match="an empty folder or none expected"):
        write_repository(ld_run, pushed[0])
    with pytest.raises(DataError, match="inside the run directory"):
        write_repository(ld_run, ld_run / "x")
    from dataclasses import replace

    graph = replace(planted(60, seed=0).graph, features=np.zeros((60, 3), np.float32))
    fit(graph, method="given", gnn__epochs=1, out=tmp_path / "run")
    with pytest.raises(ConfigError, match="method 'given' has no encoder to push"):
        write_repository(tmp_path / "run", tmp_path / "pushed")
    assert not list(tmp_path.glob("pushed*"))


def test_a_folder_may_be_moved_and_read_only(pushed, tmp_path):
    moved = Path(shutil.copytree(pushed[0], tmp_path / "a = b"))
    for path in moved.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert LabelDeconvolution.from_pretrained(moved.resolve()).transform(["a"]).shape == (1, 32)


def test_the_run_itself_is_untouched(ld_run):
    Predictor.load(ld_run).run.verify()
