"""Encoders split into a frozen trunk and trained layers: the same features and gradients as frozen in place."""

import numpy as np
import pytest
import torch
import transformers as hf
from transformers import AutoModel

from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.encoders.tokens import Tokens
from labeldeconv.encoders.trunk import Passing, SplitEncoder, TokenStates, layers_of, split_for
from labeldeconv.encoders.unirep import UniRep
from labeldeconv.encoders.values import NumberEncoder
from labeldeconv.errors import ConfigError
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.testing import _batch, check_encoder, encoded
from tests.encoders.families import (
    PROTEINS,
    SEQUENCES,
    SHARE_MORE,
    SMALL,
    SPLIT,
    TEXTS,
    bert_tokenizer,
    frozen_in_place,
)


def attributes(name):
    return SEQUENCES if name in PROTEINS else TEXTS


def gradients(encoder, inputs):
    """Of the squares of the features, by parameter of the whole encoder."""
    torch.manual_seed(0)
    encoder(*inputs).pow(2).sum().backward()
    return {n.removeprefix("whole."): p.grad for n, p in encoder.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", SPLIT)
def test_gradients_equal_those_frozen_in_place(name, family):
    """With dropout in the trained layers, on padded rows; from float32 states equal, from float16 ones nearly."""
    place = EncoderConfig(name=family(name))
    reference = frozen_in_place(load_encoder(place), 1)
    batch = _batch(reference, attributes(name))
    expected = gradients(reference, batch)
    split = SplitEncoder(load_encoder(place), 1).train()
    states = split.states(*batch)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 1e-2)):
        split.zero_grad()
        found = gradients(split, (*batch, states.to(dtype)))
        assert set(found) == set(expected)
        for key, gradient in expected.items():
            bound = tolerance * float(gradient.abs().max()) + 1e-6
            torch.testing.assert_close(found[key], gradient, atol=bound, rtol=0, msg=f"{key} {dtype}")


@pytest.mark.parametrize("train_layers", [1, 2, 3, 4])
def test_local_and_global_attention_of_modernbert(train_layers, tmp_path):
    """Layers look 4 tokens far or everywhere, in turn; texts are longer than that."""
    tokenizer = bert_tokenizer()
    config = {**SMALL, "num_hidden_layers": 4, "local_attention": 8, "global_attn_every_n_layers": 2}
    torch.manual_seed(0)
    model = hf.ModernBertModel(hf.ModernBertConfig(vocab_size=len(tokenizer), pad_token_id=0, **config))
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    place = EncoderConfig(name=str(tmp_path))
    kinds = [layer.attention_type for layer in layers_of(load_encoder(place))]
    assert kinds == ["full_attention", "sliding_attention"] * 2
    reference = frozen_in_place(load_encoder(place), train_layers)
    split = SplitEncoder(load_encoder(place), train_layers).train()
    batch = _batch(reference, ["label deconvolution of nodes " * 2, "a graph of words and their relations"])
    expected, found = gradients(reference, batch), gradients(split, (*batch, split.states(*batch)))
    assert set(found) == set(expected)
    for key, gradient in expected.items():
        torch.testing.assert_close(found[key], gradient, atol=1e-5 * float(gradient.abs().max()) + 1e-6, rtol=0)


@pytest.mark.parametrize("name", SHARE_MORE)
def test_families_that_share_more_than_states_are_refused(name, family):
    with pytest.raises(ConfigError, match=r"encoder.train_layers: \w*T5EncoderModel cannot be split .* more than its"):
        SplitEncoder(load_encoder(EncoderConfig(name=family(name))), 1)


def test_encoders_without_layers_are_refused():
    for encoder in (NumberEncoder(), UniRep(4, 1)):
        with pytest.raises(ConfigError, match=r"encoder.train_layers: \w+ cannot be split .* it has no list of layers"):
            SplitEncoder(encoder, 1)


def test_a_model_whose_layers_read_behind_the_trunk_is_refused(monkeypatch):
    encoder = load_encoder(EncoderConfig(name="tiny"))
    real = type(encoder).forward
    monkeypatch.setattr(type(encoder), "forward", lambda self, ids, mask: real(self, ids, mask) + _first_value(self))
    with pytest.raises(ConfigError, match=r"its last layers read more than the states"):
        SplitEncoder(encoder, 1)


def _first_value(encoder):
    """Differs when the first layer does not run."""
    return 0.0 if isinstance(layers_of(encoder)[0], Passing) else 10.0


def test_too_many_layers():
    with pytest.raises(ConfigError, match=r"encoder.train_layers: at most 2 for this encoder, got 3"):
        SplitEncoder(load_encoder(EncoderConfig(name="tiny")), 3)
    with pytest.raises(ConfigError, match=r"encoder.train_layers: at most 1 for this encoder, got 2"):
        SplitEncoder(load_encoder(EncoderConfig(name="tiny", layers=1)), 2)


