"""OGB's three data sets and the paper's three encoder families in miniature, for running every recipe."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    DebertaConfig,
    DebertaModel,
    EsmConfig,
    EsmForMaskedLM,
    EsmTokenizer,
    PreTrainedTokenizerFast,
)

from tests.data.sets.ogb.ogb_writing import arxiv, products, proteins

SIZE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
RESIDUES = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"]
# What stands for an encoder of a recipe, by the beginning of its hub id.
FAMILIES = {"microsoft/deberta": "deberta", "google-bert/bert": "bert", "facebook/esm2": "esm2"}


def write_data(root: Path) -> Path:
    """The raw files of all three data sets, twelve nodes each, under one root."""
    for make in (arxiv, products, proteins):
        make(root)
    return root


def write_encoders(root: Path) -> Path:
    """A model with random weights of each family, as a folder that transformers opens."""
    torch.manual_seed(0)
    for name, model in (
        ("bert", BertModel(BertConfig(vocab_size=260, max_position_embeddings=64, **SIZE))),
        (
            "deberta",
            DebertaModel(
                DebertaConfig(
                    vocab_size=260,
                    max_position_embeddings=64,
                    relative_attention=True,
                    pos_att_type=["c2p", "p2c"],
                    type_vocab_size=0,
                    **SIZE,
                )
            ),
        ),
    ):
        model.save_pretrained(root / name)
        _byte_tokenizer().save_pretrained(root / name)
    config = EsmConfig(
        vocab_size=33, max_position_embeddings=66, position_embedding_type="rotary", token_dropout=True,
        pad_token_id=1, mask_token_id=32, **SIZE,
    )  # fmt: skip
    EsmForMaskedLM(config).save_pretrained(root / "esm2")
    (root / "esm2" / "vocab.txt").write_text("\n".join(RESIDUES))
    EsmTokenizer(str(root / "esm2" / "vocab.txt")).save_pretrained(root / "esm2")
    return root


def family(hub_id: str) -> str:
    """Which of the written encoders stands for a hub id."""
    return next(folder for start, folder in FAMILIES.items() if hub_id.startswith(start))


def _byte_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **names)
