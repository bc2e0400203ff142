"""Folders of sentence-transformers give the library's own features, and are written back as they were."""

import json

import numpy as np
import pytest
import torch

from labeldeconv.encoders.huggingface import minilm_folder
from labeldeconv.encoders.pretrained import load_encoder, wrapped
from labeldeconv.encoders.sentence import read_layout
from labeldeconv.errors import ConfigError
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.testing import encoded
from tests.encoders.families import save_family

TEXTS = ["A graph of labels", "", "label deconvolution, pushed backwards", "büßt 日本"]
PROMPT = {"prompts": {"query": "query: ", "document": "passage: "}, "default_prompt_name": "document"}

# Family, modules behind the transformer, and what else the folder says, as well-known models have them.
LAYOUTS = {
    "bge": ("bert", [("Pooling", "cls"), ("Normalize",)], {}),
    "e5": ("xlm-roberta", [("Pooling", "mean"), ("Normalize",)], PROMPT),
    "labse": ("bert", [("Pooling", "cls"), ("Dense", 32, "Tanh", True), ("Normalize",)], {}),
    "sentence-t5": ("t5", [("Pooling", "mean"), ("Dense", 24, "Identity", False), ("Normalize",)], {}),
    "instructor": ("t5", [("Pooling", "mean", False), ("Dense", 24, "Identity", False)], PROMPT),
    "qwen3-embedding": ("qwen3", [("Pooling", "lasttoken"), ("Normalize",)], PROMPT),
    "embedding-gemma": (
        "gemma3",
        [("Pooling", "mean"), ("Dense", 48, "Identity", False), ("Dense", 32, "Identity", False), ("Normalize",)],
        PROMPT,
    ),
    "sgpt": ("qwen3", [("Pooling", "weightedmean")], {}),
    "gte-modernbert": ("modernbert", [("Pooling", "cls")], {}),
    "max and root": ("roberta", [("Pooling", ["mean_sqrt_len_tokens", "max"])], {}),
    "layer norm": ("bert", [("Pooling", "mean"), ("LayerNorm",), ("Dropout",)], {}),
}


def made(name, folder):
    """A model of sentence-transformers with this layout, of tiny random weights, and the folder it is saved in."""
    st = pytest.importorskip("sentence_transformers", reason="comes with the extra minilm")
    from sentence_transformers.sentence_transformer import modules as models

    family, behind, options = LAYOUTS[name]
    save_family(family, folder / "base")
    transformer = models.Transformer(str(folder / "base"), max_seq_length=64)
    if transformer.tokenizer.pad_token is None:  # as the tokenizers of Qwen3's embedding models are
        transformer.tokenizer.pad_token, transformer.tokenizer.padding_side = transformer.tokenizer.eos_token, "left"
    width, modules = transformer.get_embedding_dimension(), [transformer]
    torch.manual_seed(1)
    for kind, *given in behind:
        if kind == "Pooling":
            mode, *include = given
            module = models.Pooling(width, pooling_mode=mode, include_prompt=not include)
            width *= 1 if isinstance(mode, str) else len(mode)
        elif kind == "Dense":
            out, activation, bias = given
            module = models.Dense(width, out, bias, getattr(torch.nn, activation)())
            width = out
        elif kind == "LayerNorm":
            module = models.LayerNorm(width)
            torch.nn.init.normal_(module.norm.weight)
        else:
            module = {"Normalize": models.Normalize, "Dropout": models.Dropout}[kind]()
        modules.append(module)
    model = st.SentenceTransformer(modules=modules, device="cpu", **options)
    model.save(str(folder / "model"))
    return model.eval(), folder / "model"