def test_all_layers_on_frozen_embeddings():
    split = SplitEncoder(load_encoder(EncoderConfig(name="tiny")), 2)
    trained = {name for name, p in split.named_parameters() if p.requires_grad and "pooler" not in name}
    assert trained
    assert all("encoder.layer." in name for name in trained)


def test_weights_that_the_trunk_reads_are_frozen(family):
    """DeBERTa's relative positions are read by all layers."""
    split = SplitEncoder(load_encoder(EncoderConfig(name=family("deberta-v3"))), 1)
    wanted = {name: p.requires_grad for name, p in split.named_parameters()}
    assert not wanted["whole.model.encoder.rel_embeddings.weight"]
    assert wanted["whole.model.encoder.layer.1.attention.self.query_proj.weight"]
    assert not any("layer.0." in name for name in wanted)  # no part of the module: neither moved nor in a checkpoint


def test_only_trained_layers_have_dropout():
    split = SplitEncoder(load_encoder(EncoderConfig(name="tiny")), 1).train()
    modes = {name: m.training for name, m in split.named_modules() if isinstance(m, torch.nn.Dropout)}
    assert {name for name, on in modes.items() if on} == {name for name in modes if "layer.1." in name}
    assert split.training
    assert not any(m.training for m in split.eval().modules())


@pytest.mark.parametrize("name", ["bert", "deberta", "modernbert", "esm2"])
def test_it_keeps_the_contract_and_saves_the_whole_encoder(name, family, tmp_path):
    place = EncoderConfig(name=family(name))
    check_encoder(lambda: SplitEncoder(load_encoder(place), 1))
    split = SplitEncoder(load_encoder(place), 1)
    assert split.weights_key() == load_encoder(place).weights_key()
    with torch.no_grad():
        for parameter in (p for p in split.parameters() if p.requires_grad):
            parameter.mul_(1.1)
    split.save(tmp_path / "m")
    assert isinstance(layers_of(split.whole)[0], Passing)  # split again
    again = load_encoder(EncoderConfig(name=str(tmp_path / "m"))).eval()
    torch.testing.assert_close(encoded(again, attributes(name)), encoded(split.eval(), attributes(name)))
    assert not torch.allclose(encoded(load_encoder(place).eval(), attributes(name)), encoded(again, attributes(name)))
    theirs, before = AutoModel.from_pretrained(tmp_path / "m").state_dict(), load_encoder(place).model.state_dict()
    changed = {key for key in before if key in theirs and not torch.equal(before[key], theirs[key])}
    assert changed
    assert not any("layer.0." in key or "layers.0." in key or "embeddings" in key for key in changed)
    assert set(theirs) >= {key for key in before if "pooler" not in key}


def test_adapters_of_the_trained_layers_alone(tmp_path):
    pytest.importorskip("peft", reason="needs the extra lora")
    split = SplitEncoder(load_encoder(EncoderConfig(name="tiny", lora_rank=2)), 1)
    trained = [name for name, p in split.named_parameters() if p.requires_grad and "pooler" not in name]
    assert trained
    assert all("lora_" in name and "layer.1." in name for name in trained)
    with torch.no_grad():
        for parameter in (p for p in split.parameters() if p.requires_grad):
            parameter.normal_(std=0.3)
    split.save(tmp_path / "m")
    merged = load_encoder(EncoderConfig(name=str(tmp_path / "m"))).eval()
    torch.testing.assert_close(encoded(split.eval(), TEXTS), encoded(merged, TEXTS), atol=1e-5, rtol=1e-4)


def test_batches_of_states():
    """Nodes 0 and 2 have the same text, whose states are kept once; behind the end there are zeros."""
    ids, offsets = np.array([5, 6, 7, 5, 6], np.uint16), np.array([0, 2, 3, 5])
    values, starts = np.arange(6, dtype=np.float16).reshape(3, 2), np.array([0, 2, 0])
    store = TokenStates(ids, offsets, 0, values, starts, 1, 0.0)
    input_ids, mask, states = store.batch(np.array([1, 2]))
    assert input_ids.tolist() == [[7, 0], [5, 6]]
    assert mask.tolist() == [[1, 0], [1, 1]]
    assert states.tolist() == [[[4, 5], [0, 0]], [[0, 1], [2, 3]]]
    assert states.dtype == torch.float16
    encoder = load_encoder(EncoderConfig(name="tiny"))
    assert isinstance(split_for(encoder, store), SplitEncoder)
    assert split_for(encoder, Tokens(ids, offsets, 0)) is encoder
