"""Protein encoders of transformers: ESM2's architecture at random weights."""

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, EsmConfig, EsmForMaskedLM, EsmTokenizer

from labeldeconv.encoders.pretrained import Pretrained, load_encoder
from labeldeconv.encoders.protein import ProteinEncoder, reads_residues, residue_ids, residues_to_ids
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.texts import Texts
from labeldeconv.runs.preparation import attribute_warning
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.testing import ENCODER_CHECKS, encoded
from tests.encoders.families import PROTEINS

# ESM2's own vocabulary
VOCABULARY = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"]
SEQUENCES = ["MKVLAAGW", "acd", "MJ*K", "M" * 40]


def encode(encoder, texts, **options):
    return encoded(encoder.eval(), texts, **options)


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
    same = load_encoder(EncoderConfig(name=str(folder)))
    assert esm.weights_key() == same.weights_key()  # no random pooler
    assert esm.tokenizer_key() == same.tokenizer_key()
    esm.save(tmp_path / "m")
    again = load_encoder(EncoderConfig(name=str(tmp_path / "m")))
    torch.testing.assert_close(encode(again, SEQUENCES), encode(esm, SEQUENCES))
    again.restore(tmp_path / "m")
    torch.testing.assert_close(encode(again, SEQUENCES), encode(esm, SEQUENCES))


@pytest.mark.parametrize("check", ENCODER_CHECKS, ids=lambda check: check.__name__)
def test_contract(folder, check):
    check(lambda: load_encoder(EncoderConfig(name=str(folder))), None)


@pytest.mark.parametrize("name", PROTEINS)
def test_every_family_s_tokens_are_those_of_its_tokenizer(name, family):
    """ProtT5 reads residues as words and ends with </s> alone; ESM reads them as letters between two tokens."""
    encoder = load_encoder(EncoderConfig(name=family(name)))
    assert isinstance(encoder, ProteinEncoder)
    clean = ["MKVLAAGW", "ACD", "MXK", "M" * 40]
    theirs = encoder.tokenizer([" ".join(text) if name == "prot-t5" else text for text in clean])["input_ids"]
    assert encoder.tokenize(SEQUENCES, 64) == theirs
    ids = torch.tensor(theirs[:1])
    mask = torch.ones_like(ids)
    hidden = encoder.eval().model(input_ids=ids, attention_mask=mask).last_hidden_state
    begins = 0 if name == "prot-t5" else 1
    torch.testing.assert_close(encoder(ids, mask), hidden[:, begins:-1].mean(1))


def test_residues_by_hand():
    """'J' is not in the vocabulary and read as 'X', '*' and blanks are left out, small letters are large ones."""
    table = np.zeros(256, np.int64)
    table[[ord(c) for c in "AXZ"]] = [1, 2, 3]
    assert residues_to_ids(["AzX", "a *\nA", ""], table) == [[1, 3, 2], [1, 1], []]


def test_only_vocabularies_of_residues_are_read_as_such(folder):
    assert reads_residues(AutoTokenizer.from_pretrained(folder))
    assert not reads_residues(load_encoder(EncoderConfig(name="tiny")).tokenizer)
    assert residue_ids(AutoTokenizer.from_pretrained(folder))[ord("J")] == VOCABULARY.index("X")


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
    told = attribute_warning(Pretrained(EncoderConfig(name="tiny")), graph)
    assert told == "'p' has attributes of the kind sequence, and 'tiny' reads texts; an ESM2 model or unirep-64 fits"
    assert attribute_warning(Pretrained(EncoderConfig(name=str(folder))), graph) is None