def cosines(a, b):
    """Cosine (n,) of every pair of rows."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


@pytest.mark.parametrize("name", LAYOUTS)
def test_features_are_the_librarys_own(name, tmp_path):
    model, folder = made(name, tmp_path)
    ours = load_encoder(EncoderConfig(name=str(folder))).eval()
    theirs = model.encode(TEXTS)
    found = encoded(ours, TEXTS).numpy()
    assert found.shape == theirs.shape
    assert cosines(found, theirs).min() > 0.9999
    np.testing.assert_allclose(found, theirs, atol=1e-5, rtol=1e-4)
    as_object = encoded(wrapped(model, EncoderConfig()).eval(), TEXTS).numpy()
    np.testing.assert_allclose(as_object, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", LAYOUTS)
def test_saved_again_it_is_the_same_for_both(name, tmp_path):
    st = pytest.importorskip("sentence_transformers", reason="comes with the extra minilm")
    _, folder = made(name, tmp_path)
    ours = load_encoder(EncoderConfig(name=str(folder))).eval()
    with torch.no_grad():
        for weight in ours.readout.parameters():
            weight.add_(0.1)
    before = encoded(ours, TEXTS).numpy()
    ours.save(tmp_path / "again")
    np.testing.assert_allclose(
        st.SentenceTransformer(str(tmp_path / "again"), device="cpu").encode(TEXTS), before, atol=1e-5
    )
    opened = load_encoder(EncoderConfig(name=str(tmp_path / "again"))).eval()
    np.testing.assert_allclose(encoded(opened, TEXTS).numpy(), before, atol=1e-6)
    restored = load_encoder(EncoderConfig(name=str(folder)))
    restored.restore(tmp_path / "again")
    np.testing.assert_allclose(encoded(restored.eval(), TEXTS).numpy(), before, atol=1e-6)


def test_prompts_by_name_by_text_and_none(tmp_path):
    model, folder = made("e5", tmp_path)
    keys = set()
    for asked, name, text in (
        (None, "document", None),
        ("query", "query", None),
        ("so: ", None, "so: "),
        ("", None, ""),
    ):
        ours = load_encoder(EncoderConfig(name=str(folder), prompt=asked)).eval()
        theirs = model.encode(TEXTS, prompt_name=name, prompt=text)
        np.testing.assert_allclose(encoded(ours, TEXTS).numpy(), theirs, atol=1e-5, rtol=1e-4)
        keys.add(ours.tokenizer_key())
    assert len(keys) == 4


def test_a_named_pooling_takes_the_transformer_alone(tmp_path):
    model, folder = made("labse", tmp_path)
    ours = load_encoder(EncoderConfig(name=str(folder), pooling="mean")).eval()
    assert ours.dim == 32
    assert not ours.readout.normalize
    states = model.encode(TEXTS[:1], output_value="token_embeddings")[0].numpy()
    np.testing.assert_allclose(encoded(ours, TEXTS[:1])[0].numpy(), states.mean(0), atol=1e-5)


def test_length_and_width_by_the_settings(tmp_path):
    model, folder = made("bge", tmp_path)
    theirs = model.encode(TEXTS)
    long = encoded(load_encoder(EncoderConfig(name=str(folder), normalize=False)).eval(), TEXTS).numpy()
    assert np.abs(np.linalg.norm(long, axis=1) - 1).min() > 0.1
    assert cosines(long, theirs).min() > 0.9999
    short = encoded(load_encoder(EncoderConfig(name=str(folder), dim=8)).eval(), TEXTS).numpy()
    np.testing.assert_allclose(np.linalg.norm(short, axis=1), 1, atol=1e-6)
    assert cosines(short, model.encode(TEXTS, truncate_dim=8)).min() > 0.9999
    with pytest.raises(ConfigError, match=r"encoder.dim: at most 32 for this encoder, got 64"):
        load_encoder(EncoderConfig(name=str(folder), dim=64))


def test_minilm_by_name_keeps_its_length_and_by_its_folder_does_as_that_says(minilm):
    folder = str(minilm_folder())
    by_folder = load_encoder(EncoderConfig(name=folder)).eval()
    long, short = encoded(minilm.eval(), TEXTS).numpy(), encoded(by_folder, TEXTS).numpy()
    np.testing.assert_allclose(np.linalg.norm(short, axis=1), 1, atol=1e-6)
    assert np.linalg.norm(long, axis=1).min() > 2
    assert cosines(long, short).min() > 0.9999


def test_a_transformer_in_a_subfolder_and_lower_case(tmp_path):
    save_family("bert", tmp_path / "0_Transformer")
    rows = [{"idx": 0, "name": "0", "path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}]
    (tmp_path / "modules.json").write_text(json.dumps(rows))
    (tmp_path / "0_Transformer" / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    ours = load_encoder(EncoderConfig(name=str(tmp_path))).eval()
    assert torch.equal(encoded(ours, ["A Graph"]), encoded(ours, ["a graph"]))
    again = tmp_path / "again"
    ours.save(again)
    assert torch.equal(
        encoded(load_encoder(EncoderConfig(name=str(again))).eval(), ["A Graph"]), encoded(ours, ["a graph"])
    )


POOLING = {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
START = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}


@pytest.mark.parametrize(
    ("modules", "config", "message"),
    [
        ([{**START, "type": "evil.Code"}], {}, r"Transformer, then Pooling, .* expected, got 'Code'"),
        (
            [START, {**POOLING, "type": "remote.Attention"}],
            {},
            r"got 'Attention'; encoder.pooling = \"mean\"",
        ),
        ([START, {**POOLING, "path": "../../x"}], {}, r"paths inside the folder expected, got '../../x'"),
        ([START, {**POOLING, "path": "/etc"}], {}, r"paths inside the folder expected, got '/etc'"),
        ([START, POOLING], {"pooling_mode": "median"}, r"pooling_mode of cls, .* expected, got 'median'"),
        ([START, {**POOLING, "type": "x.Dense"}], {"in_features": 2, "out_features": 2}, r"model.safetensors expected"),
        ({"a": 1}, {}, r"a list of modules with 'type' and 'path' expected"),
    ],
)
def test_other_layouts_are_refused_by_name(modules, config, message, tmp_path):
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=message):
        read_layout(str(tmp_path))


def test_an_activation_from_elsewhere_is_not_imported(tmp_path):
    from safetensors.torch import save_file

    (tmp_path / "modules.json").write_text(json.dumps([START, {**POOLING, "type": "x.Dense"}]))
    (tmp_path / "1_Pooling").mkdir()
    config = {"in_features": 2, "out_features": 2, "activation_function": "os.system"}
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(config))
    save_file(
        {"linear.weight": torch.zeros(2, 2), "linear.bias": torch.zeros(2)},
        tmp_path / "1_Pooling" / "model.safetensors",
    )
    with pytest.raises(ConfigError, match=r"activation_function of Identity, .* in torch.nn expected, got 'os.system'"):
        read_layout(str(tmp_path))
    config["activation_function"] = "torch.nn.modules.activation.Tanh"
    config["out_features"] = 3
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"model.safetensors: size mismatch"):
        read_layout(str(tmp_path))


def test_broken_json_is_named(tmp_path):
    (tmp_path / "modules.json").write_text("{")
    with pytest.raises(ConfigError, match=r"modules.json: JSON expected"):
        read_layout(str(tmp_path))
