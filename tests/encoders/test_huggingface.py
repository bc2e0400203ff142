"""Text encoders of transformers: pooling, truncation, folders, adapters, and their keys."""

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, T5ForConditionalGeneration

from labeldeconv.encoders.huggingface import open_model
from labeldeconv.encoders.pretrained import load_encoder, wrapped
from labeldeconv.errors import ConfigError, MissingExtra
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.testing import check_encoder
from tests.elsewhere import DEVICE, elsewhere
from tests.encoders.families import FAMILIES, PROTEINS, SEQUENCES, byte_tokenizer, encode

TEXTS = ["a graph", "label deconvolution", "büßt 日本"]


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


def test_four_bits_are_refused_where_there_are_none(monkeypatch, tmp_path):
    with pytest.raises(ConfigError, match="not for 'tiny'"):
        load_encoder(EncoderConfig(name="tiny", weights="4bit"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match="4bit"):
        open_model(str(tmp_path), "4bit")


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


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_keeps_the_contract(name, family):
    check_encoder(lambda: load_encoder(EncoderConfig(name=family(name))))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_saves_and_restores(name, family, tmp_path):
    texts = SEQUENCES if name in PROTEINS else TEXTS
    start = load_encoder(EncoderConfig(name=family(name), layers=1))
    with torch.no_grad():
        for p in start.parameters():
            p.add_(0.01 * torch.randn_like(p))
    start.save(tmp_path / "m")
    restored = load_encoder(EncoderConfig(name=family(name), layers=1))
    assert not torch.allclose(encode(restored, texts), encode(start, texts), atol=1e-3)
    restored.restore(tmp_path / "m")
    torch.testing.assert_close(encode(restored, texts), encode(start, texts))
    again = load_encoder(EncoderConfig(name=str(tmp_path / "m")))
    torch.testing.assert_close(encode(again, texts), encode(start, texts))
    assert {p.dtype for p in again.parameters()} == {torch.float32}


def test_of_t5_the_encoder_alone_is_loaded(family):
    """Against the whole model with its decoder, as transformers runs it."""
    encoder = load_encoder(EncoderConfig(name=family("t5"))).eval()
    assert not [name for name, _ in encoder.named_parameters() if "decoder" in name]
    whole = T5ForConditionalGeneration.from_pretrained(family("t5")).eval()
    ids = torch.tensor(encoder.tokenize(["a label of the graph"], 64))
    with torch.no_grad():
        out = whole(input_ids=ids, decoder_input_ids=torch.zeros(1, 1, dtype=torch.long))
        torch.testing.assert_close(encoder(ids, torch.ones_like(ids)), out.encoder_last_hidden_state.mean(1))


def test_weights_kept_in_bfloat16_are_loaded_in_float32(family, tmp_path):
    model, tokenizer = (c.from_pretrained(family("qwen3")) for c in (AutoModel, AutoTokenizer))
    model.to(torch.bfloat16).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    encoder = load_encoder(EncoderConfig(name=str(tmp_path)))
    assert {p.dtype for p in encoder.parameters()} == {torch.float32}
    encoder.save(tmp_path / "m")
    encoder.restore(tmp_path / "m")
    assert {p.dtype for p in encoder.parameters()} == {torch.float32}


def test_a_model_without_a_padding_token_pads_with_its_end_token(family, caplog, tmp_path):
    caplog.set_level("INFO")
    for _ in range(2):
        encoder = load_encoder(EncoderConfig(name=family("qwen3")))
    assert encoder.pad_id == encoder.tokenizer.eos_token_id == 0
    assert caplog.messages == ["Qwen3Model: no token for padding; '<|end|>' fills rows up, behind the mask"]
    torch.testing.assert_close(encode(encoder, TEXTS), encode(encoder, TEXTS, pad=9))
    encoder.save(tmp_path / "m")
    assert AutoTokenizer.from_pretrained(tmp_path / "m").pad_token == "<|end|>"  # so that others can batch it too


def test_an_empty_text_has_a_token_even_where_there_are_no_special_ones(family):
    """Attention over no token at all is NaN, and one NaN in a batch is the end of a training."""
    model = AutoModel.from_pretrained(family("qwen3"))
    bare = byte_tokenizer(["<|end|>"], "$A", eos_token="<|end|>")
    encoder = wrapped((model, bare), EncoderConfig())
    assert encoder.tokenize(["", "a"], 8) == [[0], [65]]
    assert encode(encoder, ["", "a graph"]).isfinite().all()


@pytest.mark.parametrize(("name", "most"), [("roberta", 128), ("xlm-roberta", 128), ("mpnet", 128), ("bert", 130)])
def test_positions_behind_the_padding_token(name, most, family):
    """RoBERTa counts positions from behind its padding token, 1: of 130 there are 128, and all of them work."""
    encoder = load_encoder(EncoderConfig(name=family(name)))
    assert len(encoder.tokenize(["x" * 500], 512)[0]) == most
    assert encode(encoder, ["x" * 500], max_tokens=512).isfinite().all()


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_computes_the_same_on_another_device(name, family):
    encoder = load_encoder(EncoderConfig(name=family(name))).eval()
    texts = SEQUENCES if name in PROTEINS else TEXTS
    here = encode(encoder, texts)
    with torch.no_grad(), elsewhere():
        encoder.to(DEVICE)
        rows = [torch.tensor([row]).to(DEVICE) for row in encoder.tokenize(texts, 64)]
        there = [encoder(row, torch.ones_like(row)) for row in rows]
        assert {x.device for x in there} == {DEVICE}
        torch.testing.assert_close(torch.cat([x.cpu() for x in there]), here, atol=1e-5, rtol=1e-4)


def test_a_language_model_keeps_no_cache(family):
    encoder = load_encoder(EncoderConfig(name=family("qwen3"))).eval()
    outs = []
    encoder.model.register_forward_hook(lambda model, inputs, out: outs.append(out))
    encode(encoder, TEXTS)
    assert outs[0].past_key_values is None
