"""Word vectors of used tokens alone: the same numbers, and all vectors back afterwards."""

import numpy as np
import pytest
import torch
from torch import nn

from labeldeconv.encoders import vocabulary
from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.encoders.tokens import Tokens, write_tokens
from labeldeconv.encoders.values import NumberEncoder
from labeldeconv.encoders.vocabulary import UsedEmbedding, used_tokens, used_vocabulary
from labeldeconv.graph.texts import Texts
from labeldeconv.settings.models import EncoderConfig
from tests.samples import letter_tokens


def test_used_tokens_by_hand(monkeypatch):
    monkeypatch.setattr(vocabulary, "CHUNK", 2)
    tokens = Tokens(np.array([7, 3, 3, 9, 7], np.uint16), np.array([0, 5]), 0)
    assert used_tokens(tokens, 12, {0, 3}).tolist() == [0, 3, 7, 9]


def test_ids_stay_as_they_were():
    whole = nn.Embedding(10, 3, padding_idx=2)
    part = UsedEmbedding(whole, np.array([2, 5, 9]))
    ids = torch.tensor([[5, 9], [2, 5]])
    assert part.weight.shape == (3, 3)
    torch.testing.assert_close(part(ids), whole(ids))
    part(ids).sum().backward()
    assert part.weight.grad.tolist() == [[0.0] * 3, [2.0] * 3, [1.0] * 3]  # none for the padding, as in the whole


def test_all_vectors_come_back_and_the_used_ones_trained(tmp_path):
    encoder, tokens = load_encoder(EncoderConfig(name="tiny")), letter_tokens(6, tmp_path / "tokens")
    whole = encoder.model.get_input_embeddings()
    before = whole.weight.detach().clone()
    with used_vocabulary(encoder, tokens):
        part = encoder.model.get_input_embeddings()
        assert isinstance(part, UsedEmbedding)
        assert len(part.weight) < 0.1 * len(before)
        with torch.no_grad():
            part.weight += 1
    assert encoder.model.get_input_embeddings() is whole
    moved = (whole.weight != before).any(1).nonzero()[:, 0].tolist()
    assert moved == used_tokens(tokens, len(before), {0}).tolist()


def test_features_are_the_same_inside(tmp_path):
    encoder, tokens = load_encoder(EncoderConfig(name="tiny")).eval(), letter_tokens(6, tmp_path / "tokens")
    with torch.no_grad():
        outside = encoder(*tokens.batch(np.arange(6)))
        with used_vocabulary(encoder, tokens):
            assert torch.equal(encoder(*tokens.batch(np.arange(6))), outside)


def test_all_vectors_come_back_after_an_error(tmp_path):
    encoder = load_encoder(EncoderConfig(name="tiny"))
    whole = encoder.model.get_input_embeddings()
    with pytest.raises(KeyboardInterrupt), used_vocabulary(encoder, letter_tokens(6, tmp_path / "tokens")):
        raise KeyboardInterrupt
    assert encoder.model.get_input_embeddings() is whole


def test_nothing_is_done_where_it_is_not_worth_it(tmp_path, monkeypatch):
    tokens = letter_tokens(6, tmp_path / "tokens")
    encoder = load_encoder(EncoderConfig(name="tiny"))
    frozen = load_encoder(EncoderConfig(name="tiny")).requires_grad_(False)
    monkeypatch.setattr(vocabulary, "WORTH", 0.0)
    for given in (encoder, frozen, NumberEncoder()):
        with used_vocabulary(given, tokens):
            assert not any(isinstance(module, UsedEmbedding) for module in given.modules())
    monkeypatch.setattr(vocabulary, "WORTH", 0.8)
    with used_vocabulary(frozen, tokens):
        assert not any(isinstance(module, UsedEmbedding) for module in frozen.modules())


class Shifted(nn.Embedding):
    """A table that does more than look up, in a way nobody knows of."""

    def forward(self, ids):
        return super().forward(ids) + 1


def test_gemma_s_table_keeps_its_scale_and_an_unknown_kind_stays_whole(family, tmp_path):
    """The defect: Gemma's vectors are multiplied by sqrt(d), which the table of used vectors forgot."""
    encoder = load_encoder(EncoderConfig(name=family("gemma3"))).eval()
    tokens = write_tokens(encoder.tokenizer_part, Texts.from_strings(["abc", "cab a"]), 32, tmp_path)
    with torch.no_grad():
        outside = encoder(*tokens.batch(np.arange(2)))
        with used_vocabulary(encoder, tokens):
            assert isinstance(encoder.model.get_input_embeddings(), UsedEmbedding)
            assert torch.equal(encoder(*tokens.batch(np.arange(2))), outside)
        shifted = Shifted(encoder.vocab_size, 32)
        encoder.model.set_input_embeddings(shifted)
        with used_vocabulary(encoder, tokens):
            assert encoder.model.get_input_embeddings() is shifted
