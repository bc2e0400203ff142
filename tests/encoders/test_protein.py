"""Protein encoders of transformers: ESM2's architecture at random weights."""

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, EsmConfig, EsmForMaskedLM, EsmTokenizer

from labeldeconv.config import EncoderConfig
from labeldeconv.encoders.load import load_encoder
from labeldeconv.encoders.protein import ProteinEncoder
from labeldeconv.graph import AttributedGraph
from labeldeconv.names import attribute_warning
from labeldeconv.split import Split
from labeldeconv.texts import Texts

# ESM2's own vocabulary
VOCABULARY = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"]
SEQUENCES = ["MKVLAAGW", "acd", "MJ*K", "M" * 40]


def encode(encoder, texts, pad=0, max_tokens=64):
    rows = encoder.tokenize(texts, max_tokens)
    width = max(map(len, rows)) + pad
    ids = torch.tensor([row + [encoder.pad_id] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    with torch.inference_mode():
        return encoder.eval()(ids, mask)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An ESM2 language model, as the hub has them: with a head and without a pooler."""
    path = tmp_path_factory.mktemp("esm")
    (path / "vocab.txt").write_text("\n".join(VOCABULARY))
    torch.manual_seed(0)
    config = EsmConfig(
        vocab_size=33,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=130,
        position_embedding_type="rotary",
        token_dropout=True,
        pad_token_id=1,
        mask_token_id=32,
    )
    EsmForMaskedLM(config).save_pretrained(path)
    EsmTokenizer(str(path / "vocab.txt")).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def esm(folder):
    return load_encoder(EncoderConfig(name=str(folder)))


def test_tokens_are_those_of_the_tokenizer(esm, folder):
    assert isinstance(esm, ProteinEncoder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    clean = ["MKVLAAGW", "ACD", "MXK", "M" * 40]
    assert esm.tokenize(SEQUENCES, 64) == tokenizer(clean)["input_ids"]
    assert [len(row) for row in esm.tokenize(SEQUENCES, 10)] == [10, 5, 5, 10]
    assert esm.tokenize(["M" * 40], 10)[0][-1] == tokenizer.eos_token_id


def test_mean_over_residues_without_begin_and_end(esm):
    ids = torch.tensor(esm.tokenize(["MKVL"], 64))
    mask = torch.ones_like(ids)
    hidden = esm.eval().model(input_ids=ids, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(esm(ids, mask), hidden[:, 1:-1].mean(1))
    torch.testing.assert_close(encode(esm, SEQUENCES), encode(esm, SEQUENCES, pad=7), atol=1e-5, rtol=1e-5)
    assert encode(esm, [""]).isfinite().all()


def test_identity_saves_and_restores(esm, folder, tmp_path):
    assert esm.identity() == load_encoder(EncoderConfig(name=str(folder))).identity()  # no random pooler
    esm.save(tmp_path / "m")
    again = load_encoder(EncoderConfig(name=str(tmp_path / "m")))
    torch.testing.assert_close(encode(again, SEQUENCES), encode(esm, SEQUENCES))
    again.restore(tmp_path / "m")
    torch.testing.assert_close(encode(again, SEQUENCES), encode(esm, SEQUENCES))


def test_text_encoder_on_sequences_warns(folder):
    graph = AttributedGraph(
        Texts.from_strings(["MK"] * 4),
        np.zeros((2, 0)),
        np.array([0, 1, 0, 1]),
        Split(np.array([0, 0, 1, 2])),
        ["a", "b"],
        attributes="sequence",
        name="p",
    )
    told = attribute_warning(EncoderConfig(name="tiny"), graph)
    assert told == "'p' has attributes of the kind sequence, and 'tiny' reads texts; an ESM2 model or unirep-64 fits"
    assert attribute_warning(EncoderConfig(name=str(folder)), graph) is None
